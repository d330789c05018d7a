r"""Attention rollout and the depth bound.

.. math:: R = \tfrac12(I+A^{(L)}) \cdots \tfrac12(I+A^{(1)}), \qquad
          \kappa(R) \le \prod_{\ell=1}^{L} \tfrac12\bigl(1+\kappa(A^{(\ell)})\bigr).

Source: rollout, Abnar and Zuidema (2020); the depth bound, Biccari et al. (2026), as cited by Rola (2026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
from jaxtyping import Float

from dobrushin.coefficient import coefficient
from dobrushin.stochastic import lazy

__all__ = ["layer_bound", "rollout"]


def _layers(As: Iterable[Any]) -> list[Any]:
    layers = list(As)
    if not layers:
        raise ValueError("As holds no layer; expected at least one attention matrix, the first layer first")
    shapes = [tuple(A.shape) if hasattr(A, "shape") else np.shape(A) for A in layers]
    for index, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(f"layer {index} has shape {shape}; expected {shapes[0]} as in layer 0: one set of tokens throughout")
    return layers


def _each(function: Callable[[Any], Any], layers: list[Any]) -> Iterator[Any]:
    """The function of every layer; an error names the layer."""
    for index, A in enumerate(layers):
        try:
            value = function(A)
        except ValueError as error:
            raise ValueError(f"layer {index}: {error}") from error
        yield value


def rollout(As: Iterable[Any]) -> Float[np.ndarray, "*batch n n"]:
    r"""Attention rollout: the product of the factors :math:`\tfrac12(I+A)`, the first layer applied first.

    Args:
        As: the layers' row-stochastic matrices, each of shape ``(..., n, n)``, the first layer first: a sequence
            or an array whose leading axis counts layers.

    Returns:
        float64 array of shape ``(..., n, n)``: (I + A_L)/2 ... (I + A_1)/2.  Its rows sum to 1 as nearly as those
        of the layers: after attention in half precision, divide them by their sums before they are judged as float64.

    Raises:
        ValueError: no layer, layers of different shape, or as :func:`~dobrushin.stochastic.check_stochastic`, with the
            number of the layer, from 0.
    """
    return reduce(lambda product, factor: factor @ product, _each(lazy, _layers(As)))


def layer_bound(As: Iterable[Any]) -> Float[np.ndarray, "*batch"] | float:
    r"""The depth bound :math:`\prod_\ell \tfrac12(1+\kappa(A^{(\ell)}))` on :math:`\kappa` of the rollout.

    Args:
        As: as for :func:`rollout`.

    Returns:
        Values between 2^-L and 1 of shape ``(...)``; a float for single matrices.

    Raises:
        ValueError: as :func:`rollout`.
    """
    return reduce(lambda product, factor: product * factor, _each(lambda A: 0.5 * (1 + coefficient(A)), _layers(As)))
