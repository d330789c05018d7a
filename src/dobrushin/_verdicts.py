"""Verdicts from the pairs that a scan found: their numbers in compensated arithmetic, and near-ties told apart."""

from __future__ import annotations

import numpy as np
from numba import njit

from dobrushin._kernels import overlap
from dobrushin._scan import contenders, scan_pairs

__all__ = ["VERDICT", "judge", "verdicts_of_pairs"]

# What `equality` says of a matrix; `settled` unless it hangs on distances that compensated sums do not tell apart.
VERDICT = np.dtype(
    [
        ("kappa", np.float64),
        ("lazy_kappa", np.float64),
        ("gap", np.float64),
        ("margin", np.float64),
        ("pair", np.int64, 2),
        ("holds", np.bool_),
        ("fragile", np.bool_),
        ("settled", np.bool_),
    ]
)


@njit(nogil=True, cache=True)
def _add(high, low, x):
    """Add x to the unevaluated sum high + low (Knuth's two-sum: no rounding error is lost to first order)."""
    s = high + x
    t = s - high
    return s, low + ((high - (s - t)) + (x - t))


@njit(nogil=True, cache=True)
def _precise_l1(M, i, j):
    """The L1 distance of two rows as an unevaluated sum; even columns and odd ones are added side by side."""
    n = M.shape[1]
    high, low, other_high, other_low = 0.0, 0.0, 0.0, 0.0
    for k in range(0, n - 1, 2):
        a, b = max(M[i, k], M[j, k]), min(M[i, k], M[j, k])
        d = a - b
        high, low = _add(high, low + ((a - d) - b), d)  # what d lacks is exact, since a >= b >= 0 (Dekker)
        a, b = max(M[i, k + 1], M[j, k + 1]), min(M[i, k + 1], M[j, k + 1])
        d = a - b
        other_high, other_low = _add(other_high, other_low + ((a - d) - b), d)
    if n % 2:
        a, b = max(M[i, n - 1], M[j, n - 1]), min(M[i, n - 1], M[j, n - 1])
        d = a - b
        high, low = _add(high, low + ((a - d) - b), d)
    high, low = _add(high, low, other_high)
    return high, low + other_low


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
def _precise_error(n):
    """Bound on the error of `_precise_l1`, and of sums of two such: that of compensated summation (Ogita, Rump and Oishi
    2005, proposition 4.5, without the last rounding) of at most 4 n + 16 terms that sum to at most 8 in absolute value.
    """
    return 8.0 * ((4 * n + 16) * 2.0**-53) ** 2


@njit(nogil=True, cache=True)
def _verdict(M, s, error, v):
    gi, gj, oi, oj = s.good_pair[0], s.good_pair[1], s.other_pair[0], s.other_pair[1]
    good = good_low = other = other_low = 0.0
    if gi >= 0:
        good, good_low = _precise_l1(M, gi, gj)
    if oi >= 0:
        other, other_low = _precise_l1(M, oi, oj)
    told_apart = True
    if gi >= 0 and oi >= 0:
        high, low = _add(good, good_low, -other)
        v.margin = 0.5 * (high + (low - other_low))
        holds = v.margin >= 0.0
        told_apart = abs(v.margin) > _precise_error(M.shape[0])
    else:
        holds = oi < 0
        v.margin = np.inf if holds else -np.inf
    told_apart &= not abs(s.good - s.good_second) <= 2 * error and not abs(s.other - s.other_second) <= 2 * error
    v.holds, v.fragile = holds, s.fragile
    if holds:
        v.kappa = 0.5 * (good + good_low)
        v.pair[0], v.pair[1] = gi, gj
        v.gap, v.lazy_kappa = 0.0, 0.5 * (1.0 + v.kappa)
    else:
        v.kappa = 0.5 * (other + other_low)
        v.pair[0], v.pair[1] = oi, oj
        # 4 gap = 2 kappa - 2 TV_pq + 4 deficit_pq, and 4 kappa(lazy) = 2 + 2 TV_pq - 4 deficit_pq
        p, q = s.loosest_pair[0], s.loosest_pair[1]
        if p < 0:  # the scan took it for a matrix that holds
            v.settled = False
            return
        told_apart &= not abs(s.looseness - s.looseness_second) <= 2 * error
        far, far_low, high, low = other, other_low, 0.0, 0.0
        if p != oi or q != oj:  # else the distances cancel, and the gap may be tiny
            far, far_low = _precise_l1(M, p, q)
            high, low = _add(other, other_low, -far)
            low -= far_low
        high, low = _add_deficit(high, low, M, p, q, 2.0)
        v.gap = max(0.25 * (high + low), 5e-324)  # positive also where it underflows
        high, low = _add(2.0, far_low, far)
        high, low = _add_deficit(high, low, M, p, q, -2.0)
        v.lazy_kappa = 0.25 * (high + low)
    v.settled = s.exact or told_apart


