from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import oracle
from dobrushin import check_stochastic, coefficient, doeblin, equality, lazy, leave_one_out, pairwise_tv, restrict
from dobrushin.stochastic import ROW_SUM_TOLERANCE, widen
from strategies import any_matrix, dyadic_row, matrix

CHECKED = [check_stochastic, coefficient, doeblin, equality, lazy, leave_one_out, pairwise_tv, lambda A: restrict(A, [0, 1])]
"""All functions that take one stochastic matrix: each must refuse what is none."""


def stack(*shape: int, n: int = 3) -> np.ndarray:
    """Valid matrices that differ, to be spoilt in one place."""
    return np.random.default_rng(0).dirichlet(np.ones(n), (*shape, n))


def refused(message: str):
    return pytest.raises(ValueError, match=re.escape(message))


# --- what is accepted -------------------------------------------------------------------------------------------


@given(any_matrix())
def test_a_stochastic_matrix_comes_back_with_the_same_numbers(A):
    before = A.tobytes()
    for given_as in (A, A.tolist(), torch.from_numpy(A), pd.DataFrame(A), np.asfortranarray(A), A.astype(">f8")):
        checked = check_stochastic(given_as)
        assert checked.dtype == np.float64
        assert checked.tobytes() == before
    assert A.tobytes() == before


@settings(max_examples=30)
@given(st.data(), st.sampled_from(["float16", "float32", "bfloat16"]))
def test_narrow_types_are_widened_without_changing_a_value(data, dtype):
    A = torch.tensor(np.array([data.draw(dyadic_row(4)) for _ in range(4)])).to(getattr(torch, dtype))
    widened = check_stochastic(A)
    assert torch.equal(torch.from_numpy(widened), A.double())
    if dtype != "bfloat16":
        assert np.array_equal(check_stochastic(A.numpy()), widened)


@pytest.mark.parametrize("dtype", list(ROW_SUM_TOLERANCE))
def test_the_tolerance_of_row_sums_is_that_of_the_element_type(dtype):
    """Just inside is accepted as it is, just outside refused: nothing is rescaled in between."""
    tolerance, kind = ROW_SUM_TOLERANCE[dtype], getattr(torch, dtype)
    steps = torch.arange(-40, 41) / 32  # row sums from 1 - 5/4 tolerance to 1 + 5/4 tolerance
    accepted = 0
    for step in steps.tolist():
        A = torch.tensor([[0.25, 0.75], [0.5, 0.5 + step * tolerance]], dtype=torch.float64).to(kind)
        excess = abs(sum(Fraction(x) for x in A[1].double().tolist()) - 1)
        if excess > Fraction(tolerance) * Fraction(1001, 1000):
            with pytest.raises(ValueError, match=rf"the matrix, row 1 sums to .*; expected 1 within {tolerance:g} \({dtype}\)"):
                check_stochastic(A)
        elif excess < Fraction(tolerance) * Fraction(999, 1000):
            assert torch.equal(torch.from_numpy(check_stochastic(A)), A.double())
            accepted += 1
    assert 0 < accepted < len(steps)


@given(st.integers(0, 3), st.integers(2, 5))
def test_an_empty_batch_is_no_error(rank, n):
    shape = (*([2] * rank), 0, n, n)
    assert check_stochastic(np.zeros(shape)).shape == shape
    assert lazy(np.zeros(shape)).shape == shape


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", CHECKED)
@settings(max_examples=10)
@given(
    st.sampled_from([(), (3,), (2, 3)]),
    st.sampled_from([np.nan, np.inf, -np.inf, -1e-300, -0.25, 1.0000001, 7.0]),
    st.data(),
)
def test_a_bad_entry_is_named_by_matrix_row_column_and_value(function, shape, value, data):
    A = stack(*shape)
    place = tuple(data.draw(st.integers(0, k - 1)) for k in A.shape)
    A[place] = value
    *batch, row, column = place
    name = f"matrix {batch}" if batch else "the matrix"
    with refused(f"{name}, row {row}: entry in column {column} is {value}; expected a finite weight in [0, 1]"):
        function(A)


@pytest.mark.parametrize("function", CHECKED)
@settings(max_examples=10)
@given(st.sampled_from([(), (3,), (2, 3)]), st.sampled_from([0.0, 0.5, 0.9, 1.00001]), st.data())
def test_a_row_that_does_not_sum_to_one_is_named_with_its_sum(function, shape, factor, data):
    A = stack(*shape)
    *batch, row = (data.draw(st.integers(0, k - 1)) for k in A.shape[:-1])
    A[(*batch, row)] *= factor
    name = f"matrix {batch}" if batch else "the matrix"
    total = f"{name}, row {row} sums to {A[(*batch, row)].sum()}; expected 1 within 1e-06 (float64)"
    with refused(total):
        function(A)


