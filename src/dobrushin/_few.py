"""The scan of pairs for few tokens: eight matrices at a time, one in each lane of a vector, in float64."""

from __future__ import annotations

import numpy as np
from numba import njit

from dobrushin._kernels import on_grid
from dobrushin._lanes import (
    LANES,
    at_least,
    both,
    choose,
    distance,
    maximum,
    minimum,
    minus,
    plus,
    read,
    spread,
    times,
    turn,
    write,
)

__all__ = ["FEW", "scan_in_lanes"]

FEW = 24
"""Tokens up to which this takes less time than the filter in integers."""

_GOOD, _OTHER, _LOOSE, _UNSURE = 0, 3, 6, 9  # rows of what is found, of the largest, the second and the pair
_FOUND = 11


@njit(nogil=True, cache=True)
def _into_lanes(A, first, T):
    """T[i n + k, l] = A[first + l, i, k]; beyond the last matrix, that one again."""
    count, m = A.shape[0], A.shape[1] * A.shape[2]
    rows = A.reshape(count, m)
    whole = m // LANES * LANES if first + LANES <= count else 0
    for r in range(0, whole, LANES):
        turn(rows, first, r, T)
    for l in range(LANES):
        for r in range(whole, m):
            T[r, l] = rows[min(first + l, count - 1), r]


@njit(nogil=True, cache=True)
def _best_pairs(T, n, rounding, found):
    """Fill found with the largest TV of good pairs, the second largest, and the pair as 4096 i + j; the same of the
    others, and of TV/2 - deficit of all; then the largest TV of pairs that are not surely good, not surely other.
    """
    low, high = spread(1.0 - rounding), spread(1.0 + rounding)
    nothing, half, zero = spread(-np.inf), spread(0.5), spread(0.0)
    good = good_second = other = other_second = loose = loose_second = maybe_other = maybe_good = nothing
    good_pair = other_pair = loose_pair = spread(-1.0)
    for i in range(n):
        a_ii = read(T, i * n + i)
        for j in range(i + 1, n):
            tv = zero
            for k in range(n):
                tv = plus(tv, distance(read(T, i * n + k), read(T, j * n + k)))
            tv = times(half, tv)
            pair = spread(np.float64(4096 * i + j))
            a_ji, a_jj, a_ij = read(T, j * n + i), read(T, j * n + j), read(T, i * n + j)

            is_good = both(at_least(a_ii, a_ji), at_least(a_jj, a_ij))
            value = choose(is_good, tv, nothing)
            good_pair = choose(at_least(good, value), good_pair, pair)
            good_second, good = maximum(good_second, minimum(good, value)), maximum(good, value)
            value = choose(is_good, nothing, tv)
            other_pair = choose(at_least(other, value), other_pair, pair)
            other_second, other = maximum(other_second, minimum(other, value)), maximum(other, value)
            deficit = times(half, plus(maximum(minus(a_ji, a_ii), zero), maximum(minus(a_ij, a_jj), zero)))
            value = minus(times(half, tv), deficit)
            loose_pair = choose(at_least(loose, value), loose_pair, pair)
            loose_second, loose = maximum(loose_second, minimum(loose, value)), maximum(loose, value)

            sure = both(at_least(times(a_ii, low), times(a_ji, high)), at_least(times(a_jj, low), times(a_ij, high)))
            maybe_other = maximum(maybe_other, choose(sure, nothing, tv))
            maybe = both(at_least(times(a_ii, high), times(a_ji, low)), at_least(times(a_jj, high), times(a_ij, low)))
            maybe_good = maximum(maybe_good, choose(maybe, tv, nothing))
    write(found, _GOOD, good)
    write(found, _GOOD + 1, good_second)
    write(found, _GOOD + 2, good_pair)
    write(found, _OTHER, other)
    write(found, _OTHER + 1, other_second)
    write(found, _OTHER + 2, other_pair)
    write(found, _LOOSE, loose)
    write(found, _LOOSE + 1, loose_second)
    write(found, _LOOSE + 2, loose_pair)
    write(found, _UNSURE, maybe_good)
    write(found, _UNSURE + 1, maybe_other)


@njit(nogil=True, cache=True)
def _write_pair(pair, number):
    pair[0], pair[1] = (int(number) >> 12, int(number) & 4095) if number >= 0 else (-1, -1)


@njit(nogil=True, cache=True)
def scan_in_lanes(A, rounding, slack, out):
    """Fill one record a matrix, as `scan_in_integers` does."""
    count, n = A.shape[0], A.shape[1]
    T, found = np.empty((n * n, LANES)), np.empty((_FOUND, LANES))
    for first in range(0, count, LANES):
        _into_lanes(A, first, T)
        _best_pairs(T, n, rounding, found)
        for l in range(min(LANES, count - first)):
            r = out[first + l]
            r.good, r.good_second = found[_GOOD, l], found[_GOOD + 1, l]
            r.other, r.other_second = found[_OTHER, l], found[_OTHER + 1, l]
            _write_pair(r.good_pair, found[_GOOD + 2, l])
            _write_pair(r.other_pair, found[_OTHER + 2, l])
            holds = r.good >= r.other
            r.looseness, r.looseness_second = (np.inf, np.inf) if holds else (-found[_LOOSE, l], -found[_LOOSE + 1, l])
            _write_pair(r.loosest_pair, -1.0 if holds else found[_LOOSE + 2, l])
            r.fragile = found[_UNSURE + holds, l] >= max(r.good, r.other) - slack
            r.exact = on_grid(A[first + l])
