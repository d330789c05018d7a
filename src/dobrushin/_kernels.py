"""Compiled loops over the entries and the rows of a matrix, and threads to run such on shares of a batch.

Compiled functions take float64 matrices of shape (b, n, n) that were checked before, and release the GIL; `run`
spreads a batch over the cores with threads (not with numba's own pool, which does not survive a fork).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
from numba import njit

__all__ = ["first_fault", "l1", "on_grid", "overlap", "run", "sum_and_faults", "tv_matrix"]

# Row sums and distances may be added in any order: `reassoc` lets the compiler use vector instructions, and the
# error bound of `equality` holds for every order.  Such functions call no others: numba would compile those so too.
_ANY_ORDER = {"reassoc", "nsz"}


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def sum_and_faults(x):
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
            total, faults = sum_and_faults(A[b, i])
            if faults == 0 and total <= 1.0 + tolerance and (substochastic or total >= 1.0 - tolerance):
                continue
            out[b, 0] = i
            for k in range(n):
                if not (A[b, i, k] >= 0.0 and A[b, i, k] <= 1.0):
                    out[b, 1] = k
                    break
            break


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def l1(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += abs(x[k] - y[k])
    return total


@njit(nogil=True, cache=True, fastmath=_ANY_ORDER)
def overlap(x, y):
    """The sum of min(x_k, y_k)."""
    total = 0.0
    for k in range(x.shape[0]):
        total += min(x[k], y[k])
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
def on_grid(M):
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
