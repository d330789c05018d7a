r"""When is the bound :math:`\kappa(\tfrac12(I+A)) \le \tfrac12(1+\kappa(A))` an equality?

Write, for a pair of tokens i, j, the *deficit*

.. math:: \delta_{ij} = \tfrac12\bigl[(A_{ji}-A_{ii})_+ + (A_{ij}-A_{jj})_+\bigr]
                      = \tfrac12(1+\mathrm{TV}_{ij}(A)) - \mathrm{TV}_{ij}(\tfrac12(I+A)).

It vanishes exactly when the pair is *mutually self-dominant*, :math:`A_{ii} \ge A_{ji}` and
:math:`A_{jj} \ge A_{ij}`.  Taking the maximum over pairs, equality holds if and only if some pair that attains
:math:`\kappa(A)` is mutually self-dominant (condition (8) of the paper), and otherwise

.. math:: \mathrm{gap}(A) = \tfrac12(1+\kappa(A)) - \kappa(\tfrac12(I+A))
          = \min_{i \ne j} \bigl[\tfrac12(\kappa(A)-\mathrm{TV}_{ij}(A)) + \delta_{ij}\bigr] > 0.

A verdict is about the matrix of stored float64 numbers and is exact for it.  Comparing two stored numbers is
exact; a floating-point distance is off by at most ``tv_error(n)``; where that could decide the verdict or the
pair, the few pairs in question are compared by exact summation.

Source: Rola (2026), condition (8); the identity and the minimum are proved in the book's first chapter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.spatial.distance import pdist

from dobrushin import _kernels
from dobrushin.stochastic import ROUNDING, ROW_SUM_TOLERANCE, as_array, check_stochastic, dtype_name, on_accelerator

__all__ = ["Equality", "equality"]


@dataclass(frozen=True, eq=False)
class Equality:
    """Verdicts about matrices of batch shape ``(...)``; plain Python values for a single matrix."""

    kappa: Float[np.ndarray, "*batch"] | float
    """Dobrushin coefficient of A, in [0, 1]."""
    lazy_kappa: Float[np.ndarray, "*batch"] | float
    """Dobrushin coefficient of the rollout factor (I + A)/2, in [1/2, 1] for distinct tokens."""
    gap: Float[np.ndarray, "*batch"] | float
    """(1 + kappa)/2 - lazy_kappa >= 0; 0 exactly where the condition holds."""
    margin: Float[np.ndarray, "*batch"] | float
    """Largest TV over mutually self-dominant pairs minus the largest over the others; the condition holds exactly
    where this is >= 0.  -inf if no pair is mutually self-dominant, +inf if all are."""
    holds: Bool[np.ndarray, "*batch"] | bool
    """Whether the bound is an equality for the matrix as stored."""
    fragile: Bool[np.ndarray, "*batch"] | bool
    """Whether changes of the size of the model's rounding could turn the verdict."""
    pair: Int[np.ndarray, "*batch 2"] | tuple[int, int]
    """The pair i < j that attains kappa, a mutually self-dominant one where there is one; the first of several."""


def tv_error(n: int, roundoff: float = 2.0**-53) -> float:
    """Bound on the error of a floating-point TV of two rows of length n, for any order of summation.

    n - 1 additions and n subtractions give a relative error of at most n u / (1 - n u), u the unit roundoff (Higham
    2002, section 4.2); TV itself is at most 1 plus the row-sum tolerance.
    """
    return 1.1 * (n + 4) * roundoff


def equality(A: Any, *, substochastic: bool = False, rounding: float | None = None) -> Equality:
    r"""Judge whether :math:`\kappa(\tfrac12(I+A)) = \tfrac12(1+\kappa(A))`, exactly for the matrix as stored.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``, n >= 2.  A tensor on an accelerator has its distances
            computed there; the answer is the same as on the CPU.
        substochastic: allow rows that sum to less than 1; the identity behind the condition needs entries in
            [0, 1] only.
        rounding: relative error r that every entry may have, for ``fragile``.  By default that of
            :data:`~dobrushin.stochastic.ROUNDING` for A's element type.  A verdict is fragile unless it is the same
            for all matrices whose entries lie between (1-r) A_ij and (1+r) A_ij.

    Returns:
        An :class:`Equality`.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`; rounding not in [0, 1).
    """
    A = as_array(A)
    matrices = check_stochastic(A, substochastic=substochastic)
    if rounding is None:
        rounding = ROUNDING[dtype_name(A)]
    if not 0 <= rounding < 1:  # also true for NaN
        raise ValueError(f"rounding is {rounding}; expected a relative error, from 0 to less than 1")
    batch_shape, n = matrices.shape[:-2], matrices.shape[-1]
    flat = matrices.reshape(-1, n, n)

    error = tv_error(n)
    # Rounding changes a TV by at most r times the mean sum of the two rows, and a difference of two TVs twice that.
    slack = 2 * rounding * (1 + max(ROW_SUM_TOLERANCE.values())) + 2 * error
    scan = np.zeros(len(flat), dtype=_kernels.SCAN)
    if on_accelerator(A):
        from dobrushin import _accelerator  # imports torch, which such a tensor has done already

        _accelerator.scan_pairs(A.reshape(-1, n, n), flat, float(rounding), slack, out=scan)
    else:
        _kernels.run(_kernels.scan_pairs, flat, float(rounding), slack, error, out=scan)
    values = np.zeros(len(flat), dtype=_kernels.VALUES)
    _kernels.run(_kernels.values_of_pairs, flat, scan, out=values)

    holds = scan["good"] >= scan["other"]
    pair = np.where(holds[:, None], scan["good_pair"], scan["other_pair"])
    for b in np.flatnonzero(_undecided(scan, holds, error)):
        exact = _decide(flat[b], 2 * error)
        holds[b], pair[b] = exact.holds, exact.pair
        for name in _kernels.VALUES.names or ():
            values[name][b] = getattr(exact, name)

    fragile = scan["fragile"].copy()
    if not batch_shape:
        v = values[0]
        return Equality(
            kappa=float(v["kappa"]),
            lazy_kappa=float(v["lazy_kappa"]),
            gap=float(v["gap"]),
            margin=float(v["margin"]),
            holds=bool(holds[0]),
            fragile=bool(fragile[0]),
            pair=(int(pair[0, 0]), int(pair[0, 1])),
        )
    shaped = {name: np.ascontiguousarray(values[name]).reshape(batch_shape) for name in _kernels.VALUES.names or ()}
    return Equality(
        **shaped, holds=holds.reshape(batch_shape), fragile=fragile.reshape(batch_shape), pair=pair.reshape(*batch_shape, 2)
    )


