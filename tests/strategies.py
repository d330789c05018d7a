"""Generators of row-stochastic matrices, rich in what goes wrong: ties, near-ties, zeros, extreme ratios."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

ULP = 2.0**-52
TINY = [0.0, 5e-324, 1e-323, 2.0**-1022, 1e-300, 2.0**-60, 2.0**-53, 2.0**-52, 2.0**-30, 0.125]


def sizes(largest: int = 6):
    return st.integers(2, largest)


@st.composite
def dyadic_row(draw, n, parts=8):
    """n multiples of 1/parts (a power of two) with sum exactly 1: any float arithmetic on them is exact."""
    cuts = sorted(draw(st.lists(st.integers(0, parts), min_size=n - 1, max_size=n - 1)))
    return np.diff([0, *cuts, parts]) / parts


@st.composite
def ratio_row(draw, n):
    """Small integers over their sum, mostly no power of two: distances tie in exact arithmetic or almost."""
    weights = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n).filter(any))
    return np.array(weights) / sum(weights)


@st.composite
def unit_row(draw, n):
    """A single 1."""
    row = np.zeros(n)
    row[draw(st.integers(0, n - 1))] = 1.0
    return row


@st.composite
def steep_row(draw, n):
    """Weights down to the smallest subnormal number, the rest on one token."""
    row = np.array(draw(st.lists(st.sampled_from(TINY), min_size=n, max_size=n)))
    most = draw(st.integers(0, n - 1))
    row[most] = 0.0
    row[most] = max(0.0, 1.0 - row.sum())
    return row


@st.composite
def smooth_row(draw, n):
    """A softmax computed in float32, as a model does."""
    scores = np.random.default_rng(draw(st.integers(0, 2**32))).normal(scale=draw(st.sampled_from([0.1, 2, 20])), size=n)
    weights = np.exp((scores - scores.max()).astype(np.float32))
    return (weights / weights.sum()).astype(np.float64)


@st.composite
def matrix(draw, largest: int = 6, n: int | None = None):
    """One row-stochastic float64 matrix; rows may repeat, and entries may be off by a unit in the last place."""
    n = draw(sizes(largest)) if n is None else n
    kinds = draw(st.lists(st.sampled_from([dyadic_row, ratio_row, unit_row, steep_row, smooth_row]), min_size=1, max_size=2))
    pool = draw(st.lists(st.one_of([kind(n) for kind in kinds]), min_size=1, max_size=n))
    special = draw(st.sampled_from(["rows", "rows", "rows", "shifts", "permutation", "identity"]))
    if special == "identity":
        A = np.eye(n)
    elif special == "permutation":
        A = np.eye(n)[draw(st.permutations(range(n)))]
    elif special == "shifts":  # the same weights in another order: distances that tie without equal rows
        A = np.array([np.roll(pool[0], draw(st.integers(0, n - 1))) for _ in range(n)])
    else:
        A = np.array([pool[k] for k in draw(st.lists(st.integers(0, len(pool) - 1), min_size=n, max_size=n))])
    for i, k, up in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.booleans()), max_size=4)):
        A[i, k] = min(1.0, max(0.0, np.nextafter(A[i, k], 2.0 if up else -1.0)))
    return A


@st.composite
def grid_matrix(draw, largest: int = 6):
    """Multiples of 2^-52 around units: distances near 2 in the L1 norm, where doubles get coarser."""
    n = draw(sizes(largest))
    A = np.array([draw(unit_row(n)) for _ in range(n)])
    for i, k, m in draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 3)), max_size=2 * n)):
        A[i, k] = min(1.0, A[i, k] + m * ULP)
    return A


def any_matrix(largest: int = 6):
    return st.one_of(matrix(largest), grid_matrix(largest))
