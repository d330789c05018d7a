"""The compiled scan of pairs against 64-bit integers, which are exact at every size, where rationals are too slow.

Matrices consist of multiples of 2^-58.  A double of at least 2^-6 is one anyway, smaller ones are cut to it, and
distances of rows, below 2^60 such units, are sums of integers without any rounding.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracle
from dobrushin import _few, _kernels, _overlaps, _scan, _verdicts, equality, random_stochastic
from dobrushin.equality import tv_error
from strategies import matrix

UNIT = 2.0**-58
SIZES = [2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 47, 48, 49, 64, 100, 127, 200, 256, 300]


def units(A) -> np.ndarray:
    """A in units of 2^-58, as integers, rounded down."""
    return np.floor(np.asarray(A, dtype=np.float64) / UNIT).astype(np.int64)


def stored(V) -> np.ndarray:
    """The matrix of these integers; those of more than 53 bits are rounded."""
    return V.astype(np.float64) * UNIT


def dirichlet(n, rng):
    return stored(units(rng.dirichlet(np.ones(n), n)))


def steep(n, rng):
    """Attention as trained models have it: a few heavy columns, and weights over many orders of magnitude."""
    scores = rng.normal(scale=3, size=(n, n)) + rng.normal(scale=3, size=n) + 4 * rng.random() * np.eye(n)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return stored(units(weights / weights.sum(axis=1, keepdims=True)))


def multiples(K, late) -> np.ndarray:
    """K/SCALE and a little more or, where late, (K+1)/SCALE and a little less, in units: both become the integer K.

    The little is 2^-46: less would be lost in the product with SCALE.
    """
    assert _overlaps.SCALE == 31 * 2**11
    return (np.asarray(K, dtype=np.int64) + late) * 2**47 // 31 + np.where(late, -(2**12), 2**12)


def misleading(n, rng):
    """Distances that tie as integers, or nearly, and differ by what rounding down lost."""
    integers = rng.multinomial(int(_overlaps.SCALE) - n // 2, rng.dirichlet(np.ones(n)))
    K = np.stack([np.roll(integers, k) for k in rng.integers(0, n, n)])
    V = multiples(K, rng.random((n, n)) < 0.5)
    V[np.arange(n), V.argmax(axis=1)] += 2**58 - V.sum(axis=1)
    return stored(V)


def contested(n, rng):
    """Disjoint supports: many pairs have nearly the largest distance, good ones and others, a unit or none apart."""
    count = min(n, int(rng.integers(2, 7)))
    V = units(rng.dirichlet(np.ones(n), n))
    owner = rng.integers(0, count, n)
    rows = rng.choice(n, count, replace=False)
    for k, row in enumerate(rows):
        owned = np.flatnonzero(owner == k)
        if len(owned) == 0:
            owned = rng.choice(n, 1)
        V[row] = 0
        V[row, owned] = units(rng.dirichlet(np.ones(len(owned))))
        largest = owned[V[row, owned].argmax()]
        V[row, largest] += 2**58 - V[row].sum()
        V[row] = units(stored(V[row]))
        smallest = owned[V[row, owned].argmin()]
        V[row, smallest] += 2**58 - V[row].sum() + rng.integers(-1, 2)
    return np.clip(stored(V), 0, 1)


def repeated(n, rng):
    """Few different rows, some entries a unit in the last place off: ties of whole groups of pairs."""
    A = dirichlet(n, rng)[rng.integers(0, min(n, 3), n)]
    for i, k in rng.integers(0, n, (3, 2)):
        A[i, k] = np.nextafter(A[i, k], rng.integers(0, 2))
    return stored(units(A))


def shifted(n, rng):
    """A circulant matrix: all pairs at one distance along the circle tie."""
    row = dirichlet(n, rng)[0]
    return np.stack([np.roll(row, k) for k in rng.integers(0, n, n)])


def saturated(n, rng):
    """Nearly all weight on one token, mostly another one for every row: what two rows share is tiny, from 2^-58 on."""
    scores = rng.normal(scale=rng.choice([2, 5, 8]), size=(n, n))
    heaviest = np.where(rng.random(n) < 0.05, rng.integers(0, n, n), rng.permutation(n))
    scores[np.arange(n), heaviest] = scores.max() + rng.uniform(5, 15)
    scores[np.arange(n), np.arange(n)] += 10 * rng.random()
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return stored(units(weights / weights.sum(axis=1, keepdims=True)))


KINDS = [dirichlet, steep, misleading, contested, repeated, shifted, saturated]


class Truth(NamedTuple):
    holds: bool
    pair: tuple[int, int]
    kappa: int
    """2 kappa, in units of 2^-58; below 2 margin (None where a class is empty) and 4 gap."""
    margin: int | None
    gap: int


def judge(A) -> Truth:
    V, n = units(A), len(A)
    assert np.array_equal(stored(V), A)
    distance = np.array([np.abs(V[i] - V).sum(axis=1) for i in range(n)])
    excess = np.maximum(V.T - V.diagonal()[:, None], 0)  # of A_ji over A_ii
    first, second = np.triu_indices(n, 1)
    d, deficit = distance[first, second], (excess + excess.T)[first, second]
    best = [d[members].max(initial=-1) for members in (deficit == 0, deficit > 0)]
    holds = bool(best[0] >= best[1])
    winner = np.flatnonzero((d == max(best)) & ((deficit == 0) == holds))[0]
    margin = None if min(best) < 0 else int(best[0] - best[1])
    return Truth(
        holds, (int(first[winner]), int(second[winner])), int(max(best)), margin, int((max(best) - d + 2 * deficit).min())
    )


def assert_as_judged(A, verdict) -> None:
    truth = judge(A)
    assert (verdict.holds, verdict.pair) == (truth.holds, truth.pair)
    # The integers are below 2^60 and become doubles with one rounding; the kernel's sums err by no more than a few.
    assert verdict.kappa == pytest.approx(truth.kappa * UNIT / 2, rel=2.0**-50, abs=0)
    assert verdict.gap == pytest.approx(truth.gap * UNIT / 4, rel=2.0**-50, abs=0)
    assert verdict.lazy_kappa == pytest.approx((2**59 + truth.kappa - truth.gap) * UNIT / 4, rel=2.0**-50, abs=0)
    if truth.margin is None:
        assert verdict.margin == (math.inf if truth.holds else -math.inf)
    else:
        assert verdict.margin == pytest.approx(truth.margin * UNIT / 2, rel=2.0**-50, abs=0)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(n=st.sampled_from(SIZES), seed=st.integers(0, 2**32))
def test_verdicts_are_exact_at_every_size(kind, n, seed):
    A = kind(n, np.random.default_rng(seed))
    assert_as_judged(A, equality(A))


@settings(max_examples=60)
@given(n=st.sampled_from(SIZES), seed=st.integers(0, 2**32), kind=st.sampled_from([steep, contested, repeated, shifted]))
def test_only_exact_ties_are_left_to_exact_sums(n, seed, kind):
    """Distances that floating-point sums do not tell apart differ by a unit of 2^-58 at least, or not at all."""
    A, error = kind(n, np.random.default_rng(seed)), tv_error(n)
    verdict = np.zeros(1, _verdicts.VERDICT)
    _verdicts.judge(A[None], 0.0, 2 * error, error, np.zeros(1, _scan.SCAN), verdict)
    V = units(A)
    first, second = np.triu_indices(n, 1)
    d = np.abs(V[first] - V[second]).sum(axis=1)
    deficit = (np.maximum(V.T - V.diagonal()[:, None], 0) + np.maximum(V - V.diagonal(), 0))[first, second]
    classes = [np.sort(d[members])[-2:] for members in (deficit == 0, deficit > 0)]
    ties = [len(largest) == 2 and largest[0] == largest[1] for largest in [*classes, np.sort(d - 2 * deficit)[-2:]]]
    between = all(len(largest) for largest in classes) and classes[0][-1] == classes[1][-1]
    assert verdict["settled"][0] or any(ties) or between


@settings(max_examples=60)
@given(n=st.sampled_from([2, 15, 16, 17, 33, 64, 100]), seed=st.integers(0, 2**32), bits=st.integers(6, 54))
def test_at_a_finer_scale_no_pair_is_ruled_out_wrongly(n, seed, bits):
    A, error = saturated(n, np.random.default_rng(seed)), tv_error(n)
    least = 1 - 2.0**-bits
    state, finer, shared = _scan._finer(n)
    cut = _scan._cut(A, least, error, state, finer, shared)
    first, second = np.triu_indices(n, 1)
    ruled_out = shared[first, second] > cut
    distance = np.abs(units(A)[first] - units(A)[second]).sum(axis=1)
    assert (distance[ruled_out] < 2 * least / UNIT).all()
    far_below = (2 * least / UNIT - distance) * UNIT > 4 * ((1 - least) + n * error)  # in distances, twice the TV
    assert cut < 2**16 - 1
    assert ruled_out[far_below].all()


@settings(max_examples=60)
@given(n=st.integers(4, 40), seed=st.integers(0, 2**32), off=st.integers(-2, 2))
def test_one_unit_between_the_best_pairs_decides(n, seed, off):
    """A good pair at distance 2 and another pair at 2 + off units, on four disjoint supports."""
    rng = np.random.default_rng(seed)
    V = np.zeros((n, n), dtype=np.int64)
    order = rng.permutation(n)
    a, b, c, d = order[:4]
    V[:, order[4:] if n > 4 else order] = 1  # the other rows are alike and near everything
    for row, column in ((a, a), (b, b), (c, d), (d, c)):  # a and b keep their weight, c and d swap theirs
        V[row] = 0
        V[row, column] = 2**58 - 64
        V[row, rng.choice(order)] += 64
    V[c, d] -= 0 if off >= 0 else 64
    V[c, order[rng.integers(0, n)]] += max(off, 0)
    rest = order[4:]
    V[rest] = 2**58 // n
    A = stored(V)
    assert_as_judged(A, equality(A))


@pytest.mark.parametrize("m", [4, 8, 20, 64, 128, 252])
@pytest.mark.parametrize("good", [True, False])
def test_the_integers_cannot_hide_the_best_pair(m, good):
    """Rounding down brings rows 0 and 1 nearer by m integers and takes 2 and 3 apart by m; 0 and 1 are further apart."""
    n, base, g = m + 5, int(_overlaps.SCALE) // (2 * m), int(_overlaps.SCALE) // (5 * m)
    waves = np.repeat([1, -1], m // 2), np.tile([1, -1], m // 2)
    V = np.full((n, n), 2**58 // 16)  # equal weights, on the diagonal too: the four tokens are self-dominant
    V[:, 4:] = multiples(base, False) + np.random.default_rng(m).integers(
        0, 2**40, (n, n - 4)
    )  # no ties, which are settled otherwise
    for row, wave, step, late_if_larger in ((0, 1, g, True), (1, 1, -g, True), (2, 0, g + 1, False), (3, 0, -g - 1, False)):
        K = base + step * waves[wave]
        V[row, 4:-1] = multiples(K, (base < K) == late_if_larger)
    V[0, 4] += np.sign(V[0, 4] - V[1, 4]) * 2**47 // 31  # one integer further apart
    if not good:
        V[[1, 3], [0, 2]] += 2**10  # neither of the two pairs is: they compete in one class
    V[:, -1] += 2**58 - V.sum(axis=1)
    A = stored(V)
    _, sums, common = scanned(A)
    ell = sums[:, None] + sums[None, :] - 2 * common.astype(np.int64)
    assert ell[2, 3] - ell[0, 1] > 2 * m - 10
    assert judge(A).pair == (0, 1)
    assert judge(A).holds is good
    assert_as_judged(A, equality(A))


@settings(max_examples=100)
@example(n=36, seed=36, kind=shifted, rounding=2.0**-49)
@given(
    n=st.integers(2, 40), seed=st.integers(0, 2**32), kind=st.sampled_from(KINDS), rounding=st.sampled_from([2.0**-49, 2.0**-13])
)
def test_both_scans_find_the_same(n, seed, kind, rounding):
    """Few tokens are scanned in float64, many in integers; where neither has a near-tie they agree on all pairs."""
    A = kind(n, np.random.default_rng(seed))[None]
    error = tv_error(n)
    records = np.zeros((2, 1), _scan.SCAN)
    slack = 2 * rounding + 2 * error
    _few.scan_in_lanes(A, rounding, slack, records[0])
    _scan.scan_in_integers(A, rounding, slack, error, records[1])
    (few,), (many,) = records
    # Where the two classes tie, either scan may say that the condition fails and look for the loosest pair.
    tied = max(abs(r["good"] - r["other"]) for r in (few, many)) <= 2 * error
    for name in ("good", "other") if tied else ("good", "other", "looseness"):
        assert few[name] == pytest.approx(many[name], abs=2 * error)
        close = [abs(r[name] - r[name + "_second"]) <= 2 * error for r in (few, many) if np.isfinite(r[name])]
        assert len(set(close)) <= 1
        pair = "loosest_pair" if name == "looseness" else name + "_pair"
        if not any(close):
            assert np.array_equal(few[pair], many[pair])
    assert few["exact"] == many["exact"]
    if not rounding < 2.0**-40:  # far above what adding up in another order does
        assert few["fragile"] == many["fragile"]


# --- the integers -----------------------------------------------------------------------------------------------


def scanned(A):
    """q, its row sums, and the overlaps of rows, of the size of A."""
    n = len(A)
    rows, columns = _overlaps.padded(n)
    q, common, sums = np.zeros((rows, columns), np.uint16), np.empty((rows, rows), np.uint16), np.empty(n, np.int32)
    _overlaps.quantize(A, q, sums)
    _overlaps.overlaps(q, common)
    return q, sums, common[:n, :n]


def assert_bound(A) -> None:
    """What the modules prove, in rationals or integers of any size: |l_ij - 2 S TV_ij| < n + 1."""
    n = len(A)
    q, sums, common = scanned(A)
    F, S = oracle.exact(A), Fraction(_overlaps.SCALE)
    for i in range(n):
        assert sums[i] == q[i].astype(np.int64).sum() < 2**16
        for j in range(i + 1, n):
            assert common[i, j] == np.minimum(q[i], q[j]).astype(np.int64).sum()
            assert abs(int(sums[i]) + int(sums[j]) - 2 * int(common[i, j]) - 2 * S * oracle.tv(F, i, j)) < n + 1


@settings(max_examples=200)
@given(matrix())
def test_integer_distances_are_within_the_proven_bound(A):
    assert_bound(A)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(n=st.sampled_from([7, 16, 17, 33]), seed=st.integers(0, 2**32))
def test_integer_distances_of_longer_rows_are_within_the_proven_bound(kind, n, seed):
    assert_bound(kind(n, np.random.default_rng(seed)))


def test_the_bound_is_nearly_reached():
    """The worst case, not only the usual one: n - 1 entries that each lose almost a whole integer against the other row."""
    n = 64
    A = np.zeros((n, n))
    A[:, -1] = 1
    for k in range(n - 1):
        A[0, k] = np.nextafter(2 * (k + 1) / _overlaps.SCALE, 0)
        A[1, k] = np.nextafter((k + 1) / _overlaps.SCALE, 1)
    for i in (0, 1):
        A[i, -1] = 1 - A[i, :-1].sum()
    _, sums, common = scanned(A)
    ell = int(sums[0]) + int(sums[1]) - 2 * int(common[0, 1])
    off = ell - 2 * Fraction(_overlaps.SCALE) * oracle.tv(oracle.exact(A), 0, 1)
    assert n - 3 < abs(off) < n + 1


@settings(max_examples=20)
@given(n=st.sampled_from([2, 5, 40, 300]), seed=st.integers(0, 2**32))
@example(n=1024, seed=0)
def test_sums_of_the_heaviest_rows_fit_sixteen_bits(n, seed):
    """bfloat16 rows may sum to 1.03."""
    rng = np.random.default_rng(seed)
    A = rng.dirichlet(np.ones(n), n) * (1.03 / 1.0000001)
    A[0], A[1] = 0, 0
    A[:2, 0] = 1.0
    A[:2, 1] = 0.0299999
    q, sums, common = scanned(np.minimum(A, 1))
    assert np.array_equal(sums, q[:n].astype(np.int64).sum(axis=1))
    for i in (0, n // 2):
        assert np.array_equal(common[i, i + 1 :], np.minimum(q[i], q[i + 1 : n]).astype(np.int64).sum(axis=1))
    assert common[0, 1] == sums[0] > 65_000


# --- batches, threads, element types ------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [3, 33, 130])
def test_batches_and_threads_give_the_same_bytes(n):
    rng = np.random.default_rng(n)
    A = np.stack([kind(n, rng) for kind in KINDS for _ in range(2)])
    whole = equality(A)
    with ThreadPoolExecutor(4) as pool:  # callers beside one another, each of which may use threads itself
        again = list(pool.map(lambda _: equality(A), range(4)))
        single = list(pool.map(equality, A))
    for name in whole.__dict__:
        expected = getattr(whole, name)
        for other in again:
            assert getattr(other, name).tobytes() == expected.tobytes()
        assert np.array([getattr(one, name) for one in single]).tobytes() == expected.tobytes()


def test_the_batch_is_shared_out_completely():
    """Every matrix is given to exactly one share, with its own parameters, whatever the number of cores."""
    for count in (1, 2, 3, 7, 64):
        A = random_stochastic(100, count, "dirichlet", np.random.default_rng(count))
        weights, out = np.arange(1.0, count + 1), np.zeros(count)

        def kernel(matrices, own, factor, target):
            target += factor * own * matrices[:, 0, 0]

        _kernels.run(kernel, A, weights, 2.0, out=out)
        assert np.array_equal(out, 2 * weights * A[:, 0, 0])


def test_an_error_in_a_thread_is_raised():
    def kernel(matrices, out):
        raise RuntimeError("in a share")

    with pytest.raises(RuntimeError, match="in a share"):
        _kernels.run(kernel, np.zeros((8, 100, 100)), out=np.zeros(8))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system starts processes anew instead of forking")
def test_a_forked_process_has_threads_of_its_own():
    """Threads that the parent has used are not there after a fork: a child that counts on them waits for ever."""
    code = """if True:
        import multiprocessing, os
        import numpy as np
        from dobrushin import equality, random_stochastic
        os.sched_getaffinity = lambda _: {0, 1}
        A = random_stochastic(100, 16, "dirichlet", np.random.default_rng(0))
        before = equality(A).kappa
        with multiprocessing.get_context("fork").Pool(1) as pool:
            assert np.array_equal(pool.apply(equality, (A,)).kappa, before)
        """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=100)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@settings(max_examples=15)
@given(n=st.sampled_from([9, 65, 196]), seed=st.integers(0, 2**32), kind=st.sampled_from([dirichlet, steep, contested, repeated]))
def test_narrower_types_are_judged_as_stored(dtype, n, seed, kind):
    """In narrow types many weights tie: rounding makes equal what was not."""
    A = torch.from_numpy(kind(n, np.random.default_rng(seed))).to(getattr(torch, dtype))
    cut = torch.from_numpy(stored(units(A.double().numpy()))).to(A.dtype)  # to multiples of 2^-58
    assert_as_judged(cut.double().numpy(), equality(cut))
