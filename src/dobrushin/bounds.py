r"""Two Doeblin bounds on the Dobrushin coefficient, and which token carries it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from dobrushin.coefficient import pairwise_tv
from dobrushin.stochastic import check_stochastic

__all__ = ["Doeblin", "doeblin", "leave_one_out"]


class Doeblin(NamedTuple):
    """Upper bounds on kappa, of batch shape ``(...)``; kappa <= columnwise <= entrywise."""

    entrywise: Float[np.ndarray, "*batch"]
    """1 - n eps with eps the smallest entry, the paper's entry-wise route."""
    columnwise: Float[np.ndarray, "*batch"]
    """1 - the sum over columns of the smallest entry of each column; sharper, not in the paper."""


def doeblin(A: Any) -> Doeblin:
    r"""Doeblin's bounds :math:`\kappa(A) \le 1 - \sum_k \min_i A_{ik} \le 1 - n \min_{ik} A_{ik}`.

    Why: :math:`\mathrm{TV}_{ij} = 1 - \sum_k \min(A_{ik}, A_{jk})`, and every column's minimum over all rows is at
    most its minimum over two.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.

    Returns:
        Two arrays of shape ``(...)`` with values between 0 and 1 (up to the rounding of the row sums).

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.

    Source: Doeblin (1937); Seneta (2006), section 4.3.
    """
    matrices = check_stochastic(A)
    return Doeblin(1 - matrices.shape[-1] * matrices.min(axis=(-2, -1)), 1 - matrices.min(axis=-2).sum(axis=-1))


def leave_one_out(A: Any) -> Float[np.ndarray, "*batch n"]:
    r"""Leave-one-out score of every token: how far :math:`\kappa` falls when the token's row is left out.

    .. math:: \Delta_i = \kappa(A) - \max\{\mathrm{TV}_{jk}(A) : j, k \ne i\} \ge 0.

    The token with the largest score is the matrix's *carrier*.  For n = 2 no pair is left and the maximum is 0.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.

    Returns:
        float64 array of shape ``(..., n)``; at most two tokens have a positive score.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.

    Source: Rola (2026), Table 2.
    """
    distances = pairwise_tv(A)
    n = distances.shape[-1]
    flat = distances.reshape(-1, n * n)
    top = flat.argmax(axis=-1)
    scores = np.zeros((len(flat), n))
    # Leaving out a token outside the pair that attains kappa changes nothing.
    for tokens in (top // n, top % n):
        rest = distances.reshape(-1, n, n).copy()
        each = np.arange(len(flat))
        rest[each, tokens, :] = rest[each, :, tokens] = 0
        scores[each, tokens] = flat[each, top] - rest.max(axis=(-2, -1))
    return scores.reshape(*distances.shape[:-1])
