"""Rows of verdicts are what was added, in order, whatever memory they lie in."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dobrushin import equality
from dobrushin._memory import Memory, mapped
from dobrushin._rows import Rows

SHAPES = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=6)


@given(SHAPES, SHAPES, st.integers(0, 2**32 - 1))
def test_a_table_is_what_was_added_and_stays_when_its_memory_is_taken_again(shapes, others, seed):
    rng, memory = np.random.default_rng(seed), Memory()
    tables, expected = [], []
    for these in (shapes, others):
        rows, there = Rows(memory), []
        for layer, (inputs, heads) in enumerate(these, start=1):
            scope = ("head", "content")[int(rng.integers(2))]
            verdicts = equality(rng.dirichlet(np.ones(3), (inputs, heads, 3)))
            rows.add(scope, layer, np.arange(inputs)[:, None], np.arange(heads), verdicts, 3)
            for i in range(inputs):
                for h in range(heads):
                    numbers = [float(getattr(verdicts, name)[i, h]) for name in ("kappa", "gap", "margin", "holds", "fragile")]
                    there.append((scope, layer, i, h, *numbers, *verdicts.pair[i, h].tolist(), 3))
        tables.append(rows.table())
        expected.append(there)
    for table, there in zip(tables, expected, strict=True):
        assert [tuple(row) for row in table.itertuples(index=False)] == there


@pytest.mark.parametrize("shape", [(0,), (3, 0), (2, 5)])
def test_mapped_memory_is_zero_and_can_be_written(shape):
    array = mapped(*shape, dtype=np.float32)
    assert array.shape == shape
    assert array.dtype == np.float32
    assert not array.any()
    array += 1
    assert array.sum() == array.size


def test_a_name_is_given_the_same_memory_again_unless_it_is_too_small():
    memory = Memory()
    first = memory.array("a", 10)
    first[...] = 7
    assert np.shares_memory(memory.array("a", 2, 4), first)
    assert not np.shares_memory(memory.array("b", 10), first)
    larger = memory.array("a", 11)
    assert not np.shares_memory(larger, first)
    assert (first == 7).all()
