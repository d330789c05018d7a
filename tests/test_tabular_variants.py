"""Variants are counted on the network that they name, and the first of them is the measurement itself."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import equality, random_stochastic, restrict, results, tabular_data, tabular_variants
from dobrushin.cli import main
from dobrushin.tabular import CONFIGS, counts, judge, train
from dobrushin.tabular_variants import TITLES, TOLERANCES, matrices, study
from test_tabular import TINY, small


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    config = dataclasses.replace(TINY, patience=0)
    return train(config, 0, tabular_data.prepare(small(), 0), tmp_path_factory.mktemp("c"), progress=False)


@pytest.fixture(scope="module")
def table(run):
    return study(run, rows=30)


def test_the_first_variant_is_the_measurement(run, table):
    """Second route: the counts of judge, which shares no code with study beyond the verdict."""
    by = table.set_index(["variant", "column", "layer"])["holds"]
    measured = pd.DataFrame(counts(judge(run.module, run.prepared.X["test"][:30])))
    measured = measured.groupby(["scope", "layer"], observed=True)["holds"].sum()
    for variant, column, scope in (
        ("base", "features", "content"), ("base", "all", "all"), ("base", "averaged", "averaged"),
        ("raw", "features", "content_raw"), ("heads", "features", "head"),
    ):  # fmt: skip
        for layer in (1, 2):
            assert by[variant, column, layer] == measured[scope, layer], (variant, column)


def test_every_variant_is_there_and_counts_what_it_says(run, table):
    assert set(table["variant"]) == set(TITLES)
    sizes = table.groupby(["variant", "column"], observed=True)["matrices"].first()
    assert sizes["base", "features"] == sizes["last", "all"] == sizes["draw0", "features"] == 30
    assert sizes["everything", "features"] == len(run.prepared.X["test"]) == 40
    assert sizes["heads", "features"] == 60
    assert (sizes.xs("averaged", level="column") == 1).all()
    by = table.set_index(["column", "layer", "variant"])["holds"]
    for column in ("features", "all", "averaged"):
        for layer in (1, 2):
            ascending = [by[column, layer, name] for name in ("base", *(f"gap{t:g}" for t in TOLERANCES))]
            assert ascending == sorted(ascending)  # a larger tolerance accepts more
    last = judge(run.module, run.prepared.X["test"][-30:], scopes=("all",)).groupby("layer")["holds"].sum()
    assert [by["all", layer, "last"] for layer in (1, 2)] == list(last)


def test_matrices_to_look_at_are_those_that_were_judged(run):
    shown = matrices(run, rows=30)
    verdicts = judge(run.module, run.prepared.X["test"][:30], scopes=("content", "averaged"))
    verdicts = verdicts.set_index(["scope", "layer", "input"]).sort_index()
    found = set()
    for (layer, which, row), long in shown.groupby(["layer", "which", "input"], observed=True):
        A = long.pivot_table(index="i", columns="j", values="weight").to_numpy()
        verdict = equality(restrict(A, range(1, 5)))
        stored = verdicts.loc[("averaged" if which == "mean" else "content", layer, row)]
        assert verdict.kappa == pytest.approx(stored["kappa"], rel=1e-12)  # sums in another order
        assert verdict.holds == stored["holds"] == {"fails": False, "holds": True}.get(which, stored["holds"])
        found.add((layer, which))
    content = verdicts.loc["content"].groupby("layer")["holds"]
    for layer, some, every in zip((1, 2), content.any(), content.all(), strict=True):
        assert ((layer, "holds") in found) == some
        assert ((layer, "fails") in found) == (not every)
        assert (layer, "mean") in found


def test_the_network_is_left_as_it_was(run):
    before = {name: tensor.clone() for name, tensor in run.module.state_dict().items()}
    study(run, rows=5)
    after = run.module.state_dict()
    assert all(after[name].dtype == torch.float32 and torch.equal(after[name], before[name]) for name in before)
    assert all(torch.equal(after[name], run.best[name]) for name in before)


@settings(max_examples=50)
@given(st.integers(3, 12), st.integers(0, 2**32 - 1))
def test_float32_programs_agree_with_exact_verdicts_where_nothing_is_near(n, seed):
    A = random_stochastic(n, 20, "dirichlet", np.random.default_rng(seed)).astype(np.float32)
    verdicts = equality(A, rounding=1e-6)
    clear = ~verdicts.fragile
    A = A.astype(np.float64)
    assert (tabular_variants._pair_float32(A) == verdicts.holds)[clear].all()
    left, right = tabular_variants._sides_float32(A)
    assert np.allclose(left, verdicts.lazy_kappa, atol=1e-6)  # 12 additions in float32
    assert np.allclose(right, 0.5 * (1 + verdicts.kappa), atol=1e-6)


@settings(max_examples=50)
@given(st.integers(2, 7), st.integers(0, 2**32 - 1))
def test_pairs_are_counted_as_one_would_by_hand(n, seed):
    A = random_stochastic(n, 3, "dirichlet", np.random.default_rng(seed))
    A = np.round(A, 1)  # ties; nothing here needs rows that sum to 1
    directions, pairs = tabular_variants._self_dominance(A)
    good = [(M[i, i] >= M[j, i], M[j, j] >= M[i, j]) for M in A for i in range(n) for j in range(i + 1, n)]
    assert pairs.size == len(good)
    assert pairs.sum() == sum(a and b for a, b in good)
    assert directions.size == 2 * len(good)
    assert directions.sum() == sum(map(sum, good))


@settings(max_examples=50)
@given(st.integers(2, 8), st.integers(0, 2**32 - 1))
def test_the_geometric_mean_is_the_softmax_of_mean_scores(n, seed):
    scores = np.random.default_rng(seed).normal(size=(3, 4, n, n))

    def softmax(x):
        return np.exp(x) / np.exp(x).sum(axis=-1, keepdims=True)

    expected = softmax(scores.mean(axis=1))
    assert np.allclose(tabular_variants._geometric_mean(softmax(scores)), expected, rtol=1e-12)


def test_the_command_needs_finished_runs_and_writes_one_result(tmp_path, monkeypatch, capsys):
    config = dataclasses.replace(TINY, patience=0)
    monkeypatch.setitem(CONFIGS, "tiny", config)
    monkeypatch.setitem(tabular_data.TABLES, "small", lambda _: small())
    monkeypatch.delenv(tabular_data.DATA_VARIABLE, raising=False)
    folders = ["--output", str(tmp_path / "out"), "--checkpoints", str(tmp_path / "c")]
    assert main(["variants", "tiny", "--seeds", "0,2", *folders]) == 2
    assert "tiny-seed0.safetensors holds no finished run; train first: dobrushin train tiny --seed 0" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    for seed in ("0", "2"):
        assert main(["train", "tiny", "--seed", seed, *folders]) == 0
    assert main(["variants", "tiny", "--seeds", "0,2", *folders]) == 0
    found, how = results.read("ftt_tiny_variants", tmp_path / "out")
    shown, _ = results.read("ftt_tiny_matrices", tmp_path / "out")
    assert set(found["seed"]) == set(shown["seed"]) == {0, 2}
    assert how["command"] == "dobrushin variants tiny --seeds 0,2"
    _, trained = results.read("ftt_tiny_seed2", tmp_path / "out")
    assert how["networks"][1]["weights"] == trained["weights"]
    with pytest.raises(SystemExit):
        main(["variants", "tiny", "--seeds", "0,-2", *folders])
    assert "-2 is not a seed" in capsys.readouterr().err
