"""Catching a model's attention, layer by layer, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

__all__ = ["Site", "catching_attention", "find_sites"]


class Site(NamedTuple):
    """Where attention appears while a model runs."""

    module: Any
    place: int | None
    """Of the attention in the module's output; None where the output itself is the attention."""
    pass_on: bool
    """Whether the attention stays in the output; else it is dropped there, so that the model cannot collect it."""


@contextmanager
def catching_attention(module: Any, consume: Callable[[int, Any], None], *, tokens: int | None = None) -> Iterator[None]:
    """Within the block, hand the attention of every layer to `consume` as soon as the layer has run.

    The attention is what the layer multiplies its values with: after the softmax, a tensor of shape
    ``(batch, heads, n, n)``.  Nothing is kept, so memory does not grow with depth.  Each call of the model must
    reach every layer once.  Fused attention of timm is off, and attention asked of transformers, within the block only.

    Args:
        module: a vision transformer of timm, or an encoder of transformers.
        consume: called with the layer's number, from 1, and its attention.
        tokens: how many tokens every matrix must have; not checked if None.

    Raises:
        ValueError: the model is in training mode (dropout), runs fused attention of transformers, which never forms
            the matrix, or has attention that cannot be measured: causal, over windows or pooled tokens, across two
            token sets, of one query only, or none at all; or a layer was not reached.
    """
    if module.training:
        raise ValueError("the model is in training mode, where dropout changes the attention; call module.eval() first")
    sites, layers = find_sites(module)
    reached: list[int] = []

    def hook(site: Site) -> Callable[[Any, Any, Any], Any]:
        def caught(_module: Any, _arguments: Any, output: Any) -> Any:
            number = len(reached) % layers + 1
            attention = output if site.place is None else _pick(output, site.place)
            if attention is None:
                raise ValueError(
                    f"layer {number} ({type(site.module).__name__}) gave no attention matrix where such layers give it: it runs "
                    "a fused or an approximate form, which never has one, or gives it in a form of its own; expected softmax "
                    "attention second among the layer's outputs, as BERT has it"
                )
            _check(number, attention, tokens)
            reached.append(number)
            consume(number, attention.detach())
            if site.pass_on:
                return None
            return tuple(attention.new_empty(0) if part is attention else part for part in output)

        return caught

    if _of_transformers(module):  # that declare nothing form attention for the outside only when asked
        settings = [(module.config, "output_attentions", any(not site.pass_on for site in sites))]
    else:
        settings = [(m, "fused_attn", False) for m in module.modules() if hasattr(m, "fused_attn")]
    before = [getattr(owner, name) for owner, name, _ in settings]
    handles = [site.module.register_forward_hook(hook(site)) for site in sites]
    try:
        for owner, name, value in settings:
            setattr(owner, name, value)
        yield
    finally:
        for handle in handles:
            handle.remove()
        for (owner, name, _), value in zip(settings, before, strict=True):
            setattr(owner, name, value)
    if not reached or len(reached) % layers:
        expected = list(range(1, layers + 1))
        raise ValueError(
            f"attention was caught in layers {reached}; expected {expected} in every call: the model skips or changes layers"
        )


def _pick(output: Any, index: int) -> Any:
    """The attention in a module's output, None if there is none."""
    if not isinstance(output, tuple) or not -len(output) <= index < len(output):
        return None
    found = output[index]
    return found if hasattr(found, "shape") else None


def _check(number: int, attention: Any, tokens: int | None) -> None:
    """Refuse attention that is not one square bidirectional matrix a head over one set of tokens."""
    shape = tuple(attention.shape)
    if len(shape) != 4 or shape[-1] != shape[-2]:
        one = len(shape) == 4 and shape[-2] == 1
        reason = "a single query (1×N, which has no kappa)" if one else "windowed, pooled or cross-attention"
        raise ValueError(
            f"layer {number} has attention of shape {shape}: {reason}; expected (batch, heads, n, n) over one set of tokens"
        )
    if tokens is not None and shape[-1] != tokens:
        raise ValueError(
            f"layer {number} has attention of {shape[-1]}×{shape[-1]}, but the input has {tokens} tokens: attention over "
            "windows, pooled tokens or channels, or that a special token joins in a later layer, cannot be measured"
        )
    # The first token's row tells in nearly every model, and the whole triangle is a copy of the attention.
    if shape[-1] > 1 and not attention[..., 0, 1:].any() and not attention.triu(1).any():
        raise ValueError(
            f"layer {number} has causal attention, no token attends to a later one; expected a bidirectional encoder"
        )


