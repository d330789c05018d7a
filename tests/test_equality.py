from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

import oracle
from dobrushin import equality, lazy, random_stochastic, restrict
from dobrushin.equality import tv_error
from dobrushin.stochastic import ROW_SUM_TOLERANCE
from strategies import ULP, any_matrix, matrix, ratio_row


def nearly(value: float, truth: Fraction) -> bool:
    """Equal up to a few roundings of a number of that size, or of the smallest one there is."""
    return abs(Fraction(value) - truth) <= max(abs(truth) * Fraction(1, 2**50), Fraction(math.ulp(0.0)))


def sign(x) -> int:
    return (x > 0) - (x < 0)


def assert_exact(A, verdict) -> None:
    truth = oracle.judge(A)
    assert verdict.holds is truth.holds
    assert verdict.pair == truth.pair
    assert sign(verdict.gap) == sign(truth.gap)
    assert sign(verdict.margin) == sign(truth.margin)
    assert nearly(verdict.kappa, truth.kappa)
    assert nearly(verdict.lazy_kappa, truth.lazy_kappa)
    assert nearly(verdict.gap, truth.gap)
    if isinstance(truth.margin, Fraction):
        assert nearly(verdict.margin, truth.margin)
    else:
        assert verdict.margin == truth.margin


@settings(max_examples=500)
@given(any_matrix())
@example(np.eye(2))
@example(np.eye(2)[::-1].copy())
@example(np.array([[0.5, 0.5], [0.5, 0.5]]))
@example(np.array([[1.0, 0.0], [1.0, 0.0]]))
@example(np.array([[5e-324, 1.0], [0.0, 1.0]]))
@example(np.array([[0.0, 1.0], [5e-324, 1.0]]))
@example(np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 5e-324], [1.0, 0.0, 0.0]]))
def test_every_number_agrees_with_exact_rationals(A):
    assert_exact(A, equality(A))


@given(st.integers(2, 10**6))
def test_the_error_bound_of_a_distance_is_that_of_the_textbook(n):
    """n u / (1 - n u) times a distance of at most 1 plus the largest tolerance of row sums; not much more."""
    relative = Fraction(n, 2**53) / (1 - Fraction(n, 2**53))
    needed = relative * Fraction(1 + max(ROW_SUM_TOLERANCE.values()))
    assert needed <= Fraction(tv_error(n)) <= 4 * needed


def test_distances_just_above_one_are_told_apart():
    # Rows 0 and 1 are good at L1 distance 2; rows 0 and 3 are not, at distance 2 + 2^-52, which is no double.
    A = np.array([[0.5, 0, 0, 0.5], [0, 1.0, 0, 0], [0, 0, 0, 1.0], [0, ULP, 1.0, 0]])
    assert not equality(A).holds
    assert_exact(A, equality(A))


@given(matrix(), st.randoms(use_true_random=False))
def test_renaming_tokens_changes_nothing(A, random):
    order = list(range(len(A)))
    random.shuffle(order)
    before, after = equality(A), equality(A[np.ix_(order, order)])
    assert (before.holds, before.fragile) == (after.holds, after.fragile)
    for name in ("kappa", "lazy_kappa", "gap", "margin"):
        assert getattr(after, name) == pytest.approx(getattr(before, name), rel=2**-50, abs=5e-324)
    renamed = tuple(sorted(order[k] for k in after.pair))
    F = oracle.exact(A)
    assert oracle.tv(F, *renamed) == oracle.tv(F, *before.pair)


@given(any_matrix(8))
def test_the_pair_attains_kappa_and_is_good_exactly_where_the_condition_holds(A):
    verdict, F = equality(A), oracle.exact(A)
    i, j = verdict.pair
    assert i < j
    assert oracle.tv(F, i, j) == oracle.kappa(F)
    assert oracle.is_good(F, i, j) is verdict.holds


