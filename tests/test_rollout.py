from __future__ import annotations

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from dobrushin import coefficient, equality, layer_bound, lazy, random_stochastic, rollout
from strategies import dyadic_row

A1 = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
A2 = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
"""Two layers that do not commute."""


@st.composite
def layers(draw):
    """One to four layers in multiples of 1/8: products of their factors are exact."""
    n = draw(st.integers(2, 4))
    return [np.array([draw(dyadic_row(n)) for _ in range(n)]) for _ in range(draw(st.integers(1, 4)))]


@given(layers())
def test_rollout_is_the_product_of_the_factors_first_layer_applied_first(As):
    exact = reduce(lambda done, A: oracle.product(oracle.lazy(oracle.exact(A)), done), As, oracle.exact(np.eye(len(As[0]))))
    assert oracle.exact(rollout(As)) == exact


def test_the_first_layer_is_applied_first():
    """Token 1 reaches token 3 only if the layer with 1 -> 2 comes after the one with 2 -> 3."""
    assert rollout([A2, A1])[0, 2] == 0.25 * 0.25
    assert rollout([A1, A2])[0, 2] == 0
    assert np.array_equal(rollout([A1, A2]), lazy(A2) @ lazy(A1))


@given(layers())
def test_the_depth_bound_is_the_product_over_layers(As):
    exact = reduce(lambda done, A: done * (1 + oracle.kappa(oracle.exact(A))) / 2, As, Fraction(1))
    assert Fraction(layer_bound(As)) == exact
    assert isinstance(layer_bound(As), float)


@given(layers())
def test_kappa_of_the_rollout_is_below_the_product_of_the_factors_and_that_below_the_bound(As):
    factors = np.prod([coefficient(lazy(A)) for A in As])
    assert coefficient(rollout(As)) <= factors <= layer_bound(As)
    if all(equality(A).holds for A in As):
        assert factors == layer_bound(As)
    else:
        assert factors < layer_bound(As) or factors == 0


@given(layers())
def test_a_layer_without_attention_changes_nothing(As):
    eye = np.eye(len(As[0]))
    assert np.array_equal(rollout([*As, eye]), rollout(As))
    assert np.array_equal(rollout([eye, *As]), rollout(As))
    assert layer_bound([*As, eye]) == layer_bound(As)


@given(layers())
def test_the_residual_connection_keeps_its_half(As):
    """Without it the diagonal could be 0; with it every token keeps at least 2^-L of itself."""
    assert (rollout(As).diagonal() >= 2.0 ** -len(As)).all()


@settings(max_examples=20)
@given(st.integers(1, 4), st.sampled_from([(), (3,), (2, 2)]))
def test_batches_and_stacks_agree_with_single_layers(depth, shape):
    A = random_stochastic(5, (depth, *shape), "softmax", np.random.default_rng(depth))
    before = A.tobytes()
    product, bound = rollout(A), layer_bound(A)
    assert product.shape == (*shape, 5, 5)
    assert np.shape(bound) == shape
    assert product.sum(axis=-1) == pytest.approx(1, abs=1e-14)
    for index in np.ndindex(*shape):
        one = [A[(layer, *index)] for layer in range(depth)]
        assert product[index] == pytest.approx(rollout(one), abs=1e-15)  # matmul may add in another order in batches
        assert np.asarray(bound)[index] == layer_bound(one)
    for same in (iter(A), tuple(A), torch.from_numpy(A), list(torch.from_numpy(A))):
        assert np.array_equal(rollout(same), product)
    assert A.tobytes() == before


@pytest.mark.parametrize("function", [rollout, layer_bound])
def test_bad_layers_are_named(function):
    with pytest.raises(ValueError, match="As holds no layer; expected at least one attention matrix, the first layer first"):
        function([])
    with pytest.raises(ValueError, match=r"layer 1 has shape \(2, 2\); expected \(3, 3\) as in layer 0"):
        function([np.eye(3), np.eye(2)])
    with pytest.raises(ValueError, match=r"layer 2 has shape \(4, 3, 3\); expected \(3, 3\) as in layer 0"):
        function([A1, A2, np.broadcast_to(A1, (4, 3, 3))])
    spoilt = A2.copy()
    spoilt[1, 0] = np.nan
    with pytest.raises(ValueError, match=r"^layer 1: the matrix, row 1: entry in column 0 is nan"):
        function([A1, spoilt])
    with pytest.raises(ValueError, match=r"^layer 1: the matrix, row 0 sums to 2\.0; expected 1"):
        function([A1, np.ones((3, 3)) * 2 / 3])
