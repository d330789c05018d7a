from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from dobrushin import coefficient, doeblin, leave_one_out, random_stochastic
from strategies import any_matrix, dyadic_row, matrix


@st.composite
def dyadic_matrix(draw, parts=16):
    """Rows that sum to exactly 1, in multiples of 1/16."""
    n = draw(st.integers(2, 6))
    return np.array([draw(dyadic_row(n, parts)) for _ in range(n)])


@given(dyadic_matrix())
def test_both_doeblin_bounds_are_exact_and_ordered(A):
    F, n = oracle.exact(A), len(A)
    bounds = doeblin(A)
    assert Fraction(float(bounds.entrywise)) == 1 - n * min(min(row) for row in F)
    assert Fraction(float(bounds.columnwise)) == 1 - sum(min(column) for column in zip(*F, strict=True))
    assert 0 <= oracle.kappa(F) <= Fraction(float(bounds.columnwise)) <= Fraction(float(bounds.entrywise)) <= 1


@given(st.fractions(0, 1, max_denominator=8), st.fractions(0, 1, max_denominator=8))
def test_the_columnwise_bound_is_attained_for_two_tokens(p, q):
    A = np.array([[p, 1 - p], [q, 1 - q]], dtype=float)
    assert float(doeblin(A).columnwise) == pytest.approx(coefficient(A), abs=1e-15)


def test_the_bounds_are_not_the_same_and_not_kappa():
    A = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.25, 0.25, 0.5]])
    assert coefficient(A) == 0.5
    assert doeblin(A) == (1.0, 0.75)


@given(any_matrix())
def test_bounds_hold_up_to_the_rounding_of_row_sums(A):
    """A row sum s turns TV into (s_i + s_j)/2 - sum of the minima."""
    excess = abs(A.sum(axis=1) - 1).max() + 1e-14
    bounds, before = doeblin(A), A.copy()
    assert coefficient(A) <= bounds.columnwise + excess
    assert bounds.columnwise <= bounds.entrywise + excess
    assert np.array_equal(A, before)


@given(any_matrix())
def test_leave_one_out_agrees_with_a_naive_loop(A):
    F, n, scores = oracle.exact(A), len(A), leave_one_out(A)
    assert scores.shape == (n,)
    for i in range(n):
        rest = [oracle.tv(F, j, k) for j, k in combinations([t for t in range(n) if t != i], 2)]
        exact = oracle.kappa(F) - max(rest, default=Fraction(0))
        assert abs(Fraction(scores[i]) - exact) <= Fraction(2 * n, 2**53)
    assert (scores >= 0).all()
    assert (scores > 0).sum() <= 2


def test_the_carrier_is_the_row_that_differs_from_all_others():
    A = np.full((5, 5), 0.2)
    A[3] = [0, 0, 0, 1, 0]
    assert leave_one_out(A) == pytest.approx([0, 0, 0, 0.8, 0], abs=1e-15)


def test_two_tokens_share_the_whole_coefficient():
    A = np.array([[0.75, 0.25], [0.5, 0.5]])
    assert np.array_equal(leave_one_out(A), [0.25, 0.25])


@settings(max_examples=30)
@given(st.data(), st.sampled_from([(), (0,), (3,), (2, 2)]))
def test_batches_agree_with_single_matrices(data, shape):
    n = data.draw(st.integers(2, 5))
    A = np.array([data.draw(matrix(n=n)) for _ in range(int(np.prod(shape)))]).reshape(*shape, n, n)
    bounds, scores = doeblin(A), leave_one_out(A)
    assert np.shape(bounds.entrywise) == np.shape(bounds.columnwise) == shape
    assert scores.shape == (*shape, n)
    for index in np.ndindex(*shape):
        single = doeblin(A[index])
        assert bounds.entrywise[index] == single.entrywise
        assert bounds.columnwise[index] == single.columnwise
        assert np.array_equal(scores[index], leave_one_out(A[index]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_element_type(dtype):
    A = torch.from_numpy(random_stochastic(6, 4, "sparse", np.random.default_rng(0))).to(dtype)
    loose = doeblin(A), leave_one_out(A)
    stored = A.double().numpy()
    assert np.array_equal(loose[0].entrywise, 1 - 6 * stored.min(axis=(1, 2)))
    assert np.array_equal(loose[0].columnwise, 1 - stored.min(axis=1).sum(axis=1))
    assert np.array_equal(loose[1].max(axis=1) > 0, (loose[1] > 0).any(axis=1))