@settings(max_examples=40)
@given(st.data(), st.sampled_from([(2,), (2, 2)]))
def test_the_first_of_several_faults_is_named(data, shape):
    A = stack(*shape)
    places = data.draw(st.lists(st.tuples(*(st.integers(0, k - 1) for k in A.shape)), min_size=1, max_size=4))
    for place in places:
        A[place] = np.nan
    *batch, row, column = min(places)
    with refused(f"matrix {batch}, row {row}: entry in column {column} is nan"):
        check_stochastic(A)


@pytest.mark.parametrize("function", CHECKED)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (3, 2), (5, 2, 3), (4, 0, 3)])
def test_only_square_matrices(function, shape):
    with refused(f"A has shape {shape}; expected (..., n, n)"):
        function(np.zeros(shape))


@pytest.mark.parametrize("function", CHECKED)
@pytest.mark.parametrize("shape", [(1, 1), (5, 1, 1), (0, 0)])
def test_at_least_two_tokens(function, shape):
    with refused(f"n = {shape[-1]}; expected n >= 2"):
        function(np.ones(shape))


@pytest.mark.parametrize("function", CHECKED)
@pytest.mark.parametrize(
    ("A", "kind"),
    [
        (np.eye(2, dtype=int), "int64"),
        (np.eye(2, dtype=bool), "bool"),
        (np.eye(2, dtype=complex), "complex128"),
        (np.eye(2, dtype=np.longdouble), np.dtype(np.longdouble).name),
        (np.eye(2, dtype=object), "object"),
        (torch.eye(2, dtype=torch.int8), "int8"),
        (torch.eye(2, dtype=torch.complex64), "complex64"),
        ([[1, 0], [0, 1]], "int64"),
        ([["1", "0"], ["0", "1"]], "str"),
        (None, "object"),
    ],
)
def test_only_real_floating_point(function, A, kind):
    with pytest.raises(ValueError, match=rf"A has element type {kind}\d*; expected one of float64, float32, float16, bfloat16"):
        function(A)


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (scipy.sparse.csr_array(np.eye(2)), "A is a csr_array that is no array"),
        (torch.eye(2, dtype=torch.float64).to_sparse(), "A is a torch.sparse_coo tensor on cpu; expected a dense one"),
        (torch.empty(2, 2, device="meta"), "A is a torch.strided tensor on meta; expected a dense one that holds values"),
        ([torch.eye(2).bfloat16(), torch.eye(2).bfloat16()], "A is a list that is no array"),
        ([torch.eye(2).requires_grad_()], "A is a list that is no array"),
        ([[0.5, 0.5], [1.0]], "A is a list that is no array"),
    ],
)
def test_what_is_no_dense_array_is_refused_by_name(A, message):
    for function in (equality, check_stochastic):
        with refused(message):
            function(A)


def test_the_mask_of_a_masked_array_is_not_lost():
    masked = np.ma.masked_array(np.eye(2), mask=[[True, False], [False, False]])
    for function in CHECKED:
        with refused("A is a masked array; expected a plain array"):
            function(masked)
    with refused("keep is a masked array"):
        restrict(np.eye(3), np.ma.masked_array([0, 1, 2], mask=[False, False, True]))
    with refused("weights is a masked array"):
        widen(masked, name="weights")


def test_rows_normalised_along_the_wrong_axis_are_refused():
    scores = np.exp(stack())
    with refused("the matrix, row 0 sums to"):
        coefficient(scores / scores.sum(axis=0, keepdims=True))


def test_attention_after_dropout_is_refused():
    torch.manual_seed(0)
    A = torch.softmax(torch.randn(2, 8, 8), dim=-1)
    check_stochastic(A)
    with refused("in evaluation mode (dropout breaks the sums)"):
        check_stochastic(torch.nn.functional.dropout(A, 0.1).clamp(max=1))


