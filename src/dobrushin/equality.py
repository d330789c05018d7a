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
pair, the few pairs in question are compared by compensated sums, and by exact summation where even these tie.

Source: Rola (2026), condition (8); the identity and the minimum are proved in the book's first chapter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dobrushin import _kernels, _scan, _verdicts
from dobrushin.stochastic import ROUNDING, ROW_SUM_TOLERANCE, as_array, check_stochastic, dtype_name, on_accelerator

__all__ = ["Equality", "equality", "judged"]


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
    return judged(A, matrices, float(rounding))


def judged(A: Any, matrices: Float[np.ndarray, "*batch n n"], rounding: float) -> Equality:
    """:func:`equality` of matrices that were checked before, in float64; `A` is the same where distances are computed."""
    batch_shape, n = matrices.shape[:-2], matrices.shape[-1]
    flat = matrices.reshape(-1, n, n)
    error = tv_error(n)
    # Rounding changes a TV by at most r times the mean sum of the two rows, and a difference of two TVs twice that.
    slack = 2 * rounding * (1 + max(ROW_SUM_TOLERANCE.values())) + 2 * error
    scan = np.zeros(len(flat), dtype=_scan.SCAN)
    verdicts = np.zeros(len(flat), dtype=_verdicts.VERDICT)
    if on_accelerator(A):
        from dobrushin import _accelerator  # imports torch, which such a tensor has done already

        _accelerator.scan_pairs(A.reshape(-1, n, n), flat, rounding, slack, out=scan)
        _kernels.run(_verdicts.verdicts_of_pairs, flat, scan, error, out=verdicts)
    else:
        _kernels.run(_verdicts.judge, flat, rounding, slack, error, scan, out=verdicts)
    for b in np.flatnonzero(~verdicts["settled"]):
        verdicts[b] = _settled(flat[b], error, bool(verdicts["fragile"][b]))

    columns = [field.name for field in fields(Equality)]
    if not batch_shape:
        return Equality(**{name: _plain(verdicts[name][0]) for name in columns})
    return Equality(
        **{name: np.ascontiguousarray(verdicts[name]).reshape(batch_shape + verdicts[name].shape[1:]) for name in columns}
    )


def _plain(value: Any) -> Any:
    """A Python value; a pair as a tuple."""
    return tuple(value.tolist()) if value.ndim else value.item()


def _settled(M: Float[np.ndarray, "n n"], error: float, fragile: bool) -> tuple[Any, ...]:
    """The VERDICT record of one matrix, by exact comparisons among the pairs within 2 error of each extreme."""

    def tv_terms(i: int, j: int) -> list[float]:
        """Numbers whose sum is 2 TV of the pair."""
        x, y = M[i], M[j]
        return [*np.maximum(x, y).tolist(), *(-np.minimum(x, y)).tolist()]

    def looseness_terms(i: int, j: int) -> list[float]:
        """Numbers whose sum is 4 (deficit - TV/2) of the pair."""
        terms = [-t for t in tv_terms(i, j)]
        for above, below in ((M[j, i], M[i, i]), (M[i, j], M[j, j])):
            if above > below:
                terms += [2 * float(above), -2 * float(below)]
        return terms

    found = _scan.contenders(M, error, True)
    # Pairs between the same two rows of numbers have the same distance, and with the same deficit the same looseness:
    # the first of them stands for all (uniform attention of n tokens has one kind of pair instead of n(n-1)/2).
    tokens, place = np.unique(found[:, 1:], return_inverse=True)
    row = np.unique(M[tokens], axis=0, return_inverse=True)[1].ravel()[place].reshape(-1, 2)
    i, j = found[:, 1], found[:, 2]
    entries = np.stack([M[j, i], M[i, i], M[i, j], M[j, j]], axis=1)
    entries[M[j, i] <= M[i, i], :2] = entries[M[i, j] <= M[j, j], 2:] = 0  # in no deficit
    entries[found[:, 0] < 2] = 0  # the deficit does not count
    kinds = np.column_stack([found[:, 0], np.sort(row, axis=1), entries])
    found = found[np.sort(np.unique(kinds, axis=0, return_index=True)[1])]

    def largest(members: int, terms: Callable[[int, int], list[float]]) -> tuple[int, int] | None:
        """The first pair with the exactly largest sum of terms."""
        best, best_terms = None, [0.0]
        for i, j in found[found[:, 0] == members, 1:].tolist():
            new = terms(i, j)
            if best is None or _sign_of_sum(new, best_terms) > 0:
                best, best_terms = (i, j), new
        return best

    best_other, best_good = largest(0, tv_terms), largest(1, tv_terms)
    if best_good is None or best_other is None:
        holds, margin = best_other is None, math.inf if best_other is None else -math.inf
    else:
        difference = [*tv_terms(*best_good), *(-t for t in tv_terms(*best_other))]
        margin = _scaled(0.5, math.fsum(difference))
        holds = margin >= 0
    attaining = best_good if holds else best_other
    assert attaining is not None
    kappa_terms = tv_terms(*attaining)
    kappa = 0.5 * math.fsum(kappa_terms)
    if holds:
        gap, lazy_kappa = 0.0, 0.5 * (1 + kappa)
    else:
        loosest = largest(2, lambda i, j: [-t for t in looseness_terms(i, j)])
        assert loosest is not None
        gap = _scaled(0.25, math.fsum([*kappa_terms, *looseness_terms(*loosest)]))
        lazy_kappa = 0.25 * math.fsum([2.0, *(-t for t in looseness_terms(*loosest))])
    return kappa, lazy_kappa, gap, margin, attaining, holds, fragile, True


def _scaled(factor: float, x: float) -> float:
    """factor * x, but never 0 for x != 0: a sign must not be lost to underflow."""
    return math.copysign(max(factor * abs(x), math.ulp(0.0) if x else 0.0), x)


def _sign_of_sum(plus: list[float], minus: list[float]) -> float:
    """A number with the sign of sum(plus) - sum(minus): fsum rounds the exact sum once, which keeps its sign."""
    return math.fsum([*plus, *(-t for t in minus)])
