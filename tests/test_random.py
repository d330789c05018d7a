from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dobrushin import LAWS, baseline, check_stochastic, equality, random_stochastic, wilson_interval
from dobrushin.random import gaussian_share

SURE = 1e-6
"""Chance that a statistical test with another seed would fail: five standard deviations."""

SIZES = st.sampled_from([2, 3, 4, 7, 16, 29])


def rows_of(law: str, n: int, count: int, seed: int = 0) -> np.ndarray:
    return random_stochastic(n, count, law, np.random.default_rng(seed)).reshape(-1, n)


@settings(max_examples=40)
@given(st.sampled_from(list(LAWS)), SIZES, st.sampled_from([0, 1, 5, (), (2, 3), (0, 2)]), st.integers(0, 2**32))
def test_every_law_gives_stochastic_matrices_of_the_shape_asked_for(law, n, size, seed):
    A = random_stochastic(n, size, law, np.random.default_rng(seed))
    assert A.shape == (*((size,) if isinstance(size, int) else size), n, n)
    assert A.dtype == np.float64
    check_stochastic(A)
    assert A.sum(axis=-1) == pytest.approx(1, abs=n * 2**-52)
    assert np.array_equal(random_stochastic(n, size, law, np.random.default_rng(seed)), A)


@pytest.mark.parametrize("law", list(LAWS))
def test_rows_and_matrices_are_independent(law):
    """No correlation between the entries of different rows, nor between matrices drawn one after the other."""
    A = random_stochastic(6, 40_000, law, np.random.default_rng(1))
    bound = stats.norm.isf(SURE / 2) / math.sqrt(len(A))
    for x, y in ((A[:, 0, 2], A[:, 1, 2]), (A[:, 0, 0], A[:, 5, 3]), (A[:-1, 0, 2], A[1:, 0, 2])):
        assert abs(np.corrcoef(x, y)[0, 1]) < bound


@pytest.mark.parametrize("law", list(LAWS))
def test_columns_are_exchangeable(law):
    rows = rows_of(law, 5, 8_000)
    for k in range(1, 5):
        assert stats.ks_2samp(rows[:, 0], rows[:, k]).pvalue > SURE
    assert abs(rows.mean(axis=0) - 0.2).max() < 5 * rows.std() / math.sqrt(len(rows))


