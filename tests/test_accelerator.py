"""The scan on an accelerator, run on the CPU: torch is told that tensors lie elsewhere.

No accelerator takes part but in one test, which is skipped where there is none.  Whatever the working type and the
chunks, any answer must be byte for byte that of the compiled kernels.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import dobrushin.measure
from dobrushin import _accelerator, _few, _scan, coefficient, equality, random_stochastic, stochastic
from dobrushin.equality import tv_error
from strategies import any_matrix, matrix
from test_kernels import KINDS, dirichlet

TYPES = [torch.float64, torch.float32]
FIELDS = ("kappa", "lazy_kappa", "gap", "margin", "holds", "fragile", "pair")


@contextmanager
def elsewhere(**options):
    """Within the block, CPU tensors are treated as if they lay on an accelerator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["dobrushin.equality"], "on_accelerator", lambda A: isinstance(A, torch.Tensor))
        patch.setattr(_accelerator, "scan_pairs", partial(_accelerator.scan_pairs, **options))
        yield


def assert_same(A, dtype=torch.float64, entries=_accelerator.CHUNK_ENTRIES, **options):
    tensor = A if isinstance(A, torch.Tensor) else torch.from_numpy(A)
    expected = equality(tensor, **options)
    with elsewhere(dtype=dtype, entries=entries):
        found = equality(tensor, **options)
    for name in FIELDS:
        assert np.asarray(getattr(found, name)).tobytes() == np.asarray(getattr(expected, name)).tobytes(), name


def scanned(A, dtype):
    """Records of the scan on the device and of that on the CPU, and how many matrices were left to the CPU."""
    rounding, error = 2.0**-13, tv_error(A.shape[-1])
    ours, expected = np.zeros((2, len(A)), _scan.SCAN)
    slack = 3 * rounding + 2 * error
    left = _accelerator.scan_pairs(torch.from_numpy(A), A, rounding, slack, out=ours, dtype=dtype)
    _scan.scan_pairs(A, rounding, slack, error, expected)
    return ours, expected, left


@settings(max_examples=300)
@given(any_matrix(), st.sampled_from(TYPES), st.sampled_from([None, 0.0, 2.0**-13, 0.3]))
@example(np.eye(2), torch.float32, None)
@example(np.eye(5)[::-1].copy(), torch.float64, None)
@example(np.full((4, 4), 0.25), torch.float32, None)
@example(np.array([[1.0, 0.0], [1.0, 0.0]]), torch.float64, None)
@example(np.array([[5e-324, 1.0], [0.0, 1.0]]), torch.float32, None)
@example(np.array([[0.0, 1.0, 0.0], [0.0, 1.0, 5e-324], [1.0, 0.0, 0.0]]), torch.float32, None)
def test_small_matrices_full_of_ties_get_the_same_bytes(A, dtype, rounding):
    assert_same(A, dtype, rounding=rounding)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25)
@given(
    st.integers(2, 64),
    st.integers(0, 2**32),
    st.sampled_from(TYPES),
    st.sampled_from(["float64", "float32", "float16", "bfloat16"]),
    st.sampled_from([1, 1000, 9000, 2**21]),
)
def test_batches_of_every_type_and_size_get_the_same_bytes(kind, n, seed, dtype, stored, entries):
    rng = np.random.default_rng(seed)
    A = torch.from_numpy(np.stack([kind(n, rng) for _ in range(4)]).reshape(2, 2, n, n)).to(getattr(torch, stored))
    assert_same(A, dtype, entries)


