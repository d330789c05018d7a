"""Single heads' attention, read once: checks, the sum over heads, and the matrices restricted to content tokens.

The numbers are to the last bit those of :func:`dobrushin.stochastic.restricted` on float64 copies, whose row sums
NumPy adds up pairwise.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["read_heads"]


@njit(nogil=True, cache=True)
def _block_sum(x, start, stop):
    """The sum of at most 128 numbers in NumPy's order: every eighth one, then in pairs, then what is left over."""
    size = stop - start
    if size < 8:
        total = 0.0
        for k in range(start, stop):
            total += x[k]
        return total
    r0, r1, r2, r3 = x[start], x[start + 1], x[start + 2], x[start + 3]
    r4, r5, r6, r7 = x[start + 4], x[start + 5], x[start + 6], x[start + 7]
    whole = start + size - size % 8
    for k in range(start + 8, whole, 8):
        r0, r1, r2, r3 = r0 + x[k], r1 + x[k + 1], r2 + x[k + 2], r3 + x[k + 3]
        r4, r5, r6, r7 = r4 + x[k + 4], r5 + x[k + 5], r6 + x[k + 6], r7 + x[k + 7]
    total = ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + (r6 + r7))
    for k in range(whole, stop):
        total += x[k]
    return total


@njit("float64(float64[::1], int64, int64)", nogil=True, cache=True)
def _pairwise_sum(x, start, stop):
    """The sum of x[start:stop] in NumPy's order: halves of whole eights, down to blocks of 128."""
    size = stop - start
    if size <= 128:
        return _block_sum(x, start, stop)
    half = size // 2
    middle = start + half - half % 8
    return _pairwise_sum(x, start, middle) + _pairwise_sum(x, middle, stop)


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
def _widened(x, row):
    """Fill row with x in float64; its sum, and how many entries are not in [0, 1]."""
    total, faults = 0.0, np.int64(0)
    for k in range(row.shape[0]):
        v = np.float64(x[k])
        row[k] = v
        total += v
        faults += not (v >= 0.0 and v <= 1.0)  # also true for NaN
    return total, faults


@njit(nogil=True, cache=True, error_model="numpy")
def _divided(x, divisor, out):
    for k in range(out.shape[0]):
        out[k] = x[k] / divisor


@njit(nogil=True, cache=True)
def read_heads(weights, tokens, tolerance, total, content):
    """Add heads (h, N, N) to total (n, n), restrict them to m tokens into content (h, m, m); whether all is well.

    Of N tokens the first n count, the others are padding.  Not well are an entry outside [0, 1], a row that sums to 1 not
    within the tolerance, and one without weight on the kept tokens.  No token to keep leaves content as it is.
    """
    n, m = total.shape[0], tokens.shape[0]
    row, kept = np.empty(n), np.empty(m)
    well = True
    for h in range(weights.shape[0]):
        place = 0  # of the next kept row
        for i in range(n):
            mass, faults = _widened(weights[h, i], row)
            well &= faults == 0 and mass <= 1.0 + tolerance and mass >= 1.0 - tolerance
            for k in range(n):
                total[i, k] += row[k]
            if place == m or tokens[place] != i:
                continue
            for k in range(m):
                kept[k] = row[tokens[k]]
            mass = _pairwise_sum(kept, 0, m)
            well &= mass != 0.0
            _divided(kept, mass, content[h, place])
            place += 1
    return well