@pytest.mark.parametrize("n", [2, 3, 8])
def test_dirichlet_is_uniform_on_the_simplex(n):
    """Entries are Beta(1, n - 1), and so is the smallest one times n; two of them have covariance -1/(n^2 (n + 1))."""
    rows = rows_of("dirichlet", n, 60_000 // n)
    marginal = stats.beta(1, n - 1)
    for sample in (rows[:, 0], rows[:, -1], n * rows.min(axis=1)):
        assert stats.kstest(sample, marginal.cdf).pvalue > SURE
    for power in (1, 2, 3):
        value, spread = (rows[:, 0] ** power).mean(), (rows[:, 0] ** power).std() / math.sqrt(len(rows))
        assert abs(value - marginal.moment(power)) < 5 * spread
    products = (rows[:, 0] - 1 / n) * (rows[:, 1] - 1 / n)
    assert abs(products.mean() + 1 / (n * n * (n + 1))) < 5 * products.std() / math.sqrt(len(rows))


@pytest.mark.parametrize("n", [2, 6])
def test_uniform_entries_are_normalised_uniforms(n):
    rows, seen = rows_of("uniform", n, 20_000), np.random.default_rng(5).random((20_000 * n, n))
    assert stats.ks_2samp(rows[:, 0], seen[:, 0] / seen.sum(axis=1)).pvalue > SURE
    assert stats.ks_2samp(rows.max(axis=1), seen.max(axis=1) / seen.sum(axis=1)).pvalue > SURE


@pytest.mark.parametrize("n", [2, 6])
def test_softmax_scores_are_standard_gaussian(n):
    """The logarithm of the ratio of two weights is the difference of two standard normal scores."""
    rows = rows_of("softmax", n, 20_000)
    assert stats.kstest(np.log(rows[:, 0] / rows[:, 1]), stats.norm(scale=math.sqrt(2)).cdf).pvalue > SURE


@pytest.mark.parametrize(("n", "support"), [(2, 2), (3, 2), (16, 2), (17, 3), (64, 8), (65, 9)])
def test_sparse_rows_have_their_support_and_sum_to_one_exactly(n, support):
    rows = rows_of("sparse", n, 300)
    assert ((rows > 0).sum(axis=1) <= support).all()
    assert ((rows > 0).sum(axis=1) == support).mean() > 0.999
    assert (rows.sum(axis=1) == 1).all()
    assert np.array_equal(rows * 2.0**40, np.floor(rows * 2.0**40))
    on = rows[(rows > 0).sum(axis=1) == support]
    assert stats.kstest(on.max(axis=1) if support == 2 else on[on > 0], _sparse_cdf(support)).pvalue > SURE


def _sparse_cdf(support: int):
    """Of the larger of two weights that are uniform on the segment; of one weight of several otherwise."""
    return stats.uniform(0.5, 0.5).cdf if support == 2 else stats.beta(1, support - 1).cdf


@pytest.mark.parametrize(("law", "n", "chance"), [(law, n, 1 / n) for law in LAWS for n in (2, 3) if (law, n) != ("sparse", 3)])
def test_half_of_two_tokens_and_a_third_of_three(law, n, chance):
    """Exact for laws without ties, which the sparse law has from n = 3 on."""
    *_, share = baseline(law, n, 40_000, seed=0)
    assert stats.binomtest(share.holds, share.draws, chance).pvalue > SURE


@pytest.mark.parametrize("law", ["dirichlet", "uniform", "softmax"])
@pytest.mark.parametrize("n", [4, 12, 40])
def test_the_share_lies_below_the_bound_and_agrees_with_its_formula_in_signs(law, n):
    """1/4 + (1 - E[S^2]/n) / (4(n-1)) with S the sum of the signs of the attaining pair's difference."""
    draws = 4_000
    A = random_stochastic(n, draws, law, np.random.default_rng(3))
    verdicts = equality(A)
    each = np.arange(draws)
    S = np.sign(A[each, verdicts.pair[:, 0]] - A[each, verdicts.pair[:, 1]]).sum(axis=-1)
    through_signs = 0.25 + (1 - S**2 / n) / (4 * (n - 1))
    difference = verdicts.holds - through_signs
    assert abs(difference.mean()) < 5 * difference.std() / math.sqrt(draws)
    assert verdicts.holds.mean() < 0.25 + 0.25 / (n - 1) + 5 * 0.5 / math.sqrt(draws)


@pytest.mark.parametrize("n", [2, 3, 4, 10, 100])
def test_the_gaussian_share_is_what_gaussian_rows_do(n):
    """The first two coordinates of a centred Gaussian vector: one positive, the other negative."""
    D = np.random.default_rng(n).standard_normal((100_000, n))
    D -= D.mean(axis=1, keepdims=True)
    count = int(((D[:, 0] > 0) & (D[:, 1] < 0)).sum())
    assert stats.binomtest(count, len(D), gaussian_share(n)).pvalue > SURE


def test_the_gaussian_share_at_its_ends():
    assert gaussian_share(2) == pytest.approx(1 / 2, abs=1e-15)
    assert gaussian_share(3) == pytest.approx(1 / 3, abs=1e-15)
    assert gaussian_share(10**9) == pytest.approx(1 / 4, abs=1e-9)
    assert all(gaussian_share(n) > gaussian_share(n + 1) for n in range(2, 50))
    with pytest.raises(ValueError, match="n is 1; expected at least 2"):
        gaussian_share(1)


# --- intervals --------------------------------------------------------------------------------------------------


@given(st.integers(1, 10_000).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))))
def test_wilson_intervals_solve_the_score_equation(counts):
    """Wilson's definition: the two shares p at which |count/total - p| is z standard deviations of a share p."""
    count, total = counts
    z, p_hat = stats.norm.isf(0.025), count / total
    low, high = wilson_interval(count, total)
    roots = np.roots([1 + z * z / total, -(2 * p_hat + z * z / total), p_hat * p_hat])
    assert (low, high) == pytest.approx((max(0, roots.real.min()), min(1, roots.real.max())), abs=2e-8)  # of a double root
    assert 0 <= low <= p_hat <= high <= 1
    assert wilson_interval(total - count, total) == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_a_wider_confidence_gives_a_wider_interval_and_95_percent_is_the_default():
    low, high = wilson_interval(30, 100)
    assert (low, high) == wilson_interval(30, 100, 0.95)
    wide = wilson_interval(30, 100, 0.99)
    assert wide[0] < low < high < wide[1]