def _undecided(scan: np.ndarray, holds: np.ndarray, error: float) -> np.ndarray:
    """Where floating-point distances do not settle the verdict or which pairs attain the extremes."""

    def close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # inf - inf where a class is empty
            return np.abs(a - b) <= 2 * error

    tied = close(scan["good"], scan["other"])
    tied |= close(scan["good"], scan["good_second"]) | close(scan["other"], scan["other_second"])
    tied |= close(scan["looseness"], scan["looseness_second"]) & ~holds
    return tied & ~scan["exact"]


def _decide(M: Float[np.ndarray, "n n"], window: float) -> Equality:
    """Judge one matrix with exact comparisons among the pairs within `window` of each extreme."""
    rows, columns = np.triu_indices(len(M), 1)
    tv = 0.5 * pdist(M, "cityblock")
    diagonal = M.diagonal()
    back, forth = M[columns, rows] - diagonal[rows], M[rows, columns] - diagonal[columns]
    good = (back <= 0) & (forth <= 0)
    looseness = 0.5 * (np.maximum(back, 0) + np.maximum(forth, 0)) - 0.5 * tv

    def tv_terms(pair: int) -> list[float]:
        """Numbers whose sum is 2 TV of the pair."""
        x, y = M[rows[pair]], M[columns[pair]]
        return [*np.maximum(x, y).tolist(), *(-np.minimum(x, y)).tolist()]

    def looseness_terms(pair: int) -> list[float]:
        """Numbers whose sum is 4 (deficit - TV/2) of the pair."""
        i, j = int(rows[pair]), int(columns[pair])
        terms = [-t for t in tv_terms(pair)]
        for above, below in ((M[j, i], M[i, i]), (M[i, j], M[j, j])):
            if above > below:
                terms += [2 * float(above), -2 * float(below)]
        return terms

    # Pairs between the same two rows of numbers have the same distance, and with the same deficit the same looseness:
    # the first of them stands for all (uniform attention of n tokens has one kind of pair instead of n(n-1)/2).
    kind = np.unique(M, axis=0, return_inverse=True)[1].ravel()
    entries = np.stack([M[columns, rows], diagonal[rows], M[rows, columns], diagonal[columns]])
    entries[:2, back <= 0] = entries[2:, forth <= 0] = 0  # in no deficit
    kinds = np.column_stack([np.sort(kind[[rows, columns]], axis=0).T, entries.T])

    def largest(members: np.ndarray, score: np.ndarray, terms: Callable[[int], list[float]]) -> int | None:
        """The first member with the exactly largest sum of terms, among those of nearly the largest score."""
        if not members.any():
            return None
        top = score[members].max()
        candidates = np.flatnonzero(members & (score >= top - window))
        candidates = candidates[np.sort(np.unique(kinds[candidates], axis=0, return_index=True)[1])]
        best, best_terms = None, [0.0]
        for pair in candidates.tolist():
            new = terms(pair)
            if best is None or _sign_of_sum(new, best_terms) > 0:
                best, best_terms = pair, new
        return best

    best_good = largest(good, tv, tv_terms)
    best_other = largest(~good, tv, tv_terms)
    everyone = np.ones_like(good)
    if best_good is None or best_other is None:
        holds, margin = best_other is None, math.inf if best_other is None else -math.inf
    else:
        difference = [*tv_terms(best_good), *(-t for t in tv_terms(best_other))]
        margin = _scaled(0.5, math.fsum(difference))
        holds = margin >= 0
    attaining = best_good if holds else best_other
    assert attaining is not None
    kappa_terms = tv_terms(attaining)
    kappa = 0.5 * math.fsum(kappa_terms)
    if holds:
        gap, lazy_kappa = 0.0, 0.5 * (1 + kappa)
    else:
        loosest = largest(everyone, -looseness, lambda pair: [-t for t in looseness_terms(pair)])
        assert loosest is not None
        gap = _scaled(0.25, math.fsum([*kappa_terms, *looseness_terms(loosest)]))
        lazy_kappa = 0.25 * math.fsum([2.0, *(-t for t in looseness_terms(loosest))])
    return Equality(kappa, lazy_kappa, gap, margin, holds, False, (int(rows[attaining]), int(columns[attaining])))


def _scaled(factor: float, x: float) -> float:
    """factor * x, but never 0 for x != 0: a sign must not be lost to underflow."""
    return math.copysign(max(factor * abs(x), math.ulp(0.0) if x else 0.0), x)


def _sign_of_sum(plus: list[float], minus: list[float]) -> float:
    """A number with the sign of sum(plus) - sum(minus): fsum rounds the exact sum once, which keeps its sign."""
    return math.fsum([*plus, *(-t for t in minus)])
