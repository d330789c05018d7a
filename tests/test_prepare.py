"""Heads read once: the numbers of the functions that read them one step at a time."""

from __future__ import annotations

import numpy as np
import pytest

from dobrushin._prepare import read_heads
from dobrushin.stochastic import restricted

TOLERANCE = 1e-5


def heads(n, number, dtype, seed=0):
    drawn = np.exp(3 * np.random.default_rng(seed).standard_normal((number, n, n)))
    return (drawn / drawn.sum(axis=-1, keepdims=True)).astype(dtype)


def read(weights, tokens, n):
    total, content = np.zeros((n, n)), np.empty((len(weights), len(tokens), len(tokens)))
    return read_heads(weights, tokens, TOLERANCE, total, content), total, content


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [3, 7, 8, 9, 17, 128, 130, 137, 261, 300])
@pytest.mark.parametrize("kept", ["all", "neighbours", "every other"])
def test_the_numbers_are_those_of_numpy_to_the_last_bit(n, dtype, kept):
    weights = heads(n, 4, dtype, seed=n)
    tokens = {"all": np.arange(n), "neighbours": np.arange(1, n), "every other": np.arange(0, n, 2)}[kept]
    well, total, content = read(weights, tokens, n)
    assert well
    wide, expected = weights.astype(np.float64), np.zeros((n, n))
    for one in wide:
        expected += one
    np.testing.assert_array_equal(total, expected)
    for k, one in enumerate(wide):
        chosen = np.ascontiguousarray(one[np.ix_(tokens, tokens)])
        np.testing.assert_array_equal(content[k], chosen / chosen.sum(axis=-1, keepdims=True))
    # NumPy adds up scattered tokens in the order in which it has gathered them.
    tolerance = 4 * n * 2.0**-53 if kept == "every other" else 0
    np.testing.assert_allclose(content, restricted(wide, tokens, np.empty_like(content)), rtol=tolerance, atol=0)


def test_padding_does_not_count():
    n, weights = 9, heads(9, 2, np.float32)
    padded = np.full((2, 12, 12), np.float32(np.nan))
    padded[:, :n, :n] = weights
    for one, other in zip(read(padded, np.arange(1, n - 1), n), read(weights, np.arange(1, n - 1), n), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("value", [np.nan, np.inf, -0.1, 1.1, 0.5])
@pytest.mark.parametrize("place", [(0, 0, 0), (1, 4, 8), (2, 8, 3)])
@pytest.mark.parametrize("tokens", [np.arange(1, 8), np.array([], dtype=np.intp)], ids=["some", "none"])
def test_a_fault_anywhere_is_seen(value, place, tokens):
    weights = heads(9, 3, np.float32)
    weights[place] = value if value != 0.5 else weights[place] / 2 + 0.3  # in [0, 1], but the row's sum is wrong
    assert not read(weights, tokens, 9)[0]


def test_a_row_without_weight_on_the_kept_tokens_is_seen():
    weights = heads(9, 3, np.float32)
    weights[1, 4] = np.eye(9)[0]
    assert read(weights, np.arange(9), 9)[0]
    assert not read(weights, np.arange(1, 9), 9)[0]
    assert read(weights, np.array([0, 5]), 9)[0]  # the row itself is not kept