@given(any_matrix())
def test_the_gap_is_a_minimum_over_pairs(A):
    """min over pairs of (kappa - TV)/2 + deficit, in rationals, against the definition in the oracle."""
    F, truth = oracle.exact(A), oracle.judge(A)
    looseness = [
        (truth.kappa - oracle.tv(F, i, j)) / 2 + (max(F[j][i] - F[i][i], 0) + max(F[i][j] - F[j][j], 0)) / 2
        for i, j in combinations(range(len(F)), 2)
    ]
    assert min(looseness) == truth.gap
    assert nearly(equality(A).gap, min(looseness))


# --- shapes, element types, memory layouts -------------------------------------------------------------------


@settings(max_examples=50)
@given(st.data(), st.sampled_from([(), (1,), (3,), (2, 2), (1, 3, 1)]))
def test_batches_agree_with_single_matrices(data, shape):
    n = data.draw(st.integers(2, 5))
    A = np.array([data.draw(matrix(n=n)) for _ in range(math.prod(shape))]).reshape(*shape, n, n)
    batch = equality(A)
    for index in np.ndindex(*shape):
        single = equality(A[index])
        for name in ("kappa", "lazy_kappa", "gap", "margin", "holds", "fragile"):
            assert np.asarray(getattr(batch, name))[index] == getattr(single, name)
        assert tuple(np.asarray(batch.pair)[index]) == single.pair
    assert np.shape(batch.kappa) == shape
    assert np.shape(batch.pair) == (*shape, 2)


def test_ten_thousand_matrices_at_once():
    rng = np.random.default_rng(1)
    smooth = [random_stochastic(5, 2000, law, rng) for law in ("dirichlet", "uniform", "softmax", "sparse")]
    weights = rng.integers(0, 3, (2000, 5, 5)) + np.eye(5)
    A = np.concatenate([*smooth, weights / weights.sum(axis=-1, keepdims=True)])
    rng.shuffle(A)
    batch = equality(A)
    assert len(batch.holds) == 10_000
    for b in range(0, len(A), 10):
        one = equality(A[b])
        here = (batch.kappa[b], batch.lazy_kappa[b], batch.gap[b], batch.margin[b], batch.holds[b], batch.fragile[b])
        assert here == (one.kappa, one.lazy_kappa, one.gap, one.margin, one.holds, one.fragile)
        assert tuple(batch.pair[b]) == one.pair
    pieces = [equality(piece) for piece in np.array_split(A, 97)]
    for name in ("kappa", "lazy_kappa", "gap", "margin", "holds", "fragile", "pair"):
        assert np.array_equal(np.concatenate([getattr(piece, name) for piece in pieces]), getattr(batch, name))
    for b in range(5, len(A), 100):
        assert_exact(A[b], equality(A[b]))


def test_a_batch_shared_out_over_threads_agrees_with_scipy():
    """Large enough to be split over the cores; scipy's distances are the second route."""
    A = random_stochastic(40, (3, 50), "dirichlet", np.random.default_rng(2))
    batch = equality(A)
    assert batch.kappa.shape == (3, 50)
    for index in np.ndindex(3, 50):
        M = A[index]
        kappa, lazy_kappa = (pdist(X, "cityblock").max() / 2 for X in (M, (M + np.eye(40)) / 2))
        assert batch.kappa[index] == pytest.approx(kappa, abs=1e-14)
        assert batch.lazy_kappa[index] == pytest.approx(lazy_kappa, abs=1e-14)
        assert batch.gap[index] == pytest.approx(0.5 * (1 + kappa) - lazy_kappa, abs=1e-14)
        assert batch.holds[index] == (batch.gap[index] == 0) == (batch.margin[index] >= 0)
        assert squareform(pdist(M, "cityblock"))[tuple(batch.pair[index])] / 2 == pytest.approx(kappa, abs=1e-14)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
@settings(max_examples=40)
@given(data=st.data())
def test_every_element_type_is_judged_as_stored(dtype, data):
    n = data.draw(st.integers(2, 5))
    A = torch.from_numpy(np.array([data.draw(ratio_row(n)) for _ in range(n)])).to(getattr(torch, dtype))
    verdict = equality(A)
    assert_exact(A.double().numpy(), verdict)
    if dtype != "bfloat16":  # which NumPy does not have
        assert equality(A.numpy()).__dict__ == verdict.__dict__


