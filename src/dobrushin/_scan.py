"""Of every class of pairs of tokens, the one that matters: a pass over all pairs of rows of every matrix of a batch.

What the classes are for is said in `equality`; `_verdicts` takes the pairs from here.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dobrushin._few import FEW, scan_in_lanes
from dobrushin._kernels import l1, on_grid, sum_and_faults
from dobrushin._lanes import (
    INTEGERS,
    at_least,
    choose,
    integers_from,
    maximum,
    minus,
    plus,
    read_integers,
    read_truths,
    spread_integer,
    write_integers,
)
from dobrushin._overlaps import SCALE, keep_mutual, overlaps, padded, quantize, quantize_finer

__all__ = ["SCAN", "contenders", "scan_in_integers", "scan_pairs"]

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


@njit(nogil=True, cache=True)
def _scratch(n):
    """Buffers for one matrix at a time."""
    rows, columns = padded(n)
    common = np.empty((rows, rows), np.uint16)
    sums = np.full(rows, -(2**24), np.int32)  # so the distance to a row that is not there is below any other
    return np.zeros((rows, columns), np.uint16), common, sums, np.zeros((rows, rows + 64), np.bool_)


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
def _largest_integers(n, common, sums, good, tops):
    """Fill tops[kind, j] with the largest integer distance of row j to a row before it that makes a pair of this kind.

    Kind 1 are good pairs, kind 0 all others; -1 where there is none.
    """
    nothing = spread_integer(-1)
    for start in range(0, sums.shape[0], INTEGERS):
        later, own = integers_from(start), read_integers(sums, start)
        best = best_other = nothing
        for i in range(min(start + INTEGERS - 1, n)):
            shared = read_integers(common, i * common.shape[1] + start)
            value = minus(plus(own, spread_integer(sums[i])), plus(shared, shared))
            value = choose(at_least(spread_integer(i), later), nothing, value)
            is_good = read_truths(good, i * good.shape[1] + start)
            best, best_other = (
                maximum(best, choose(is_good, value, nothing)),
                maximum(best_other, choose(is_good, nothing, value)),
            )
        write_integers(tops, start, best_other)
        write_integers(tops, tops.shape[1] + start, best)


_MOST = 2**16 - 1


@njit(nogil=True, cache=True)
def _finer(n):
    """For `_cut`: the finer scale and the largest sum of a row, integers at that scale, and their overlaps."""
    rows, columns = padded(n)
    return np.zeros(2), np.zeros((rows, columns), np.uint16), np.empty((rows, rows), np.uint16)


@njit(nogil=True, cache=True)
def _cut(M, least, error, state, q, shared):
    """No pair i < j with shared[i, j] above this has a floating-point TV of at least `least`.

    Heads that give nearly all weight to one token, to another one for every row, have all pairs at distances so near 1
    that the integers rule out none; at a scale that suits 1 - least they do.
    """
    if least < 0.98:  # hardly finer: nothing is ruled out
        return _MOST
    rest = max(1.0 - least, error)
    if not 2.0**8 <= state[0] * rest <= 2.0**14:  # too coarse for what is left, or too fine: sums stop at _MOST
        state[0], state[1] = 2.0**13 / rest, 0.0
        for i in range(M.shape[0]):
            state[1] = max(state[1], sum_and_faults(M[i])[0])
        quantize_finer(M, state[0], q)
        overlaps(q, shared)
    # A TV is at most half of two rows' sums less what they share; 3 error: of a row's sum, of the TV, and one to spare.
    return min(_MOST, np.int64(np.floor((state[1] - least + 3 * error) * state[0])) + 1)


@njit(nogil=True, cache=True)
def _best_pair(M, common, sums, good, kind, tops, error, finely):
    """(TV, second TV, i, j) of the class of pairs with good[i, j] == kind, by floating-point TV; the first of several.

    Only pairs whose integer distance comes near the largest one are looked at: a TV of at least t - 2 error, where
    t is the largest, implies an integer distance above 2 SCALE t - n - 2 (see `_overlaps`; 6 error SCALE < 1).
    """
    n = M.shape[0]
    state, finer, shared = finely
    looked, again, cut = 0, n, _MOST  # where few pairs are looked at, a finer scale would cost more than it saves
    best, second, p, q = -np.inf, -np.inf, -1, -1
    top = tops[kind].max()
    if top < 0:
        return best, second, p, q
    needed = top - 2 * (n + 2)
    for j in range(n):
        if tops[kind, j] < needed:
            continue
        for i in range(j):
            if np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])) < needed or good[i, j] != kind:
                continue
            looked += 1
            if looked == again:
                cut, again = _cut(M, best - 2 * error, error, state, finer, shared), 2 * again
            if shared[i, j] > cut:
                continue
            tv = 0.5 * l1(M[i], M[j])
            needed = max(needed, np.int64(np.floor(2 * SCALE * tv)) - (n + 2))
            if tv > best or (tv == best and i < p):
                best, second, p, q = tv, best, i, j
            elif tv > second:
                second = tv
    return best, second, p, q


@njit(nogil=True, cache=True)
def looseness(M, i, j, tv):
    return 0.5 * (max(M[j, i] - M[i, i], 0.0) + max(M[i, j] - M[j, j], 0.0)) - 0.5 * tv


@njit(nogil=True, cache=True)
def _loosest_pair(M, common, sums, tops, known, error, finely):
    """(looseness, second, i, j) of the smallest deficit - TV/2 of all pairs; `known` is an upper bound of it."""
    n = M.shape[0]
    state, finer, shared = finely
    looked, again, cut = 0, n, _MOST
    best, second, p, q = np.inf, np.inf, -1, -1
    bound = known
    needed = np.int64(np.floor(-4 * SCALE * bound)) - (n + 2)  # deficits are not negative
    for j in range(n):
        if max(tops[0, j], tops[1, j]) < needed:
            continue
        for i in range(j):
            distance = np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j]))
            if distance < needed or looseness(M, i, j, (distance + (n + 2)) / (2 * SCALE)) > bound:
                continue
            looked += 1
            if looked == again:
                cut, again = _cut(M, -2 * bound, error, state, finer, shared), 2 * again
            if shared[i, j] > cut:
                continue
            value = looseness(M, i, j, 0.5 * l1(M[i], M[j]))
            bound = min(bound, value)
            if value < best or (value == best and i < p):
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
def _fragile(M, common, sums, tops, top, holds, rounding, slack, error, finely):
    """Whether a pair that is not surely of the class that has the largest TV comes within `slack` of it."""
    n = M.shape[0]
    state, finer, shared = finely
    looked, again, cut = 0, n, _MOST
    needed = np.int64(np.floor(2 * SCALE * (top - slack))) - (n + 2)
    for j in range(n):
        if max(tops[0, j], tops[1, j]) < needed:
            continue
        for i in range(j):
            if np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])) < needed or _sure(M, i, j, holds, rounding):
                continue
            looked += 1
            if looked == again:
                cut, again = _cut(M, top - slack, error, state, finer, shared), 2 * again
            if shared[i, j] > cut:
                continue
            if 0.5 * l1(M[i], M[j]) + slack >= top:
                return True
    return False


@njit(nogil=True, cache=True)
def scan_in_integers(A, rounding, slack, error, out):
    """Fill one SCAN record a matrix: the best pairs of each class by floating-point TV."""
    n = A.shape[1]
    q, common, sums, good = _scratch(n)
    tops, diagonal = np.empty((2, len(sums)), np.int32), np.empty(n)
    finely = _finer(n)
    for b in range(A.shape[0]):
        M, r = A[b], out[b]
        finely[0][:] = 0.0
        quantize(M, q, sums)
        overlaps(q, common)
        _goodness(M, diagonal, good)
        _largest_integers(n, common, sums, good, tops)
        r.good, r.good_second, r.good_pair[0], r.good_pair[1] = _best_pair(M, common, sums, good, 1, tops, error, finely)
        r.other, r.other_second, r.other_pair[0], r.other_pair[1] = _best_pair(M, common, sums, good, 0, tops, error, finely)
        holds = r.good >= r.other
        r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = np.inf, np.inf, -1, -1
        if not holds:
            known = min(-0.5 * r.good, looseness(M, r.other_pair[0], r.other_pair[1], r.other)) + 2 * error
            r.looseness, r.looseness_second, r.loosest_pair[0], r.loosest_pair[1] = _loosest_pair(
                M, common, sums, tops, known, error, finely
            )
        r.fragile = _fragile(M, common, sums, tops, r.good if holds else r.other, holds, rounding, slack, error, finely)
        r.exact = on_grid(M)


@njit(nogil=True, cache=True)
def scan_pairs(A, rounding, slack, error, out):
    """Fill one SCAN record a matrix, the quicker way for its size."""
    if A.shape[1] <= FEW:
        scan_in_lanes(A, rounding, slack, out)
    else:
        scan_in_integers(A, rounding, slack, error, out)


@njit(nogil=True, cache=True)
def contenders(M, error, with_looseness):
    """The pairs that come within 2 error of an extreme, one (kind, i, j) a row.

    Kind 1: of the largest TV of good pairs; 0: of the largest of the others; 2: of the least deficit - TV/2 of all.
    """
    n, window = M.shape[0], 2 * error
    q, common, sums, good = _scratch(n)
    tops, finely = np.empty((2, len(sums)), np.int32), _finer(n)
    quantize(M, q, sums)
    overlaps(q, common)
    _goodness(M, np.empty(n), good)
    _largest_integers(n, common, sums, good, tops)
    best_good, _, gi, _ = _best_pair(M, common, sums, good, 1, tops, error, finely)
    best_other, _, oi, oj = _best_pair(M, common, sums, good, 0, tops, error, finely)
    limits = max(best_other - window, -1.0), max(best_good - window, -1.0)  # -1 where there is no such pair
    bound = -1.0  # less than any deficit - TV/2
    if with_looseness:
        known = -0.5 * best_good
        if oi >= 0:
            known = min(known, looseness(M, oi, oj, best_other))
        bound = _loosest_pair(M, common, sums, tops, known + window, error, finely)[0] + window
    needed = np.empty(3, np.int64)
    for kind, limit in enumerate((limits[0], limits[1], -2 * bound)):
        needed[kind] = np.int64(np.floor(2 * SCALE * limit)) - (n + 2)
    least = limits[0] if oi >= 0 else limits[1]
    if gi >= 0:
        least = min(least, limits[1])
    if with_looseness:
        least = min(least, -2 * bound)
    state, finer, shared = finely
    looked, again, cut = 0, n, _MOST
    found = [(0, 0, 0)]
    for i in range(n):
        for j in range(i + 1, n):
            distance, kind = np.int32(sums[i] + sums[j] - 2 * np.int32(common[i, j])), int(good[i, j])
            far = distance >= needed[kind]
            loose = distance >= needed[2] and looseness(M, i, j, (distance + (n + 2)) / (2 * SCALE)) <= bound
            if not (far or loose):
                continue
            looked += 1
            if looked == again:
                cut, again = _cut(M, least, error, state, finer, shared), 2 * again
            if shared[i, j] > cut:
                continue
            tv = 0.5 * l1(M[i], M[j])
            if far and tv >= limits[kind]:
                found.append((kind, i, j))
            if loose and looseness(M, i, j, tv) <= bound:
                found.append((2, i, j))
    return np.array(found)[1:]