def _of_transformers(module: Any) -> bool:
    return hasattr(module, "config") and hasattr(module.config, "model_type")


def find_sites(module: Any) -> tuple[list[Site], int]:
    """Where a model's attention appears, in the order of its layers, and how many times it does in one call.

    Raises:
        ValueError: the model cannot be measured, with the reason; or transformers runs fused attention.
    """
    return _transformers_sites(module) if _of_transformers(module) else _timm_sites(module)


def _timm_sites(module: Any) -> tuple[list[Site], int]:
    """timm: the dropout after the softmax of ``blocks[i].attn``; it is passed only while ``fused_attn`` is off."""
    blocks = getattr(module, "blocks", None)
    attentions = [getattr(block, "attn", None) for block in blocks or ()]
    drops = [getattr(attention, "attn_drop", None) for attention in attentions]
    if not drops or any(drop is None for drop in drops) or not hasattr(module, "patch_embed"):
        raise ValueError(
            f"{type(module).__name__} has no blocks of global self-attention that can be caught (in timm, "
            "blocks[i].attn.attn_drop): it is convolutional, windowed, pooled or made otherwise; expected a plain vision "
            "transformer"
        )
    return [Site(drop, None, pass_on=True) for drop in drops], len(drops)


def _transformers_sites(module: Any) -> tuple[list[Site], int]:
    """transformers: the modules that the model itself names as the source of its attentions, run eagerly."""
    config, name = module.config, type(module).__name__
    if getattr(config, "is_decoder", False):
        raise ValueError("the model is a decoder: its attention is causal; expected a bidirectional encoder")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{name} is an encoder-decoder, with causal and cross-attention; expected a bidirectional encoder alone")
    if hasattr(config, "text_config") and hasattr(config, "vision_config"):
        raise ValueError(f"{name} has a tower for images and one for text; expected one of them alone")
    if config._attn_implementation != "eager":
        raise ValueError(
            f"the model runs {config._attn_implementation!r} attention, which never forms the matrix; "
            'load it with attn_implementation="eager"'
        )
    declared = (getattr(type(module), "_can_record_outputs", None) or {}).get("attentions")
    sites = _declared_sites(module, declared) if declared is not None else _undeclared_sites(module)
    layers = getattr(config, "num_hidden_layers", None)
    if not sites or not isinstance(layers, int):
        raise ValueError(
            f"{name} has no self-attention that can be caught: it is convolutional, a mixer or made otherwise; "
            "expected a bidirectional encoder"
        )
    return sites, layers  # ALBERT runs one module several times


def _declared_sites(module: Any, declared: Any) -> list[Site]:
    sites = []
    for recorder in declared if isinstance(declared, list) else [declared]:
        target, index = getattr(recorder, "target_class", recorder), getattr(recorder, "index", 1)
        part = (getattr(recorder, "layer_name", None) or "").strip(".")
        for path, m in module.named_modules():
            if isinstance(target, type) and isinstance(m, target) and (not part or f".{part}." in f".{path}."):
                sites.append(Site(m, index, pass_on=True))
    return sites


def _undeclared_sites(module: Any) -> list[Site]:
    """Models that pass attention from layer to layer: the innermost modules called attention return it second."""
    found = [m for m in module.modules() if type(m).__name__.endswith("Attention")]
    inner = [m for m in found if not any(other is not m and other in found for other in m.modules())]
    return [Site(m, 1, pass_on=False) for m in inner]
