"""Compiled loops over pairs of rows.  The mathematics is in the modules that call them.

All take float64 matrices of shape (b, n, n) that were checked before.  They release the GIL; `run` spreads a
batch over the cores with threads (not with numba's own pool, which does not survive a fork).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit

__all__ = ["SCAN", "VALUES", "first_fault", "run", "scan_pairs", "tv_matrix", "values_of_pairs"]

# Row sums and distances may be added in any order: `reassoc` lets the compiler use vector instructions, and the
# error bound of `equality` holds for every order.
_ANY_ORDER = {"reassoc", "nsz"}

# One record a matrix.  Of each class of pairs: the largest TV, the second largest, and the (lexicographically
# first) pair that has the largest; -inf and (-1, -1) where the class is empty.
SCAN = np.dtype(
    [
        ("exact", np.bool_),  # the matrix lies on a grid on which sums of doubles are exact
        ("good", np.float64),
        ("good_second", np.float64),
        ("good_pair", np.int64, 2),
        ("other", np.float64),
        ("other_second", np.float64),
        ("other_pair", np.int64, 2),
        ("surely_good", np.float64),  # largest TV over the pairs that stay good under rounding ...
        ("surely_other", np.float64),  # ... that stay not good ...
        ("unsure", np.float64),  # ... and over the rest
        ("looseness", np.float64),  # min of deficit - TV/2
        ("looseness_second", np.float64),
        ("loosest_pair", np.int64, 2),
    ]
)

VALUES = np.dtype([("kappa", np.float64), ("margin", np.float64), ("gap", np.float64), ("lazy_kappa", np.float64)])


@njit(nogil=True, cache=True)
def first_fault(A, tolerance, substochastic):
    """(matrix, row, column) of the first bad entry, column -1 for a bad row sum, (-1, -1, -1) if there is none."""
    n = A.shape[1]
    for b in range(A.shape[0]):
        for i in range(n):
            total = 0.0
            for k in range(n):
                if not (A[b, i, k] >= 0.0 and A[b, i, k] <= 1.0):  # also true for NaN
                    return b, i, k
                total += A[b, i, k]
            if total > 1.0 + tolerance or (total < 1.0 - tolerance and not substochastic):
                return b, i, -1
    return -1, -1, -1


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _l1(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += abs(x[k] - y[k])
    return total


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def tv_matrix(A, out):
    """Total-variation distance of every pair of rows, symmetric, zero diagonal."""
    n = A.shape[1]
    for b in range(A.shape[0]):
        for i in range(n):
            out[b, i, i] = 0.0
            for j in range(i + 1, n):
                out[b, i, j] = out[b, j, i] = 0.5 * _l1(A[b, i], A[b, j])


@njit(nogil=True, cache=True)
def _on_grid(M):
    """Whether all entries are multiples of 2^-51: then sums of differences, which are below 4, are exact.

    Not of 2^-52: rows may sum to a little more than 1, and doubles above 2 are multiples of 2^-51 only.
    """
    for i in range(M.shape[0]):
        for k in range(M.shape[1]):
            scaled = M[i, k] * 2.0**51
            if scaled != np.floor(scaled):
                return False
    return True


@njit(nogil=True, cache=True)
def scan_pairs(A, rounding, out):
    """Fill one SCAN record a matrix: the best pairs of each class by floating-point TV."""
    n = A.shape[1]
    for b in range(A.shape[0]):
        M = A[b]
        good = good_second = other = other_second = surely_good = surely_other = unsure = -np.inf
        loose = loose_second = np.inf
        gi = gj = oi = oj = li = lj = -1
        for i in range(n):
            for j in range(i + 1, n):
                tv = 0.5 * _l1(M[i], M[j])
                a_ii, a_ji, a_jj, a_ij = M[i, i], M[j, i], M[j, j], M[i, j]
                if a_ii >= a_ji and a_jj >= a_ij:
                    if tv > good:
                        good_second, good, gi, gj = good, tv, i, j
                    elif tv > good_second:
                        good_second = tv
                elif tv > other:
                    other_second, other, oi, oj = other, tv, i, j
                elif tv > other_second:
                    other_second = tv
                low, high = 1.0 - rounding, 1.0 + rounding
                if a_ii * low >= a_ji * high and a_jj * low >= a_ij * high:
                    surely_good = max(surely_good, tv)
                elif a_ii * high < a_ji * low or a_jj * high < a_ij * low:
                    surely_other = max(surely_other, tv)
                else:
                    unsure = max(unsure, tv)
                g = 0.5 * (max(a_ji - a_ii, 0.0) + max(a_ij - a_jj, 0.0)) - 0.5 * tv
                if g < loose:
                    loose_second, loose, li, lj = loose, g, i, j
                elif g < loose_second:
                    loose_second = g
        r = out[b]
        r.exact = _on_grid(M)
        r.good, r.good_second, r.good_pair[0], r.good_pair[1] = good, good_second, gi, gj
        r.other, r.other_second, r.other_pair[0], r.other_pair[1] = other, other_second, oi, oj
        r.surely_good, r.surely_other, r.unsure = surely_good, surely_other, unsure
        r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = loose, loose_second, li, lj


@njit(nogil=True, cache=True)
def _add(high, low, x):
    """Add x to the unevaluated sum high + low (Knuth's two-sum: no rounding error is lost to first order)."""
    s = high + x
    t = s - high
    return s, low + ((high - (s - t)) + (x - t))


@njit(nogil=True, cache=True)
def _add_l1(high, low, x, y, sign):
    for k in range(x.shape[0]):
        a, b = (x[k], y[k]) if x[k] >= y[k] else (y[k], x[k])
        high, low = _add(high, low, sign * a)
        high, low = _add(high, low, -sign * b)
    return high, low


@njit(nogil=True, cache=True)
def _add_deficit(high, low, M, i, j, scale):
    """Add scale times 2 deficit_ij = (A_ji - A_ii)_+ + (A_ij - A_jj)_+; scale is a power of two."""
    if M[j, i] > M[i, i]:
        high, low = _add(high, low, scale * M[j, i])
        high, low = _add(high, low, -scale * M[i, i])
    if M[i, j] > M[j, j]:
        high, low = _add(high, low, scale * M[i, j])
        high, low = _add(high, low, -scale * M[j, j])
    return high, low


@njit(nogil=True, cache=True)
def values_of_pairs(A, scan, out):
    """Fill one VALUES record a matrix from the pairs found, in compensated arithmetic and a fixed order.

    The results do not depend on how the scan added up its distances: machines agree to the last bit.
    """
    for b in range(A.shape[0]):
        M = A[b]
        s = scan[b]
        gi, gj, oi, oj = s.good_pair[0], s.good_pair[1], s.other_pair[0], s.other_pair[1]
        p, q = s.loosest_pair[0], s.loosest_pair[1]
        holds = oi < 0 or (gi >= 0 and s.good >= s.other)
        ki, kj = (gi, gj) if holds else (oi, oj)
        high, low = _add_l1(0.0, 0.0, M[ki], M[kj], 1.0)
        kappa = 0.5 * (high + low)
        out[b].kappa = kappa
        if gi >= 0 and oi >= 0:
            high, low = _add_l1(0.0, 0.0, M[gi], M[gj], 1.0)
            high, low = _add_l1(high, low, M[oi], M[oj], -1.0)
            out[b].margin = 0.5 * (high + low)
        else:
            out[b].margin = np.inf if holds else -np.inf
        if holds:
            out[b].gap = 0.0
            out[b].lazy_kappa = 0.5 * (1.0 + kappa)
        else:
            # 4 gap = 2 kappa - 2 TV_pq + 4 deficit_pq, and 4 kappa(lazy) = 2 + 2 TV_pq - 4 deficit_pq
            high = low = 0.0
            if p != ki or q != kj:  # else the distances cancel, and the gap may be tiny
                high, low = _add_l1(high, low, M[ki], M[kj], 1.0)
                high, low = _add_l1(high, low, M[p], M[q], -1.0)
            high, low = _add_deficit(high, low, M, p, q, 2.0)
            out[b].gap = max(0.25 * (high + low), 5e-324)  # positive also where it underflows
            high, low = _add_l1(2.0, 0.0, M[p], M[q], 1.0)
            high, low = _add_deficit(high, low, M, p, q, -2.0)
            out[b].lazy_kappa = 0.25 * (high + low)


def run(kernel: Callable[..., Any], matrices: np.ndarray, *parameters: Any, out: np.ndarray) -> None:
    """Call ``kernel(matrices, *parameters, out)`` on shares of the batch, one share a core.

    Array parameters are sliced with the batch, scalars are passed as they are.
    """

    def share(start: int, stop: int) -> None:
        chosen = (p[start:stop] if isinstance(p, np.ndarray) else p for p in parameters)
        kernel(matrices[start:stop], *chosen, out[start:stop])

    count, n = matrices.shape[:2]
    workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, count)
    if workers <= 1 or count * n**3 < 1_000_000:  # less than a millisecond: threads would cost more
        share(0, count)
        return
    bounds = [count * k // workers for k in range(workers + 1)]
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(share, bounds[:-1], bounds[1:]))