@settings(max_examples=80)
@given(st.integers(9, 64), st.integers(0, 2**32), st.integers(8, 53), st.booleans(), st.sampled_from(TYPES))
@example(9, 0, 53, True, torch.float32)
@example(9, 0, 53, False, torch.float64)
def test_near_ties_of_every_size_are_decided_rightly(n, seed, exponent, good, dtype):
    """The best good pair and the best other one are at distances 1 and 1 - 2^-exponent, in either order."""
    order = np.random.default_rng(seed).permutation(n)
    i, j, k, l, *shared = order[:9].tolist()
    A = np.full((n, n), 1 / n)
    A[[i, j, k, l]] = 0
    A[i, i] = A[j, j] = A[k, l] = A[l, k] = 0.5  # i and j keep their weight, k and l swap theirs
    for column, rows in zip(shared, ([i, k], [i, l], [j, k], [j, l]), strict=False):  # all other pairs overlap
        A[rows, column] = 0.25
    for row, column in ((k, l), (l, k)) if good else ((i, i), (j, j)):
        A[row, column] -= 2.0**-exponent
        A[row, shared[4]] += 2.0**-exponent
    verdict = equality(A)
    assert verdict.holds is good
    assert verdict.margin == (1 if good else -1) * 2.0**-exponent
    assert_same(A, dtype)


def test_a_rounding_that_just_makes_a_verdict_fragile_gets_the_same_bytes():
    """Fragility sets in where the slack reaches the margin: there it hangs on the last bits of the distances."""
    turned = 0
    for n in range(3, 40, 2):
        A = dirichlet(n, np.random.default_rng(n))
        critical = abs(equality(A).margin) / (2 * (1 + max(stochastic.ROW_SUM_TOLERANCE.values())))
        if critical > 0.5:  # one class of pairs is empty
            continue
        seen = set()
        for off in (-(2.0**-8), -(2.0**-26), -(2.0**-34), -(2.0**-50), 0, 2.0**-50, 2.0**-34, 2.0**-26, 2.0**-8):
            seen.add(equality(A, rounding=critical * (1 + off)).fragile)
            for dtype in TYPES:
                assert_same(A, dtype, rounding=critical * (1 + off))
        turned += len(seen) == 2
    assert turned > 5


def test_near_ties_of_the_loosest_pair_get_the_same_bytes():
    """On the way from one matrix to another, the place where the pair that has the gap changes is halved in."""

    def loosest(A):
        record = np.zeros(1, _scan.SCAN)
        _few.scan_in_lanes(A[None], 0.0, 0.0, record)
        return tuple(record["loosest_pair"][0].tolist())

    rng, changes = np.random.default_rng(0), 0
    while changes < 25:
        first, last = random_stochastic(6, 2, "dirichlet", rng)
        if loosest(first) == loosest(last) or (-1, -1) in (loosest(first), loosest(last)):
            continue
        changes += 1
        before, after = 0.0, 1.0
        for step in range(54):
            middle = (before + after) / 2
            A = (1 - middle) * first + middle * last
            before, after = (middle, after) if loosest(A) == loosest(first) else (before, middle)
            if step % 6 == 0:
                for dtype in TYPES:
                    assert_same(A, dtype)


@settings(max_examples=100)
@given(st.integers(2, 40), st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from(TYPES))
def test_what_the_device_settles_has_the_pairs_and_the_distances_of_the_cpu(n, seed, kind, dtype):
    A = kind(n, np.random.default_rng(seed))[None]
    ours, expected, left = scanned(A, dtype)
    if left:
        assert ours.tobytes() == expected.tobytes()
        return
    error = tv_error(n, _accelerator._ROUNDOFF[dtype]) + tv_error(n)
    for name in ("good", "other", "looseness"):
        pair = "loosest_pair" if name == "looseness" else name + "_pair"
        assert np.array_equal(ours[pair], expected[pair])
        assert ours[name] == pytest.approx(expected[name], abs=error)
        second = ours[name + "_second"]
        assert not np.isfinite(second) or abs(ours[name] - second) > 2 * error
    assert np.array_equal(ours["fragile"], expected["fragile"])


@pytest.mark.parametrize("dtype", TYPES)
def test_only_near_ties_are_left_to_the_cpu(dtype):
    """Random matrices are settled on the device, matrices of which whole groups of pairs tie are not."""
    A = random_stochastic(48, 100, "dirichlet", np.random.default_rng(0))
    assert scanned(A, dtype)[2] <= (0 if dtype == torch.float64 else 20)
    shifts = np.stack([np.roll(np.eye(48), k, axis=0) for k in range(5)])
    assert scanned(shifts, dtype)[2] == 5


