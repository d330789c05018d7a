"""A run is reproducible to the bit, also when it is killed; its measurement is that of the network it reports."""

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rtdl_revisiting_models as authors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from dobrushin import equality, restrict, results, tabular, tabular_data, tabular_results
from dobrushin.cli import main
from dobrushin.fttransformer import catching_blocks
from dobrushin.tabular import CONFIGS, Config, build, counts, judge, predict, score, train

TINY = Config("tiny", "Tiny", "small", 3, width=8, heads=2, batch_size=32, learning_rate=3e-2, patience=1)


def small(task="regression", rows=160, features=4):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(rows, features)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] + 0.1 * rng.normal(size=rows)).astype(np.float32)
    if task == "classification":
        y = (y > 0).astype(np.float32)
    parts = {"train": slice(0, None, 2), "val": slice(1, None, 4), "test": slice(3, None, 4)}
    return tabular_data.Table(
        "small", "Small", task, tuple("abcdefgh"[:features]),
        {part: X[rows] for part, rows in parts.items()}, {part: y[rows] for part, rows in parts.items()}, "random",
    )  # fmt: skip


@pytest.fixture(scope="module")
def prepared():
    return tabular_data.prepare(small(), 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Folder of a run that nothing interrupted."""
    return tmp_path_factory.mktemp("whole")


@pytest.fixture(scope="module")
def finished(prepared, whole):
    return train(TINY, 0, prepared, whole, progress=False)


START = tabular._start(TINY, 0, tabular_data.prepare(small(), 0))


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_a_run_gives_the_same_bits_again_and_another_seed_others(prepared, finished, tmp_path):
    state = torch.get_rng_state()
    again = train(TINY, 0, prepared, tmp_path, progress=False)
    assert torch.equal(torch.get_rng_state(), state)  # the caller's random state is left alone
    assert same(again.best, finished.best)
    assert (again.history, again.trace) == (finished.history, finished.trace)
    assert not same(train(TINY, 1, prepared, tmp_path, progress=False).best, finished.best)


CHILD = """
import sys, time
from pathlib import Path
import torch
sys.path.insert(0, {tests!r})
import test_tabular as t
step = torch.optim.AdamW.step
def slow(self, *a, **k):
    time.sleep(0.1)
    return step(self, *a, **k)
torch.optim.AdamW.step = slow
t.train(t.TINY, 0, t.tabular_data.prepare(t.small(), 0), Path({folder!r}), progress=False)
"""


def test_a_run_killed_in_the_middle_resumes_to_the_same_bits(finished, prepared, tmp_path):
    path = tmp_path / "tiny-seed0.safetensors"
    code = CHILD.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)]) as child:
        deadline = time.monotonic() + 300
        while not path.exists() and time.monotonic() < deadline and child.poll() is None:
            time.sleep(0.01)
        time.sleep(0.15)  # into the next epoch, which takes three steps of 0.1 s
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL, "the run ended before it could be killed"
    with safe_open(path, framework="pt") as file:
        assert not json.loads(file.metadata()["run"])["finished"]
    resumed = train(TINY, 0, prepared, tmp_path, progress=False)
    assert same(resumed.best, finished.best)
    assert (resumed.history, resumed.trace) == (finished.history, finished.trace)
    loaded = train(TINY, 0, prepared, tmp_path, progress=False)  # finished: nothing left to do
    assert same(loaded.module.state_dict(), finished.module.state_dict())
    a, b = (tabular_results.result(run, started="", command="")[0] for run in (loaded, finished))
    pd.testing.assert_frame_equal(a, b, check_exact=True)


@pytest.mark.parametrize("epochs", [1, 4])
def test_stopping_after_any_epoch_and_resuming_changes_nothing(epochs, finished, whole, prepared, tmp_path, monkeypatch):
    learn, done = tabular._learn_epoch, []

    def stop(run, bar):
        if len(done) == epochs:
            raise KeyboardInterrupt
        done.append(learn(run, bar))

    monkeypatch.setattr(tabular, "_learn_epoch", stop)
    with pytest.raises(KeyboardInterrupt):
        train(TINY, 0, prepared, tmp_path, progress=False)
    monkeypatch.setattr(tabular, "_learn_epoch", learn)
    run = train(TINY, 0, prepared, tmp_path, progress=False)
    assert same(run.best, finished.best)
    assert run.history == finished.history
    stopped, uninterrupted = (load_file(folder / "tiny-seed0.safetensors") for folder in (tmp_path, whole))
    assert same(stopped, uninterrupted)  # optimiser and random state too


def test_a_checkpoint_is_written_whole_or_not_at_all(finished, tmp_path, monkeypatch):
    path = tmp_path / "c.safetensors"
    tabular._save(finished, path)
    before = path.read_bytes()
    write = tabular.save_file

    def half(tensors, where, metadata):
        write(tensors, where, metadata)
        with open(where, "r+b") as file:
            file.truncate(100)
        raise OSError("disk full")

    monkeypatch.setattr(tabular, "save_file", half)
    with pytest.raises(OSError, match="disk full"):
        tabular._save(finished, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["c.safetensors"]


def test_a_checkpoint_of_another_run_or_a_broken_one_is_refused(finished, prepared, tmp_path):
    path = tmp_path / "tiny-seed0.safetensors"
    tabular._save(dataclasses.replace(finished, seed=7), path)
    with pytest.raises(ValueError, match=r"belongs to another run \(seed 7, expected 0\)"):
        train(TINY, 0, prepared, tmp_path, progress=False)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="is not a checkpoint of this command"):
        train(TINY, 0, prepared, tmp_path, progress=False)
    run = train(TINY, 0, prepared, tmp_path, restart=True, progress=False)
    assert same(run.best, finished.best)


def test_an_epoch_sees_every_row_once_in_batches_of_the_given_size(prepared, tmp_path, monkeypatch):
    rows, sizes, steps = {tuple(row): k for k, row in enumerate(prepared.X["train"])}, [], []
    predict_rows, step = tabular.FTTransformer.forward, torch.optim.AdamW.step

    def forward(self, x):
        if self.training:
            sizes.append([rows[tuple(row)] for row in x.numpy()])
        return predict_rows(self, x)

    monkeypatch.setattr(tabular.FTTransformer, "forward", forward)
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *a: [steps.append(self.param_groups), step(self, *a)][1])
    run = train(TINY, 0, prepared, tmp_path, progress=False)
    orders = [sizes[3 * k : 3 * k + 3] for k in range(run.epoch)]
    assert all([len(batch) for batch in order] == [32, 32, 16] for order in orders)  # the last, smaller batch is not dropped
    assert all(sorted(itertools.chain.from_iterable(order)) == list(range(80)) for order in orders)
    assert orders[0] != orders[1]
    assert {group["lr"] for groups in steps for group in groups} == {TINY.learning_rate}  # no schedule
    assert {group["weight_decay"] for groups in steps for group in groups} == {0.0, TINY.weight_decay}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([0.1, 0.2, 0.3, 0.4]), min_size=1, max_size=30), st.sampled_from(["regression", "classification"])
)
def test_early_stopping_is_the_authors_rule(prepared, validation, task):
    """Their tracker fails once more than `patience` updates in a row are not better than the best."""
    best, bad, best_epoch = -np.inf, 0, 0
    table = dataclasses.replace(prepared.table, task=task)
    run = dataclasses.replace(START, prepared=dataclasses.replace(prepared, table=table), history=[])
    for epoch, value in enumerate(validation, start=1):
        goodness = -value if task == "regression" else value
        best, bad, best_epoch = (goodness, 0, epoch) if goodness > best else (best, bad + 1, best_epoch)
        run.history.append({"loss": 0.0, "validation": value})
        assert run.best_epoch == best_epoch
        assert run.finished == (bad > TINY.patience)


def test_the_best_epochs_weights_are_kept_and_scored_once(finished, prepared):
    validation = score(prepared, "val", predict(finished.module, prepared.X["val"]))
    assert validation == min(h["validation"] for h in finished.history)
    assert finished.epoch == finished.best_epoch + TINY.patience + 1
    y, outputs = prepared.y["test"], predict(finished.module, prepared.X["test"])
    expected = np.sqrt(np.mean([(float(a) - float(b)) ** 2 for a, b in zip(outputs, y, strict=True)])) * prepared.unit
    _, how = tabular_results.result(finished, started="", command="")
    assert how["score"]["test"] == pytest.approx(expected, rel=1e-12)
    labels = tabular_data.Prepared(small("classification"), {}, {"test": np.array([0, 1, 1, 0], dtype=np.float32)}, 1.0)
    assert score(labels, "test", np.array([-1, 2, -0.5, 0.5], dtype=np.float32)) == 0.5


def test_verdicts_are_those_of_single_matrices(finished, prepared):
    """Second route: one row at a time, each scope by hand."""
    X = prepared.X["test"][:6]
    table = judge(finished.module, X, batch_size=4).set_index(["scope", "layer", "input", "head"])
    means = {1: [], 2: []}
    finished.module.eval()
    for row in range(len(X)):

        def check(layer, attention, row=row):
            heads = attention[0].double().numpy()
            mean = heads.mean(axis=0)
            means[layer].append(mean)
            features = range(1, 5)
            cases = {
                ("all", layer, row, 0): equality(mean),
                ("content", layer, row, 0): equality(restrict(mean, features)),
                ("content_raw", layer, row, 0): equality(restrict(mean, features, renormalize=False), substochastic=True),
                **{("head", layer, row, h + 1): equality(restrict(heads[h], features)) for h in range(2)},
            }
            for key, verdict in cases.items():
                assert table.loc[key, "kappa"] == pytest.approx(verdict.kappa, rel=1e-4)  # float32 in batches of other sizes
                assert table.loc[key, "holds"] == verdict.holds or table.loc[key, "fragile"]

        with torch.inference_mode(), catching_blocks(finished.module, check):
            finished.module(torch.from_numpy(X[row : row + 1]))
    for layer, matrices in means.items():
        verdict = equality(restrict(np.mean(matrices, axis=0), range(1, 5)))
        assert table.loc[("averaged", layer, -1, 0), "kappa"] == pytest.approx(verdict.kappa, rel=1e-4)
    assert set(table.reset_index()["layer"]) == {1, 2}  # never the last block
    assert len(table) == 6 * 2 * (3 + 2) + 2


def test_counts_and_training_table_add_up(finished, prepared):
    verdicts = judge(finished.module, prepared.X["test"])
    total = pd.DataFrame(counts(verdicts))
    assert total["matrices"].sum() == len(verdicts)
    assert total["holds"].sum() == verdicts["holds"].sum()
    failing = verdicts[(verdicts.scope == "content") & (verdicts.layer == 2) & ~verdicts.holds]
    row = total[(total.scope == "content") & (total.layer == 2)].iloc[0]
    assert np.isnan(row["median_gap"]) if failing.empty else row["median_gap"] == failing["gap"].median()
    learned = tabular_results.training_table(finished)
    assert set(learned["quantity"]) == {"loss", "validation", "content", "all", "head", "averaged"}
    assert list(learned.loc[learned.quantity == "validation", "value"]) == [h["validation"] for h in finished.history]
    untrained = learned[(learned.epoch == 0) & (learned.quantity == "content")]
    torch.manual_seed(0)
    first = judge(build(TINY, 4), prepared.X["val"], scopes=("content",)).groupby("layer")["holds"].sum()
    assert list(untrained["value"]) == list(first)


def test_configurations_are_the_authors_defaults():
    for name, blocks in (("california-3", 3), ("higgs-3", 3), ("california-6-default", 6)):
        config, default = CONFIGS[name], authors.FTTransformer.get_default_kwargs(blocks)
        assert (config.blocks, config.width, config.heads) == (blocks, default["d_block"], default["attention_n_heads"])
        assert (config.attention_dropout, config.ffn_dropout) == (default["attention_dropout"], default["ffn_dropout"])
    assert (
        dataclasses.replace(CONFIGS["california-3"], name="california-6", title="California, 6 blocks", blocks=6)
        == (CONFIGS["california-6"])
    )
    assert all(name == config.name and config.table in tabular_data.TABLES for name, config in CONFIGS.items())


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_the_command_trains_measures_and_writes(task, tmp_path, monkeypatch, capsys):
    config = dataclasses.replace(TINY, patience=0)
    monkeypatch.setitem(CONFIGS, "tiny", config)
    monkeypatch.setitem(tabular_data.TABLES, "small", lambda _: small(task))
    monkeypatch.delenv(tabular_data.DATA_VARIABLE, raising=False)
    arguments = ["--seed", "3", "--output", str(tmp_path / "out"), "--checkpoints", str(tmp_path / "c")]
    assert main(["train", "tiny", *arguments]) == 0
    table, how = results.read("ftt_tiny_seed3", tmp_path / "out")
    assert set(table["scope"]) == {"content", "all", "averaged"}
    assert (how["config"]["name"], how["seed"], how["epochs"], how["metric"]) == (
        "tiny", 3, how["best_epoch"] + 1, {"regression": "RMSE", "classification": "accuracy"}[task],
    )  # fmt: skip
    assert how["measured"]["left out"]["3"].endswith("its attention is 1 x 5")
    assert how["command"] == "dobrushin train tiny --seed 3"
    assert str(tmp_path) not in json.dumps(how)
    learned, _ = results.read("ftt_tiny_seed3_training", tmp_path / "out")
    assert learned["epoch"].max() == how["epochs"]
    assert main(["train", "small-baselines", *arguments]) == 0
    scores, _ = results.read("ftt_small-baselines", tmp_path / "out")
    assert list(scores["model"]) == ["boosting"] * 3 + ["linear", "linear_quantile"]
    capsys.readouterr()
    assert main(["report", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert f"{how['metric']} {how['score']['test']:.4f}" in shown
    assert main(["train", "none", *arguments]) == 2
    assert "configuration is 'none'; expected one of california-3" in capsys.readouterr().err


@pytest.mark.skipif(
    not os.environ.get(tabular_data.DATA_VARIABLE),
    reason=f"needs California Housing: set {tabular_data.DATA_VARIABLE} to a folder with california/california_housing.npz",
)
def test_the_committed_numbers_on_california_come_out_again(tmp_path, monkeypatch):
    """The first epoch of seed 0, and the baselines; the rest of a training takes minutes."""
    prepared = tabular_data.prepare(tabular_data.load("california"), 0)
    scores = tabular_results.baselines(prepared, seeds=(0,)).set_index("model")["score"]
    committed, _ = results.read("ftt_california-baselines")
    committed = committed[committed["seed"] == 0].set_index("model")["score"]
    assert dict(scores) == pytest.approx(dict(committed), rel=1e-4)  # other processors sum in another order
    assert scores["linear_quantile"] == pytest.approx(0.731, abs=0.0005)  # the paper's, as printed

    learn = tabular._learn_epoch

    def once(run, bar):
        if run.epoch:
            raise KeyboardInterrupt
        learn(run, bar)

    monkeypatch.setattr(tabular, "_learn_epoch", once)
    with pytest.raises(KeyboardInterrupt):
        train(CONFIGS["california-3"], 0, prepared, tmp_path, progress=False)
    with safe_open(tmp_path / "california-3-seed0.safetensors", framework="pt") as file:
        said = json.loads(file.metadata()["run"])
    learned, _ = results.read("ftt_california-3_seed0_training")
    first = learned[learned["epoch"] == 1].set_index("quantity")["value"]
    for name in ("loss", "validation"):
        assert said["history"][0][name] == pytest.approx(first[name], rel=1e-4), name  # the same bits on one machine
    traced = learned[(learned["epoch"] <= 1) & (learned["quantity"] == "content")]
    again = [t["holds"] for t in said["trace"] if t["scope"] == "content"]
    assert again == pytest.approx(list(traced["value"]), abs=5)  # of 512 rows: fragile verdicts