@pytest.mark.parametrize(("count", "total"), [(0, 0), (-1, 5), (6, 5), (1, -1)])
def test_what_is_no_share_is_refused(count, total):
    with pytest.raises(ValueError, match=f"{count} of {total} is no share; expected 0 <= count <= total and total >= 1"):
        wilson_interval(count, total)


# --- the Monte-Carlo baseline -----------------------------------------------------------------------------------


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("values", [1, 700, 4_000_000])
def test_totals_grow_to_all_draws_in_chunks_of_the_memory_given(law, values):
    n, draws = 5, 200
    totals, chunk = list(baseline(law, n, draws, seed=7, values_at_once=values)), max(1, values // n**2)
    assert [share.draws for share in totals] == [*range(chunk, draws, chunk), draws]
    assert all(0 <= s.holds <= s.draws and 0 <= s.fragile <= s.draws and (s.law, s.n) == (law, n) for s in totals)
    assert all(a.holds <= b.holds and a.fragile <= b.fragile for a, b in pairwise(totals))


def test_every_law_and_size_and_seed_has_its_own_generator():
    counts = {(law, n, seed): [s.holds for s in baseline(law, n, 400, seed, values_at_once=40 * n * n)]
              for law in ("dirichlet", "uniform") for n in (4, 5) for seed in (0, 1)}  # fmt: skip
    assert len({tuple(c) for c in counts.values()}) == len(counts)
    assert counts["dirichlet", 4, 0] == [s.holds for s in baseline("dirichlet", 4, 400, 0, values_at_once=40 * 16)]


def test_the_count_is_that_of_equality():
    *_, share = baseline("softmax", 4, 300, 2)
    A = random_stochastic(4, 300, "softmax", np.random.default_rng([2, *b"softmax", 4]))
    verdicts = equality(A)
    assert (share.holds, share.fragile) == (verdicts.holds.sum(), verdicts.fragile.sum())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, 1, "gauss"), "law is 'gauss'; expected one of dirichlet, uniform, softmax, sparse"),
        ((1, 1, "dirichlet"), "n is 1; expected at least 2: kappa compares two rows"),
        ((0, 1, "sparse"), "n is 0; expected at least 2"),
        ((3, -1, "uniform"), "size is -1; expected no negative number"),
        ((3, (2, -1), "uniform"), "size is (2, -1); expected no negative number"),
    ],
)
def test_bad_requests_say_what_is_expected(arguments, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        random_stochastic(*arguments, np.random.default_rng(0))


def test_bad_baselines_say_what_is_expected():
    for draws in (0, -5):
        with pytest.raises(ValueError, match=f"draws is {draws}; expected at least 1"):
            next(baseline("dirichlet", 3, draws, 0))
    with pytest.raises(ValueError, match="law is 'gauss'"):
        next(baseline("gauss", 3, 5, 0))
    with pytest.raises(ValueError, match="n is 1;"):
        next(baseline("dirichlet", 1, 5, 0))