@settings(max_examples=60)
@given(matrix(largest=12), st.sampled_from(TYPES))
def test_distances_are_within_the_bound_of_their_type(A, dtype):
    n = len(A)
    exact = 0.5 * np.abs(A[:, None] - A[None]).sum(-1)  # off by tv_error(n) itself
    found = 0.5 * _accelerator._l1(torch.from_numpy(A)[None].to(dtype))[0].double().numpy()
    assert np.abs(found - exact).max() <= tv_error(n, _accelerator._ROUNDOFF[dtype]) + tv_error(n)


class LargestResult(TorchDispatchMode):
    """Notes how many numbers the largest result of any operation has."""

    numbers = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, torch.Tensor):
                self.numbers = max(self.numbers, part.numel())
        return result


@pytest.mark.parametrize("dtype", TYPES)
def test_memory_is_bounded_whatever_the_size_and_the_batch(dtype, monkeypatch):
    monkeypatch.setattr(_accelerator, "_DIFFERENCES", 2**15)
    A = random_stochastic(50, 20, "dirichlet", np.random.default_rng(1))
    with LargestResult() as largest:
        assert_same(A, dtype, entries=10_000)
    # Some views and checks see the whole batch; but never are there as many numbers as differences of one matrix.
    assert largest.numbers <= max(2**15, A.size) < 50**3
    assert largest.numbers >= 10_000


@pytest.mark.parametrize("stored", [torch.float64, torch.float32, torch.bfloat16])
def test_the_working_type_is_double_wherever_there_is_one(stored):
    class Somewhere:
        dtype = stored

        def __init__(self, kind):
            self.device = torch.device(kind)

    assert _accelerator.working_type(Somewhere("cuda:1")) == torch.float64
    assert _accelerator.working_type(Somewhere("mps")) == (torch.float64 if stored == torch.float64 else torch.float32)


def test_tensors_are_told_by_their_device():
    assert stochastic.on_accelerator(torch.empty(2, 2, device="meta"))
    for A in (torch.eye(2), np.eye(2), [[1.0, 0.0], [0.0, 1.0]]):
        assert not stochastic.on_accelerator(A)


def test_single_matrices_empty_batches_and_gradients():
    A = torch.from_numpy(dirichlet(7, np.random.default_rng(3)))
    assert_same(A)
    assert_same(torch.empty(0, 5, 5))
    assert_same(A.clone().requires_grad_())
    assert_same(A.mT.contiguous().mT)  # of other strides
    with elsewhere():
        assert coefficient(A) == coefficient(A.numpy())


def test_a_bad_row_is_the_same_error():
    A = torch.eye(4)
    A[2, 1] = 0.5
    with elsewhere(), pytest.raises(ValueError, match=r"the matrix, row 2 sums to 1\.5"):
        equality(A)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_an_accelerator_gives_the_same_bytes(device):
    if not {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}[device]():
        pytest.skip(f"torch finds no {device} device here: run this test on a machine that has one")
    rng = np.random.default_rng(5)
    for n in (2, 9, 64, 200):
        for kind in KINDS:
            A = torch.from_numpy(np.stack([kind(n, rng) for _ in range(6)])).float()
            expected, found = equality(A), equality(A.to(device))
            for name in FIELDS:
                assert getattr(found, name).tobytes() == getattr(expected, name).tobytes(), (n, kind.__name__, name)


def test_measuring_with_an_accelerator_gives_the_same_table(minilm, few):
    """Restricted matrices and rollouts are sent there, once; here they stay on the CPU but are scanned as if there."""
    expected = dobrushin.measure.measure(minilm, few, progress=False)
    sent = []

    def placed(matrices, device):
        sent.append(matrices.shape)
        return torch.from_numpy(matrices)

    with elsewhere(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(dobrushin.measure, "_placed", placed)
        found = dobrushin.measure.measure(minilm, few, progress=False)
    assert len(sent) >= 4 * minilm.module.config.num_hidden_layers
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_measuring_judges_on_the_cpu_where_there_is_no_double(device):
    A = np.eye(3)
    assert dobrushin.measure._placed(A, device) is A