@given(any_matrix(), st.floats(0, 1))
def test_rows_may_sum_to_less_only_where_that_is_asked_for(A, factor):
    assume(factor < 1 - 1e-5)
    less = A * factor
    assert np.array_equal(check_stochastic(less, substochastic=True), less)
    with refused("sums to"):
        check_stochastic(less)
    more = A.copy()
    more[-1] = 0
    more[-1, :2] = 0.51
    with refused(f"row {len(A) - 1} sums to 1.02; expected at most 1 within 1e-06"):
        check_stochastic(more, substochastic=True)


# --- lazy -------------------------------------------------------------------------------------------------------


@given(any_matrix())
def test_lazy_is_half_the_identity_and_half_the_matrix(A):
    before, L = A.tobytes(), lazy(A)
    assert check_stochastic(L) is not None
    for i, row in enumerate(oracle.lazy(oracle.exact(A))):
        for k, exact in enumerate(row):  # off the diagonal halving is exact but for subnormal numbers
            assert abs(Fraction(L[i, k]) - exact) <= (Fraction(1, 2**53) if i == k else Fraction(5e-324))
    assert A.tobytes() == before
    assert not np.shares_memory(A, L)


# --- restrict ---------------------------------------------------------------------------------------------------


@given(any_matrix(), st.data())
def test_restricting_keeps_rows_and_columns_in_the_order_given(A, data):
    n, before = len(A), A.tobytes()
    keep = data.draw(st.lists(st.integers(0, n - 1), min_size=2, unique=True))
    F = [[Fraction(float(A[i, k])) for k in keep] for i in keep]
    raw = None
    if all(sum(row) for row in F):
        raw, part = restrict(A, keep, renormalize=False), restrict(A, keep)
        assert np.array_equal(raw, A[np.ix_(keep, keep)])
        smallest = Fraction(2.0**-1022)  # below it a quotient is rounded absolutely
        for i, row in enumerate(F):
            for k, x in enumerate(row):
                exact = x / sum(row)
                assert abs(Fraction(part[i, k]) - exact) <= max(exact, smallest) * Fraction(len(keep) + 2, 2**53)
        assert check_stochastic(part) is not None
    else:
        row = next(i for i, weights in zip(keep, F, strict=True) if not sum(weights))
        with refused(f"the matrix, row {row}: its whole mass lies on removed tokens (kept mass 0)"):
            restrict(A, keep)
    assert A.tobytes() == before


@given(matrix(), st.data())
def test_all_ways_to_name_tokens_agree(A, data):
    n = len(A)
    A = 0.5 * A + 0.5 / n
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    assume(mask.sum() >= 2)
    indices = np.flatnonzero(mask)
    expected = restrict(A, indices)
    for keep in (mask, mask.tolist(), torch.from_numpy(mask), indices.tolist(), tuple(indices), indices.astype(np.uint8)):
        assert np.array_equal(restrict(A, keep), expected)
    batch = np.stack([A, np.eye(n), A])
    assert np.array_equal(restrict(batch, mask)[2], expected)
    assert restrict(batch[:, None], mask).shape == (3, 1, len(indices), len(indices))


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ([], "keep selects no token; expected at least 2"),
        (np.zeros(3, bool), "keep selects no token; expected at least 2"),
        ([1], "keep selects only token 1; expected at least 2"),
        ([False, False, True], "keep selects only token 2; expected at least 2"),
        ([0, 2, 0], "keep names token 0 2 times; expected each at most once"),
        ([0, 3], "keep names token 3; expected indices from 0 to 2"),
        ([0, -1], "keep names token -1; expected indices from 0 to 2"),
        ([True, True], "keep is a mask of length 2; expected 3"),
        ([0.0, 1.0], "keep has element type float64; expected integer token indices or a Boolean mask"),
        ([[0, 1], [1, 2]], "keep has shape (2, 2); expected one list of token indices or one mask"),
        (np.array(1), "keep has shape (); expected one list of token indices or one mask"),
    ],
)
def test_a_bad_selection_says_what_is_wrong(keep, message):
    with refused(message):
        restrict(stack(), keep)


def test_a_row_left_without_mass_is_named_in_its_batch():
    A = stack(2, 2, n=4)
    A[1, 0, 2] = [0, 1, 0, 0]
    for renormalize in (True, False):
        with refused("matrix [1, 0], row 2: its whole mass lies on removed tokens (kept mass 0); expected some attention"):
            restrict(A, [3, 2, 0], renormalize=renormalize)


def test_a_selection_is_not_changed():
    mask = np.array([True, False, True])
    mask.flags.writeable = False
    restrict(stack(), mask)
    chosen = [2, 0]
    restrict(stack(), chosen)
    assert chosen == [2, 0]
