from __future__ import annotations

import numpy as np
import pytest

import bench
import bench_measure
from dobrushin import random_stochastic, results, speed_figures


@pytest.mark.parametrize("name", sorted(set(bench.CONTENDERS) - set(bench.NOT_KAPPA)))
@pytest.mark.parametrize("n", [2, 8, 33])
def test_contenders_compute_kappa(name, n):
    A = random_stochastic(n, 4, "softmax", np.random.default_rng(n))
    kappa = [max(np.abs(x - y).sum() / 2 for x in M for y in M) for M in A]
    assert bench.CONTENDERS[name](A) == pytest.approx(kappa, abs=1e-13)


def test_attention_is_of_the_size_asked_for():
    A = bench.attention(8, 100)
    assert A.shape == (100, 8, 8)
    assert np.allclose(A.sum(axis=-1), 1)


def test_the_shortest_of_runs_in_turns_counts():
    order, ticks = [], iter(np.cumsum([0, 5, 0, 1, 0, 3, 0, 2, 0, 4, 0, 9]))
    best = bench.best_times({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 0.0, lambda: float(next(ticks)))
    assert order == ["a", "b"] * 4  # the first turn is not timed
    assert best == {"a": (3.0, 3), "b": (1.0, 3)}


def test_fused_attention_ends_with_the_block(minilm):
    def failing():
        with bench_measure.fused(minilm.module):
            assert minilm.module.config._attn_implementation == "sdpa"
            raise RuntimeError("within")

    with pytest.raises(RuntimeError, match="within"):
        failing()
    assert minilm.module.config._attn_implementation == "eager"


def test_committed_ratios_are_multiples_of_the_verdict():
    kernels, _ = results.read("kernels", speed_figures.BENCH)
    ratios = speed_figures.ratios(kernels)
    assert (ratios["equality"] == 1).all()
    assert set(ratios.index.get_level_values("n")) == set(bench.SIZES)
    assert len(speed_figures.cost(kernels).axes) == 2
