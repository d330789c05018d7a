r"""How far can a matrix move before its verdict changes?

Distance is the largest change of a row, :math:`\max_i \sum_k |A_{ik} - B_{ik}|`.  The gap is 1-Lipschitz in it, so a
failing verdict survives any change smaller than the gap.  A second bound, which works for both verdicts, compares
the *slack* of pairs, :math:`s_{ij} = \min(A_{ii} - A_{ji},\, A_{jj} - A_{ij})`, at least 0 exactly where the pair is
mutually self-dominant, with their distances: both change slowly when the matrix moves.

Source: the theorems ``kappa_gap_lipschitz``, ``condition_stable`` and ``failure_stable`` of the formal proof.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dobrushin.coefficient import pairwise_tv
from dobrushin.equality import equality
from dobrushin.stochastic import as_array, check_stochastic

__all__ = ["radius", "row_distance"]


def row_distance(A: Any, B: Any) -> Float[np.ndarray, "*batch"] | float:
    r"""Largest L1 distance between corresponding rows, :math:`\max_i \sum_k |A_{ik} - B_{ik}|`, from 0 to 2.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.
        B: row-stochastic matrices whose shape broadcasts with that of A.

    Returns:
        Values of shape ``(...)``; a float for single matrices.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.
    """
    return _plain(np.abs(check_stochastic(A) - check_stochastic(B)).sum(axis=-1).max(axis=-1))


def radius(A: Any) -> Float[np.ndarray, "*batch"] | float:
    r"""A radius within which the verdict cannot change.

    Every row-stochastic B with ``row_distance(A, B) < radius(A)`` has the verdict of A.

    Where the condition holds, the radius is the largest :math:`\eta` for which some pair of slack at least
    :math:`\eta` has a distance that exceeds that of every pair of less slack by at least :math:`2\eta`.  Where it fails,
    it is the larger of the gap and of

    .. math:: \min_{i \ne j} \max\bigl(-s_{ij},\; \tfrac12(\kappa(A) - \mathrm{TV}_{ij}(A))\bigr).

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.

    Returns:
        Values of shape ``(...)``, a float for a single matrix: 0 where an arbitrarily small change may turn the verdict.
        Exact up to the rounding of sums of n numbers.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.
    """
    A = as_array(A)  # whose element type says how far rows may sum from 1
    matrices = check_stochastic(A)
    n = matrices.shape[-1]
    rows, columns = np.triu_indices(n, 1)
    diagonal = np.einsum("...ii->...i", matrices)
    slack = np.minimum(diagonal[..., rows] - matrices[..., columns, rows], diagonal[..., columns] - matrices[..., rows, columns])
    tv = pairwise_tv(A)[..., rows, columns]
    verdict = equality(A)
    failing = np.maximum(verdict.gap, np.maximum(-slack, (tv.max(axis=-1, keepdims=True) - tv) / 2).min(axis=-1))
    return _plain(np.where(verdict.holds, _holding(slack, tv), failing))


def _holding(slack: Float[np.ndarray, "*batch pairs"], tv: Float[np.ndarray, "*batch pairs"]) -> Float[np.ndarray, "*batch"]:
    """The radius where the condition holds: the best place to cut the pairs, sorted by slack, in two."""
    order = np.argsort(slack, axis=-1)
    slack, tv = np.take_along_axis(slack, order, axis=-1), np.take_along_axis(tv, order, axis=-1)
    above = np.maximum.accumulate(tv[..., ::-1], axis=-1)[..., ::-1]
    below = np.full_like(tv, -np.inf)
    below[..., 1:] = np.maximum.accumulate(tv, axis=-1)[..., :-1]
    return np.asarray(np.maximum(np.minimum(slack, (above - below) / 2).max(axis=-1), 0))


def _plain(values: Any) -> Any:
    """A float where there is one value only."""
    return values if np.ndim(values) else float(values)
