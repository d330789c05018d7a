"""The radius within which a verdict cannot change."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import strategies
from dobrushin import LAWS, equality, radius, random_stochastic, row_distance
from oracle import exact, judge, tv


def naive(matrix) -> Fraction:
    """The radius by the statement of the theorem, for every eta that can be the largest one."""
    F = exact(matrix)
    pairs = list(combinations(range(len(F)), 2))
    slack = {(i, j): min(F[i][i] - F[j][i], F[j][j] - F[i][j]) for i, j in pairs}
    distance = {pair: tv(F, *pair) for pair in pairs}
    verdict = judge(matrix)
    if not verdict.holds:
        by_pairs = min(max(-slack[p], (verdict.kappa - distance[p]) / 2) for p in pairs)
        return max(verdict.gap, by_pairs)

    def works(eta):
        return any(slack[p] >= eta and all(distance[q] + 2 * eta <= distance[p] for q in pairs if slack[q] < eta) for p in pairs)

    candidates = [*slack.values(), *((distance[p] - distance[q]) / 2 for p in pairs for q in pairs)]
    return max((eta for eta in candidates if eta > 0 and works(eta)), default=Fraction(0))


@given(strategies.any_matrix(5))
@settings(max_examples=60)
def test_radius_is_the_one_of_the_theorem(A):
    # Stored rows may be off 1 by a few units in the last place, and distances are sums of rounded numbers.
    assert abs(Fraction(float(radius(A))) - naive(A)) <= 1e-14


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("own", [0, 0.25, 0.5])
def test_radius_of_random_matrices_of_both_verdicts(law, own):
    """Where tokens keep a share of their own weight, the condition mostly holds, and distances set the radius."""
    for n in (3, 4):
        for A in random_stochastic(n, 12, law, np.random.default_rng(n)):
            mixed = own * np.eye(n) + (1 - own) * A
            assert abs(Fraction(float(radius(mixed))) - naive(mixed)) <= 1e-14


@given(strategies.any_matrix(5), st.data())
@example(np.array([[0.5, 0.5], [0.25, 0.75]]), None)
@settings(max_examples=150)
def test_no_matrix_within_the_radius_has_another_verdict(A, data):
    A = A / A.sum(axis=-1, keepdims=True)
    other = np.eye(len(A))[::-1] if data is None else data.draw(strategies.matrix(n=len(A)))
    bound, apart = float(radius(A)), float(row_distance(A, other))
    if bound < 1e-9 or apart == 0:
        return
    step = min(1, (1 - 1e-6) * bound / apart)
    B = (1 - step) * A + step * other
    assert equality(B).holds == equality(A).holds


@given(st.integers(0, 64), st.integers(0, 64))
def test_the_radius_is_sharp_for_two_tokens(p, q):
    a, b = p / 64, q / 64
    A = np.array([[a, 1 - a], [1 - b, b]])
    assert radius(A) == abs(a + b - 1)  # exact: multiples of 1/64
    move = (a + b - 1) / 2  # both diagonal entries, which moves each row by abs(a + b - 1)
    B = np.array([[a - move, 1 - a + move], [1 - b + move, b - move]])
    assert row_distance(A, B) == radius(A)
    assert equality(B).holds
    assert equality(B).margin in (0, np.inf)


@given(st.lists(strategies.matrix(n=4), min_size=1, max_size=4))
@settings(max_examples=30)
def test_batches_are_judged_one_by_one(matrices):
    stack = np.stack(matrices)
    assert radius(stack).tolist() == [float(radius(A)) for A in stack]
    assert row_distance(stack, stack[0]).tolist() == [float(row_distance(A, stack[0])) for A in stack]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_radius_takes_every_type_with_its_own_tolerance(dtype):
    A = torch.from_numpy(random_stochastic(9, 3, "softmax", np.random.default_rng(0))).to(dtype)
    B = A.double().numpy()
    # The same numbers in float64, with rows that sum to 1: no further away than the rounding of A.
    assert radius(A) == pytest.approx(radius(B / B.sum(axis=-1, keepdims=True)), abs=torch.finfo(dtype).eps)


def test_no_stochastic_matrix_no_radius():
    with pytest.raises(ValueError, match=r"row 1 sums to 0\.5"):
        radius([[0.5, 0.5], [0.25, 0.25]])
