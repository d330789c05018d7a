from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

import oracle
from dobrushin import coefficient, equality, pairwise_tv, random_stochastic
from strategies import any_matrix, dyadic_row, matrix

SLACK = 1e-13
"""More than the rounding of a few dozen additions of numbers up to 1."""


@st.composite
def pair_of_matrices(draw):
    """Two matrices of one size, in multiples of 1/8: their product is exact."""
    n = draw(st.integers(2, 5))
    return tuple(np.array([draw(dyadic_row(n)) for _ in range(n)]) for _ in range(2))


@given(any_matrix(8))
def test_every_distance_agrees_with_exact_rationals(A):
    before, F, D = A.tobytes(), oracle.exact(A), pairwise_tv(A)
    for i in range(len(A)):
        for j in range(len(A)):
            exact = oracle.tv(F, i, j)
            assert abs(Fraction(D[i, j]) - exact) <= max(exact * Fraction(2 * len(A), 2**53), Fraction(5e-324))
    assert A.tobytes() == before


@given(any_matrix())
def test_distances_are_a_metric(A):
    D = pairwise_tv(A)
    assert np.array_equal(D, D.T)
    assert not D.diagonal().any()
    assert (D >= 0).all()
    assert (D[:, :, None] <= D[:, None, :] + D.T[None, :, :] + SLACK).all()  # the triangle inequality
    apart = np.abs(A[:, None] - A[None]).sum(axis=-1)
    assert np.array_equal(D == 0, apart <= 5e-324)  # half of the smallest double rounds to 0


@given(any_matrix(8))
def test_kappa_is_the_largest_distance_and_what_equality_says(A):
    kappa = coefficient(A)
    assert isinstance(kappa, float)
    assert kappa == equality(A).kappa
    exact = oracle.kappa(oracle.exact(A))
    assert abs(Fraction(kappa) - exact) <= max(exact * Fraction(1, 2**50), Fraction(5e-324))
    assert 0 <= kappa <= max(1, A.sum(axis=1).max() + SLACK)


@given(any_matrix())
def test_kappa_is_zero_exactly_for_equal_rows_and_one_for_disjoint_ones(A):
    assert (coefficient(A) == 0) == (np.abs(A[:, None] - A[None]).sum(axis=-1) <= 5e-324).all()  # whose half rounds to 0
    assert coefficient(np.broadcast_to(A[0], A.shape)) == 0
    split = np.zeros_like(A)
    split[0, 0] = split[1:, 1] = 1
    assert coefficient(split) == 1


@given(pair_of_matrices())
def test_kappa_is_submultiplicative(AB):
    F, G = (oracle.exact(M) for M in AB)
    product = oracle.product(F, G)
    assert oracle.kappa(product) <= oracle.kappa(F) * oracle.kappa(G)
    assert Fraction(coefficient(AB[0] @ AB[1])) == oracle.kappa(product)  # both sides are exact in multiples of 1/64
    assert coefficient(AB[0] @ AB[1]) <= coefficient(AB[0]) * coefficient(AB[1])


@given(pair_of_matrices(), st.integers(0, 8))
def test_kappa_is_convex(AB, eighths):
    A, B = AB
    t = eighths / 8
    assert coefficient(t * A + (1 - t) * B) <= t * coefficient(A) + (1 - t) * coefficient(B)


@given(pair_of_matrices())
def test_kappa_contracts_differences(AB):
    """|xA - yA| <= kappa |x - y| for probability vectors, which is what the coefficient is for."""
    A, rows = AB
    kappa = coefficient(A)
    for x in rows:
        for y in rows:
            assert np.abs(x @ A - y @ A).sum() <= kappa * np.abs(x - y).sum()


@settings(max_examples=30)
@given(st.data(), st.sampled_from([(), (1,), (3,), (2, 2)]))
def test_batches_agree_with_single_matrices(data, shape):
    n = data.draw(st.integers(2, 5))
    A = np.array([data.draw(matrix(n=n)) for _ in range(int(np.prod(shape)))]).reshape(*shape, n, n)
    assert np.shape(coefficient(A)) == shape
    assert pairwise_tv(A).shape == A.shape
    for index in np.ndindex(*shape):
        assert np.asarray(coefficient(A))[index] == coefficient(A[index])
        assert np.array_equal(pairwise_tv(A)[index], pairwise_tv(A[index]))


@pytest.mark.parametrize("law", ["dirichlet", "uniform", "softmax", "sparse"])
def test_large_batches_agree_with_scipy(law):
    A = random_stochastic(60, (2, 20), law, np.random.default_rng(0))
    D = pairwise_tv(A)
    for index in np.ndindex(2, 20):
        assert D[index] == pytest.approx(squareform(pdist(A[index], "cityblock")) / 2, abs=SLACK)
    assert coefficient(A) == pytest.approx(D.max(axis=(-2, -1)), abs=SLACK)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_element_type_and_layout(dtype):
    A = torch.softmax(torch.randn(3, 4, 7, 7, generator=torch.Generator().manual_seed(0)), dim=-1).to(dtype)
    expected = coefficient(A.double().numpy()) if dtype in (torch.float64, torch.float32) else coefficient(A)
    for same in (A, A.transpose(-1, -2).contiguous().transpose(-1, -2), A.repeat_interleave(2, -1)[..., ::2].requires_grad_()):
        assert np.array_equal(coefficient(same), expected)
        assert pairwise_tv(same).max(axis=(-2, -1)) == pytest.approx(expected, abs=SLACK)


@given(any_matrix())
def test_rows_that_sum_to_less_have_half_their_l1_distance(A):
    less = A * 0.5
    assert coefficient(less, substochastic=True) == pytest.approx(coefficient(A) / 2, abs=SLACK)
    assert pairwise_tv(less, substochastic=True) == pytest.approx(pairwise_tv(A) / 2, abs=SLACK)
    for function in (coefficient, pairwise_tv):
        with pytest.raises(ValueError, match=r"the matrix, row 0 sums to 0\.[45]\d*; expected 1 within"):
            function(less)