@njit(nogil=True, cache=True)
def _brackets(M, found):
    """(highest, floor): how far 2 TV of each contender exceeds 2 at most, and the most that one of each kind surely does.

    Rows that share next to nothing have distances of nearly 2, and 2 TV - 2 is what their sums exceed 1 by, less twice
    what they share: both small, so that double precision is enough.  Kind 2 is not bracketed.
    """
    n, count = M.shape[0], found.shape[0]
    highest, floor = np.full(count, np.inf), np.full(3, -np.inf)
    if count <= n:  # the sums would cost more than they save
        return highest, floor
    excess = np.empty(n)
    for i in range(n):
        high = low = 0.0
        for k in range(n):
            high, low = _add(high, low, M[i, k])
        excess[i] = (high - 1.0) + low
    for c in range(count):
        kind, i, j = found[c, 0], found[c, 1], found[c, 2]
        if kind == 2:
            continue
        shared = 2.0 * overlap(M[i], M[j])
        value = excess[i] + excess[j] - shared
        error = 2.0**-51 * (abs(excess[i]) + abs(excess[j])) + (n + 4) * 2.0**-52 * shared + 2 * _precise_error(n)
        highest[c] = value + error
        floor[kind] = max(floor[kind], value - error)
    return highest, floor


@njit(nogil=True, cache=True)
def _tell_apart(M, error, s):
    """Set the best pairs by compensated distances, and the second best to where those are no ties."""
    found = contenders(M, error, s.good <= s.other + 2 * error)
    highest, floor = _brackets(M, found)
    for kind in range(3):
        best, best_low, second, p, q = -np.inf, 0.0, -np.inf, -1, -1
        for c in range(found.shape[0]):
            if found[c, 0] != kind or highest[c] < floor[kind]:
                continue
            i, j = found[c, 1], found[c, 2]
            high, low = _precise_l1(M, i, j)
            if kind == 2:
                high, low = _add_deficit(high, low, M, i, j, -2.0)
            ahead = (high - best) + (low - best_low)
            if ahead > 0.0:
                second, best, best_low, p, q = -ahead, high, low, i, j
            else:
                second = max(second, ahead)
        alone = second < -2 * _precise_error(M.shape[0])
        if kind == 1 and p >= 0:
            s.good_pair[0], s.good_pair[1], s.good_second = p, q, -np.inf if alone else s.good
        elif kind == 0 and p >= 0:
            s.other_pair[0], s.other_pair[1], s.other_second = p, q, -np.inf if alone else s.other
        elif p >= 0:
            s.loosest_pair[0], s.loosest_pair[1], s.looseness_second = p, q, np.inf if alone else s.looseness


@njit(nogil=True, cache=True)
def verdicts_of_pairs(A, scan, error, out):
    """Fill one VERDICT record a matrix from the pairs found, in compensated arithmetic and a fixed order.

    The results do not depend on how the scan added up its distances: machines agree to the last bit.
    """
    for b in range(A.shape[0]):
        M, s, v = A[b], scan[b], out[b]
        _verdict(M, s, error, v)
        if not v.settled:
            _tell_apart(M, error, s)
            _verdict(M, s, error, v)


@njit(nogil=True, cache=True)
def judge(A, rounding, slack, error, scan, out):
    """Fill one VERDICT record a matrix, and one SCAN record."""
    scan_pairs(A, rounding, slack, error, scan)
    verdicts_of_pairs(A, scan, error, out)
