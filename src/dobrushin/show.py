"""One input through a model: its attention, layer by layer, to be looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dobrushin.attention import catching_attention
from dobrushin.measure import head_mean
from dobrushin.models import Model

__all__ = ["head_means"]


def head_means(model: Model, inputs: Any, index: int) -> Float[np.ndarray, "layers n n"]:
    """Attention of one input, averaged over heads, of all layers and all tokens.

    Args:
        model: from :func:`dobrushin.models.load`.
        inputs: as for :func:`dobrushin.measure.measure`.
        index: which of the inputs, from 0.

    Raises:
        ValueError: as :func:`dobrushin.attention.catching_attention`.
    """
    import torch

    layers: list[np.ndarray] = []
    tokens = len(inputs.roles(index))
    with torch.inference_mode(), catching_attention(model.module, lambda _, a: layers.append(head_mean(a)[0]), tokens=tokens):
        model(inputs.batch(index, index + 1))
    return np.stack(layers)
