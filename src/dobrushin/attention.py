"""Catching a model's attention, layer by layer, while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["catching_attention"]


@contextmanager
def catching_attention(module: Any, consume: Callable[[int, Any], None]) -> Iterator[None]:
    """Within the block, hand the attention of every layer to `consume` as soon as the layer has run.

    The attention is what the layer multiplies its values with: after the softmax, a tensor of shape
    ``(batch, heads, n, n)``.  Nothing is kept, so memory does not grow with depth.  Each call of the model must
    reach every layer once.

    Args:
        module: an encoder of transformers whose layers are ``encoder.layer[i].attention.self``.
        consume: called with the layer's number, from 1, and its attention.

    Raises:
        ValueError: the model is in training mode (dropout), a decoder (causal masks), or runs fused attention,
            which never forms the matrix.
        RuntimeError: a layer gave no attention, or was not reached.
    """
    if module.training:
        raise ValueError("the model is in training mode, where dropout changes the attention; call module.eval() first")
    if getattr(module.config, "is_decoder", False):
        raise ValueError("the model is a decoder: its attention is causal; expected a bidirectional encoder")
    if module.config._attn_implementation != "eager":
        raise ValueError(
            f"the model runs {module.config._attn_implementation!r} attention, which never forms the matrix; "
            'load it with attn_implementation="eager"'
        )
    layers = [layer.attention.self for layer in module.encoder.layer]
    reached: list[int] = []

    def hook(number: int) -> Callable[[Any, Any, Any], None]:
        def caught(_module: Any, _arguments: Any, output: Any) -> None:
            attention = output[1] if isinstance(output, tuple) and len(output) > 1 else None
            if attention is None:
                raise RuntimeError(f"layer {number} gave no attention matrix; expected it as the second output")
            reached.append(number)
            consume(number, attention.detach())

        return caught

    handles = [layer.register_forward_hook(hook(number)) for number, layer in enumerate(layers, start=1)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
    expected = list(range(1, len(layers) + 1))
    calls = max(1, -(-len(reached) // len(layers)))
    if reached != expected * calls:
        raise RuntimeError(f"attention was caught in layers {reached}; expected {expected} once a call of the model")
