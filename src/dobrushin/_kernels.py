"""Compiled loops over pairs of rows.  The mathematics is in the modules that call them.

All take float64 matrices of shape (b, n, n) that were checked before.  They release the GIL; `run` spreads a
batch over the cores with threads (not with numba's own pool, which does not survive a fork).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from dobrushin._overlaps import SCALE, keep_mutual, overlaps, padded, quantize

__all__ = ["SCAN", "VERDICT", "contenders", "first_fault", "judge", "run", "scan_pairs", "tv_matrix", "verdicts_of_pairs"]

# Row sums and distances may be added in any order: `reassoc` lets the compiler use vector instructions, and the
# error bound of `equality` holds for every order.  Such functions call no others: numba would compile those so too.
_ANY_ORDER = {"reassoc", "nsz"}

FEW = 12
"""Tokens up to which distances in float64 take less time than the filter in integers."""

# One record a matrix.  Of each class of pairs: the largest TV, the second largest if it is nearly as large (else
# -inf), and the (lexicographically first) pair that has the largest; -inf and (-1, -1) where the class is empty.
SCAN = np.dtype(
    [
        ("good", np.float64),
        ("good_second", np.float64),
        ("good_pair", np.int64, 2),
        ("other", np.float64),
        ("other_second", np.float64),
        ("other_pair", np.int64, 2),
        ("looseness", np.float64),  # min of deficit - TV/2, where no good pair has the largest TV; else +inf
        ("looseness_second", np.float64),
        ("loosest_pair", np.int64, 2),
        ("fragile", np.bool_),
        ("exact", np.bool_),  # the matrix lies on a grid on which sums of doubles are exact
    ]
)

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


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def _sum_and_faults(x):
    """The sum of a row, and how many of its entries are not in [0, 1]."""
    total, faults = 0.0, np.int64(0)
    for k in range(x.shape[0]):
        total += x[k]
        faults += not (x[k] >= 0.0 and x[k] <= 1.0)  # also true for NaN
    return total, faults


@njit(nogil=True, cache=True)
def first_fault(A, tolerance, substochastic, out):
    """Fill (row, column) of the first bad entry of each matrix: column -1 for a bad row sum, (-1, -1) for no fault."""
    n = A.shape[1]
    for b in range(A.shape[0]):
        out[b, 0] = out[b, 1] = -1
        for i in range(n):
            total, faults = _sum_and_faults(A[b, i])
            if faults == 0 and total <= 1.0 + tolerance and (substochastic or total >= 1.0 - tolerance):
                continue
            out[b, 0] = i
            for k in range(n):
                if not (A[b, i, k] >= 0.0 and A[b, i, k] <= 1.0):
                    out[b, 1] = k
                    break
            break


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
                total = 0.0
                for k in range(n):
                    total += abs(A[b, i, k] - A[b, j, k])
                out[b, i, j] = out[b, j, i] = 0.5 * total


@njit(nogil=True, cache=True)
def _on_grid(M):
    """Whether all entries are multiples of 2^-51: then sums of differences, which are below 4, are exact.

    Not of 2^-52: rows may sum to a little more than 1, and doubles above 2 are multiples of 2^-51 only.
    """
    integers = 2.0**52  # from here to twice that, doubles are the integers
    for i in range(M.shape[0]):
        off = 0
        for k in range(M.shape[1]):
            scaled = M[i, k] * 2.0**51
            off += (scaled + integers) - integers != scaled
        if off:
            return False
    return True


@njit(nogil=True, cache=True)
def _scratch(n):
    """Buffers for one matrix at a time."""
    rows, columns = padded(n)
    common = np.empty((rows, rows), np.uint16)
    return np.zeros((rows, columns), np.uint16), common, np.empty(n, np.int32), np.zeros((rows, rows + 64), np.bool_)


@njit(nogil=True, cache=True)
def _goodness(M, diagonal, good):
    """good[i, j] for i < j: whether the pair is mutually self-dominant."""
    n = M.shape[0]
    for k in range(n):
        diagonal[k] = M[k, k]
    for i in range(n):
        for k in range(n):
            good[i, k] = diagonal[k] >= M[i, k]
    keep_mutual(good, n)


@njit(nogil=True, cache=True)
def _largest_integers(common, sums, good, tops):
    """Fill tops[i] with the largest integer distances of row i to later rows: of good pairs, of others; -1 for none."""
    n = sums.shape[0]
    for i in range(n):
        own, best, best_other = sums[i], np.int32(-1), np.int32(-1)
        shared, others, is_good = common[i, i + 1 : n], sums[i + 1 :], good[i, i + 1 : n]  # slices: indices from 0 vectorise
        for j in range(shared.shape[0]):
            distance = np.int32(own + others[j] - 2 * np.int32(shared[j]))
            mask = np.int32(-np.int32(is_good[j]))
            best = max(best, np.int32((distance & mask) | ~mask))
            best_other = max(best_other, np.int32(distance | mask))
        tops[i, 0], tops[i, 1] = best, best_other


@njit(nogil=True, cache=True)
def _best_pair(M, common, sums, good, kind, tops, column):
    """(TV, second TV, i, j) of the class of pairs with good[i, j] == kind, by floating-point TV.

    Only pairs whose integer distance comes near the largest one are looked at: a TV of at least t - 2 error, where
    t is the largest, implies an integer distance above 2 SCALE t - n - 2 (see `_overlaps`; 6 error SCALE < 1).
    """
    n = M.shape[0]
    row = np.argmax(tops[:, column])
    best, second, p, q = -np.inf, -np.inf, -1, -1
    if tops[row, column] < 0:
        return best, second, p, q
    needed = tops[row, column] - 2 * (n + 2)
    for turn in range(2):  # the most promising row first, which raises what is needed; then all, in order
        for i in range(row, row + 1) if turn == 0 else range(n):
            if tops[i, column] < needed:
                continue
            for j in range(i + 1, n):
                if np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])) < needed or good[i, j] != kind:
                    continue
                tv = 0.5 * _l1(M[i], M[j])
                needed = max(needed, np.int64(np.floor(2 * SCALE * tv)) - (n + 2))
                if turn == 0:
                    continue
                if tv > best:
                    best, second, p, q = tv, best, i, j
                elif tv > second:
                    second = tv
    return best, second, p, q


@njit(nogil=True, cache=True)
def _looseness(M, i, j, tv):
    return 0.5 * (max(M[j, i] - M[i, i], 0.0) + max(M[i, j] - M[j, j], 0.0)) - 0.5 * tv


@njit(nogil=True, cache=True)
def _loosest_pair(M, common, sums, tops, known):
    """(looseness, second, i, j) of the smallest deficit - TV/2 of all pairs; `known` is an upper bound of it."""
    n = M.shape[0]
    best, second, p, q = np.inf, np.inf, -1, -1
    bound = known
    needed = np.int64(np.floor(-4 * SCALE * bound)) - (n + 2)  # deficits are not negative
    for i in range(n):
        if max(tops[i, 0], tops[i, 1]) < needed:
            continue
        for j in range(i + 1, n):
            distance = np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j]))
            if distance < needed or _looseness(M, i, j, (distance + (n + 2)) / (2 * SCALE)) > bound:
                continue
            value = _looseness(M, i, j, 0.5 * _l1(M[i], M[j]))
            bound = min(bound, value)
            if value < best:
                best, second, p, q = value, best, i, j
            elif value < second:
                second = value
    return best, second, p, q


@njit(nogil=True, cache=True)
def _sure(M, i, j, good, rounding):
    """Whether the pair is surely good, or surely not, as asked, after a relative change of its entries by `rounding`."""
    low, high = 1.0 - rounding, 1.0 + rounding
    a_ii, a_ji, a_jj, a_ij = M[i, i], M[j, i], M[j, j], M[i, j]
    if good:
        return a_ii * low >= a_ji * high and a_jj * low >= a_ij * high
    return a_ii * high < a_ji * low or a_jj * high < a_ij * low


@njit(nogil=True, cache=True)
def _fragile(M, common, sums, tops, top, holds, rounding, slack):
    """Whether a pair that is not surely of the class that has the largest TV comes within `slack` of it."""
    n = M.shape[0]
    needed = np.int64(np.floor(2 * SCALE * (top - slack))) - (n + 2)
    for i in range(n):
        if max(tops[i, 0], tops[i, 1]) < needed:
            continue
        for j in range(i + 1, n):
            if np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])) < needed or _sure(M, i, j, holds, rounding):
                continue
            if 0.5 * _l1(M[i], M[j]) + slack >= top:
                return True
    return False


@njit(nogil=True, cache=True)
def scan_in_float64(A, rounding, slack, error, out):
    """The same as `scan_in_integers` without integers: quicker for few tokens."""
    n = A.shape[1]
    distances = np.empty((1, n, n))
    tv = distances[0]
    best, second, pairs = np.empty(2), np.empty(2), np.empty((2, 2), np.int64)  # of the others, of good pairs
    for b in range(A.shape[0]):
        M, r = A[b], out[b]
        tv_matrix(A[b : b + 1], distances)
        best[:], second[:], pairs[:] = -np.inf, -np.inf, -1
        for i in range(n):
            for j in range(i + 1, n):
                t = tv[i, j]
                kind = np.int64(M[i, i] >= M[j, i]) & np.int64(M[j, j] >= M[i, j])
                if t > best[kind]:
                    best[kind], second[kind], pairs[kind, 0], pairs[kind, 1] = t, best[kind], i, j
                else:
                    second[kind] = max(second[kind], t)
        r.good, r.good_second, r.good_pair[0], r.good_pair[1] = best[1], second[1], pairs[1, 0], pairs[1, 1]
        r.other, r.other_second, r.other_pair[0], r.other_pair[1] = best[0], second[0], pairs[0, 0], pairs[0, 1]
        holds = best[1] >= best[0]
        least, least_second, p, q = np.inf, np.inf, -1, -1
        if not holds:
            for i in range(n):
                for j in range(i + 1, n):
                    value = _looseness(M, i, j, tv[i, j])
                    if value < least:
                        least, least_second, p, q = value, least, i, j
                    else:
                        least_second = min(least_second, value)
        r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = least, least_second, p, q
        needed, fragile = max(best[0], best[1]) - slack, False
        for i in range(n):
            for j in range(i + 1, n):
                if tv[i, j] >= needed and not _sure(M, i, j, holds, rounding):
                    fragile = True
        r.fragile = fragile
        r.exact = _on_grid(M)


@njit(nogil=True, cache=True)
def scan_in_integers(A, rounding, slack, error, out):
    """Fill one SCAN record a matrix: the best pairs of each class by floating-point TV."""
    n = A.shape[1]
    q, common, sums, good = _scratch(n)
    tops, diagonal = np.empty((n, 2), np.int32), np.empty(n)
    for b in range(A.shape[0]):
        M, r = A[b], out[b]
        quantize(M, q, sums)
        overlaps(q, common)
        _goodness(M, diagonal, good)
        _largest_integers(common, sums, good, tops)
        r.good, r.good_second, r.good_pair[0], r.good_pair[1] = _best_pair(M, common, sums, good, True, tops, 0)
        r.other, r.other_second, r.other_pair[0], r.other_pair[1] = _best_pair(M, common, sums, good, False, tops, 1)
        holds = r.good >= r.other
        r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = np.inf, np.inf, -1, -1
        if not holds:
            known = min(-0.5 * r.good, _looseness(M, r.other_pair[0], r.other_pair[1], r.other)) + 2 * error
            r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = _loosest_pair(M, common, sums, tops, known)
        r.fragile = _fragile(M, common, sums, tops, r.good if holds else r.other, holds, rounding, slack)
        r.exact = _on_grid(M)


@njit(nogil=True, cache=True)
def scan_pairs(A, rounding, slack, error, out):
    """Fill one SCAN record a matrix, the quicker way for its size."""
    if A.shape[1] <= FEW:
        scan_in_float64(A, rounding, slack, error, out)
    else:
        scan_in_integers(A, rounding, slack, error, out)


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
def contenders(M, window, with_looseness):
    """The pairs within `window` of an extreme, one (kind, i, j) a row.

    Kind 1: of the largest TV of good pairs; 0: of the largest of the others; 2: of the least deficit - TV/2 of all.
    """
    n = M.shape[0]
    q, common, sums, good = _scratch(n)
    tops = np.empty((n, 2), np.int32)
    quantize(M, q, sums)
    overlaps(q, common)
    _goodness(M, np.empty(n), good)
    _largest_integers(common, sums, good, tops)
    best_good = _best_pair(M, common, sums, good, True, tops, 0)[0]
    best_other, _, oi, oj = _best_pair(M, common, sums, good, False, tops, 1)
    limits = max(best_other - window, -1.0), max(best_good - window, -1.0)  # -1 where there is no such pair
    bound = -1.0  # less than any deficit - TV/2
    if with_looseness:
        known = -0.5 * best_good
        if oi >= 0:
            known = min(known, _looseness(M, oi, oj, best_other))
        bound = _loosest_pair(M, common, sums, tops, known + window)[0] + window
    needed = np.empty(3, np.int64)
    for kind, limit in enumerate((limits[0], limits[1], -2 * bound)):
        needed[kind] = np.int64(np.floor(2 * SCALE * limit)) - (n + 2)
    found = [(0, 0, 0)]
    for i in range(n):
        for j in range(i + 1, n):
            distance, kind = np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])), int(good[i, j])
            far = distance >= needed[kind]
            loose = distance >= needed[2] and _looseness(M, i, j, (distance + (n + 2)) / (2 * SCALE)) <= bound
            if not (far or loose):
                continue
            tv = 0.5 * _l1(M[i], M[j])
            if far and tv >= limits[kind]:
                found.append((kind, i, j))
            if loose and _looseness(M, i, j, tv) <= bound:
                found.append((2, i, j))
    return np.array(found)[1:]


@njit(nogil=True, cache=True)
def _tell_apart(M, error, s):
    """Set the best pairs by compensated distances, and the second best to where those are no ties."""
    found = contenders(M, 2 * error, s.good <= s.other + 2 * error)
    for kind in range(3):
        best, best_low, second, p, q = -np.inf, 0.0, -np.inf, -1, -1
        for c in range(found.shape[0]):
            if found[c, 0] != kind:
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


@cache
def _threads(number: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(number, thread_name_prefix="dobrushin")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not survive a fork


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
    list(_threads(workers).map(share, bounds[:-1], bounds[1:]))