@settings(max_examples=20)
@given(matrix())
def test_memory_layout_does_not_matter(A):
    n, verdict = len(A), equality(A).__dict__
    wide = np.zeros((2 * n, 3 * n))
    wide[::2, ::-3] = A
    read_only = A.copy()
    read_only.flags.writeable = False
    unaligned = np.frombuffer(b"x" + A.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(n, n)
    for same in (
        np.asfortranarray(A), wide[::2, ::-3], read_only, unaligned, A.astype(">f8"), A.view(np.matrix), A.tolist(),
        torch.from_numpy(A.T.copy()).T, torch.from_numpy(A.copy()).requires_grad_(),
    ):  # fmt: skip
        assert equality(same).__dict__ == verdict
    batch = np.moveaxis(np.stack([A, A, A], axis=-1), -1, 0)  # batch axis last in memory
    assert np.all(equality(batch).holds == verdict["holds"])
    repeated = np.broadcast_to(A, (4, n, n))
    assert np.all(equality(repeated).margin == verdict["margin"])


def test_the_element_type_inside_a_list_counts():
    """A list of float32 rows is float32: in its row sums, and in its rounding."""
    row = np.full(3, 1 / 3, dtype=np.float32)
    row[0] += np.float32(4e-6)
    assert equality([row, row, row]).__dict__ == equality(np.stack([row, row, row])).__dict__


def test_an_empty_batch_has_no_verdicts():
    verdict = equality(np.zeros((0, 3, 3)))
    assert verdict.holds.shape == verdict.kappa.shape == verdict.fragile.shape == (0,)
    assert verdict.pair.shape == (0, 2)
    assert equality(np.zeros((2, 0, 3, 3))).gap.shape == (2, 0)


@given(matrix())
def test_the_matrix_is_not_changed(A):
    before = A.copy()
    equality(A)
    assert A.tobytes() == before.tobytes()


# --- restriction, laziness ---------------------------------------------------------------------------------------


@given(matrix(), st.data())
def test_substochastic_matrices_are_judged_exactly_too(A, data):
    keep = data.draw(st.lists(st.integers(0, len(A) - 1), min_size=2, unique=True))
    if not A[np.ix_(keep, keep)].sum(axis=1).all():
        return
    part = restrict(A, keep, renormalize=False)
    assert_exact(part, equality(part, substochastic=True))


@given(matrix())
def test_the_lazy_matrix_always_satisfies_the_condition(A):
    """Its diagonal is at least 1/2 and its other entries are at most that, so every pair is good."""
    verdict = equality(lazy(A))
    assert verdict.holds
    assert verdict.gap == 0


# --- fragile ----------------------------------------------------------------------------------------------------


def holds_exactly(F) -> bool:
    pairs = list(combinations(range(len(F)), 2))
    distances = [oracle.tv(F, *pair) for pair in pairs]
    top = max(distances)
    return any(d == top and oracle.is_good(F, *pair) for d, pair in zip(distances, pairs, strict=True))


def furthest(F, good):
    pairs = [p for p in combinations(range(len(F)), 2) if oracle.is_good(F, *p) is good]
    return max(pairs, key=lambda p: oracle.tv(F, *p), default=None)


def corners(F, r, rng):
    """Matrices with entries (1 - r) A_ij or (1 + r) A_ij: random ones, and those most likely to turn the verdict."""
    n, up, down = len(F), 1 + r, 1 - r

    def times(factor):
        return [[x * f for x, f in zip(row, factors, strict=True)] for row, factors in zip(F, factor, strict=True)]

    for _ in range(4):
        yield times([[up if rng.random() < 0.5 else down for _ in range(n)] for _ in range(n)])
    good, other = furthest(F, True), furthest(F, False)
    for raised, lowered in ((good, other), (other, good)):
        factor = [[Fraction(1)] * n for _ in range(n)]
        for pair, away in ((lowered, False), (raised, True)):  # push one pair apart, the other together
            if pair is not None:
                i, j = pair
                for k in range(n):
                    first = (F[i][k] >= F[j][k]) is away
                    factor[i][k], factor[j][k] = (up, down) if first else (down, up)
        yield times(factor)
        for own, others in ((up, down), (down, up)):  # and make all tokens more, or less, self-dominant
            yield times(
                [
                    [own if i == k else others if i != k and factor[i][k] == 1 else factor[i][k] for k in range(n)]
                    for i in range(n)
                ]
            )
            yield times([[own if i == k else factor[i][k] for k in range(n)] for i in range(n)])
            for pair in combinations(range(n), 2):
                turned = [list(row) for row in factor]
                i, j = pair
                turned[i][i] = turned[j][j] = own
                turned[j][i] = turned[i][j] = others
                yield times(turned)


@settings(max_examples=300)
@given(matrix(4), st.sampled_from([2.0**-49, 2.0**-20, 2.0**-10, 2.0**-5]), st.integers(0, 2**32))
def test_a_verdict_that_is_not_fragile_survives_every_rounding(A, r, seed):
    verdict = equality(A, rounding=r)
    if verdict.fragile:
        return
    for G in corners(oracle.exact(A), Fraction(r), np.random.default_rng(seed)):
        assert holds_exactly(G) is verdict.holds


def test_rows_that_sum_to_more_than_one_move_further():
    """A distance changes by up to r times the mean sum of the rows, which bfloat16 lets be 1.03."""
    r, s = 2.0**-4, 1 + 3 / 128
    for d in np.arange(8, 24) / 128:
        A = np.zeros((6, 6))
        A[0, [0, 2]] = A[1, [1, 3]] = 0.75, s - 0.75  # a good pair at distance s
        A[2, 4] = A[4, 5] = s - d  # the furthest of the others: 2 and 4, at distance s - d on disjoint columns
        A[2, 2] = A[3, 4] = A[4, 2] = A[5, 4] = d
        A[3, 5] = A[5, 5] = s - d
        T = torch.tensor(A, dtype=torch.bfloat16)
        assert torch.equal(T.double(), torch.from_numpy(A))
        verdict = equality(T)
        if not verdict.fragile:
            for G in corners(oracle.exact(A), Fraction(r), np.random.default_rng(0)):
                assert holds_exactly(G) is verdict.holds


def test_fragile_marks_what_rounding_can_turn_and_only_that():
    good = np.array([[0.75, 0.25], [0.25, 0.75]])
    tie = np.array([[0.5, 0.5], [0.5, 0.5]])
    for A, fragile in ((good, False), (good[::-1].copy(), False), (tie, True)):
        assert equality(A).fragile is fragile
    near = np.array([[0.75, 0.25], [0.75 - 1e-5, 0.25 + 1e-5]])
    assert not equality(near).fragile
    assert equality(near, rounding=1e-4).fragile
    assert equality(near.astype(np.float16)).fragile
    assert not equality(np.eye(4)).fragile  # zeros stay zeros under a relative error


@pytest.mark.parametrize("rounding", [-1e-3, math.nan, math.inf, 1.0])
def test_rounding_is_a_relative_error(rounding):
    with pytest.raises(ValueError, match=rf"rounding is {rounding}; expected a relative error, from 0 to less than 1"):
        equality(np.eye(2), rounding=rounding)


# --- cost -------------------------------------------------------------------------------------------------------


def test_many_ties_are_settled_without_summing_each():
    """Uniform attention off the exact grid: all pairs tie."""
    n = 500
    verdict = equality(np.full((n, n), 1 / n))
    assert verdict.holds
    assert verdict.pair == (0, 1)
    assert verdict.kappa == 0
    row = random_stochastic(64, 1, "dirichlet", np.random.default_rng(3))[0, 0]
    circulant = np.stack([np.roll(row, k) for k in range(64)])
    assert equality(circulant).kappa == pytest.approx(pdist(circulant, "cityblock").max() / 2, abs=1e-15)
