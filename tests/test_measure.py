"""Measuring a model: the table against naive loops over what the model itself returns, and runs that are stopped."""

from __future__ import annotations

import errno
import json
import re
import signal
import subprocess
import sys
import tracemalloc
import weakref
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dobrushin import cli, inputs, measure, results, tables
from dobrushin.inputs import Sequences, Text
from dobrushin.measure import MODEL_ROUNDING, SCOPES
from dobrushin.models import Model, ModelSpec
from dobrushin.work import Work


def refused(message: str):
    return pytest.raises(ValueError, match=re.escape(message))


def tiny(layers: int = 3) -> Model:
    """A BERT of 2 heads whose weights are large enough that its attention is far from uniform."""
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=layers,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.5,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = BertModel._from_config(config, attn_implementation="eager").eval().requires_grad_(False)
    return Model(ModelSpec("tiny", "Tiny", "", "tiny", source="hf"), module, None, "0" * 64)


def windows(number: int, length: int = 9) -> Sequences:
    ids = np.random.default_rng(0).integers(0, 50, (number, length))
    special = ("cls", *["content"] * (length - 2), "separator")
    return Sequences(Text("random numbers", "x"), ids, np.array([role == "content" for role in special]), special)


# --- the naive measurement ----------------------------------------------------------------------------------------


def distances(A):
    return 0.5 * np.abs(A[:, None, :] - A[None, :, :]).sum(-1)


def judged(A):
    """kappa, gap and verdict by the definitions: the lazy matrix is formed and its coefficient taken."""
    n, tv, d = len(A), distances(A), A.diagonal()
    good = (d[:, None] >= A.T) & (d[None, :] >= A)
    off = ~np.eye(n, dtype=bool)
    best_good, best_other = (tv[off & which].max(initial=-1) for which in (good, ~good))
    assert abs(best_good - best_other) > 1e-12, "too close for an oracle in floating point"
    gap = 0.5 * (1 + tv.max()) - distances(0.5 * (np.eye(n) + A)).max()
    return {"kappa": tv.max(), "gap": gap, "holds": best_good > best_other}


def naive(model, given):
    """Rows of all scopes from the attention that transformers returns when all inputs run at once."""
    with torch.inference_mode():
        layers = model.module(**given.batch(0, len(given)), output_attentions=True).attentions
    layers = [A.double().numpy() for A in layers]
    keep = np.flatnonzero([role == "content" for role in given.roles(0)])

    def raw(A):
        return A[..., keep, :][..., keep]

    def content(A):
        return raw(A) / raw(A).sum(-1, keepdims=True)

    rows = {}
    eye, kept = np.eye(layers[0].shape[-1]), np.eye(len(keep))
    for k in range(len(given)):
        product, restricted = eye, kept
        for layer, attention in enumerate(layers, start=1):
            mean = attention[k].mean(0)
            rows["content", k, layer, 0] = judged(content(mean))
            rows["content_raw", k, layer, 0] = judged(raw(mean))
            rows["all", k, layer, 0] = judged(mean)
            for h, one in enumerate(attention[k], start=1):
                rows["head", k, layer, h] = judged(content(one))
            product = 0.5 * (eye + mean) @ product
            restricted = 0.5 * (kept + content(mean)) @ restricted
        rows["rollout_all", k, len(layers), 0] = judged(product)
        rows["rollout_content", k, len(layers), 0] = judged(restricted)
    for layer, attention in enumerate(layers, start=1):
        mean = attention.mean(1).mean(0)
        for scope, A in (("averaged", content(mean)), ("averaged_all", mean)):
            without = [distances(np.delete(A, i, axis=0)).max() for i in range(len(A))]
            scores = distances(A).max() - np.array(without)
            rows[scope, -1, layer, 0] = judged(A) | {
                "entrywise": 1 - len(A) * A.min(), "columnwise": 1 - sum(column.min() for column in A.T),
                "score": scores.max(), "carrier": scores.argmax(),
            }  # fmt: skip
    return rows


def test_the_table_is_that_of_naive_loops(minilm, few):
    expected = naive(minilm, few)
    table = measure.measure(minilm, few, batch_size=6, progress=False)
    assert len(table) == len(expected)
    assert list(table["scope"].unique()) == list(SCOPES)
    found = table.set_index(["scope", "input", "layer", "head"])
    roles = few.roles(0)
    for key, row in expected.items():
        ours = found.loc[key]
        assert ours["holds"] == row["holds"], key
        for column in ("kappa", "gap", "entrywise", "columnwise", "score"):
            if column in row:
                # float32 attention is the same to the bit; rows of a product sum to 1 only within 1e-6 a layer
                assert abs(ours[column] - row[column]) < (1e-5 if "rollout" in key[0] else 1e-13), (key, column)
        if "carrier" in row:
            assert ours["carrier"] == row["carrier"]
            assert ours["role"] == ("content" if key[0] == "averaged" else roles[row["carrier"]])
        else:
            assert ours["carrier"] == -1
            assert np.isnan(ours["score"])


def test_a_verdict_that_depends_on_the_batch_size_is_fragile(minilm, few):
    """Another batch size is another order of float32 operations, no more."""
    per_input = [scope for scope in SCOPES if "averaged" not in scope]
    one, four = (measure.measure(minilm, few, batch_size=k, progress=False, scopes=per_input) for k in (1, 4))
    assert (one[["scope", "input", "layer", "head"]] == four[["scope", "input", "layer", "head"]]).all(axis=None)
    assert (one["kappa"] - four["kappa"]).abs().max() < MODEL_ROUNDING
    differ = one["holds"] != four["holds"]
    assert (one["fragile"] & four["fragile"])[differ].all()


def test_rounding_in_the_model_is_less_than_assumed(minilm, few):
    """Attention in float32 against the same model in float64."""
    import copy

    batch, precise = few.batch(0, 2), copy.deepcopy(minilm.module).double()
    with torch.inference_mode():
        narrow, wide = (m(**batch, output_attentions=True).attentions for m in (minilm.module, precise))
    for A, B in zip(narrow, wide, strict=True):
        assert ((A.double() - B).abs() / B).max() < MODEL_ROUNDING / 2  # renormalising a row doubles it at most


def test_lines_are_measured_without_their_padding(minilm):
    text = Text(
        "lines",
        "A short line.\nA line that is quite a bit longer than the first one was.\n\nTwo words\nx\nAnd one more line here.",
    )
    together = inputs.lines(minilm.tokenizer, text, 4, 32)
    table = measure.measure(minilm, together, batch_size=4, progress=False)
    assert set(table["scope"]) == {s for s in SCOPES if "averaged" not in s}
    for k, line in enumerate(line for line in text.content.splitlines() if len(line) > 1):
        alone = measure.measure(
            minilm, inputs.lines(minilm.tokenizer, Text("one", line), 1, 32), progress=False, scopes=set(table["scope"])
        )
        rows = table[table["input"] == k].reset_index(drop=True)
        assert (rows["n"] == alone["n"]).all()
        assert (rows["kappa"] - alone["kappa"]).abs().max() < 1e-5
    with refused("scope 'averaged' is a mean over inputs; expected inputs of one length"):
        measure.measure(minilm, together, progress=False, scopes=["averaged"])


@pytest.mark.parametrize(
    ("scopes", "message"),
    [(["contents"], "scope is 'contents'; expected some of content,"), ([], "no scope is asked for"), ([""], "scope is ''")],
)
def test_scopes_that_do_not_exist_are_refused(scopes, message):
    with refused(message):
        measure.measure(tiny(), windows(2), progress=False, scopes=scopes)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_scope_asked_for_alone_has_the_rows_it_has_among_all(scope):
    model, given = tiny(), windows(5)
    everything = measure.measure(model, given, batch_size=2, progress=False)
    alone = measure.measure(model, given, batch_size=2, progress=False, scopes=[scope])
    rows = everything[everything["scope"] == scope].reset_index(drop=True)
    assert len(rows)
    words = {"scope": str, "role": str}  # whose categories are those that occur
    pd.testing.assert_frame_equal(alone.astype(words), rows.astype(words), check_exact=True)


def test_averages_do_not_depend_on_how_inputs_are_batched():
    model, given = tiny(), windows(7)
    parts = [measure.measure(model, given, batch_size=k, progress=False, scopes=["averaged", "averaged_all"]) for k in (1, 3, 7)]
    for part in parts[1:]:
        assert (part[["kappa", "score", "columnwise"]] - parts[0][["kappa", "score", "columnwise"]]).abs().max(axis=None) < 1e-6


@pytest.mark.parametrize(
    ("place", "spoil", "message"),
    [
        ((1, 1, 4), lambda row: row * 2, "matrix [1, 1], row 4 sums to 2"),
        ((0, 1, 8), lambda row: row * torch.nan, "matrix [0, 1], row 8: entry in column 0 is nan"),
        ((2, 0, 3), lambda row: torch.eye(9)[0], "matrix [2, 0], row 3: its whole mass lies on removed tokens"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 300, measure.CHUNK])
def test_attention_that_cannot_be_judged_is_named_by_its_place_in_the_batch(monkeypatch, chunk, place, spoil, message):
    monkeypatch.setattr(measure, "CHUNK", chunk)
    own = measure.catching_attention

    @contextmanager
    def spoilt(module, consume, **options):
        def handed(layer, attention):
            if layer == 2:
                attention = attention.clone()
                attention[place] = spoil(attention[place])
            consume(layer, attention)

        with own(module, handed, **options):
            yield

    monkeypatch.setattr(measure, "catching_attention", spoilt)
    with refused(message):
        measure.measure(tiny(), windows(3), progress=False)


# --- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [1, 300, 1000])
def test_a_layer_that_is_judged_in_parts_gives_the_same_table(monkeypatch, chunk):
    whole = measure.measure(tiny(), windows(5), batch_size=3, progress=False)
    monkeypatch.setattr(measure, "CHUNK", chunk)
    pd.testing.assert_frame_equal(whole, measure.measure(tiny(), windows(5), batch_size=3, progress=False), check_exact=True)


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_what_goes_wrong_in_judging_a_layer_is_not_lost(monkeypatch, layer):
    """A layer is judged while the next one runs, the last one while none does."""
    means = measure._Judge._means

    def spoilt(self, *arguments):
        if self.layer == layer:
            raise MemoryError(f"in layer {layer}")
        means(self, *arguments)

    monkeypatch.setattr(measure._Judge, "_means", spoilt)
    with pytest.raises(MemoryError, match=f"in layer {layer}"):
        measure.measure(tiny(3), windows(2), progress=False)


def test_no_matrix_of_a_layer_lives_when_the_next_layer_has_run(monkeypatch):
    alive: list[int] = []
    caught: list[weakref.ref] = []
    own = measure.catching_attention

    @contextmanager
    def watched(module, consume, **options):
        def counted(layer, attention):
            caught.append(weakref.ref(attention.untyped_storage()))
            consume(layer, attention)
            alive.append(sum(ref() is not None for ref in caught))

        with own(module, counted, **options):
            yield

    monkeypatch.setattr(measure, "catching_attention", watched)
    measure.measure(tiny(12), windows(4, 40), progress=False)
    assert len(alive) == 12
    assert max(alive) <= 1  # this layer's, which the model still uses


def test_memory_does_not_grow_with_depth():
    def peak(layers):
        model, given = tiny(layers), windows(4, 96)
        tracemalloc.start()
        try:
            measure.measure(model, given, batch_size=4, progress=False)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(2)
    kept = 4 * 96 * 96 * 8  # bytes that only the head-averaged matrices of one layer would take
    assert peak(10) - peak(2) < 8 * kept / 3  # what grows is the table, a few rows a layer


# --- runs that are stopped ----------------------------------------------------------------------------------------


class Crash(BaseException):
    """Nothing catches it, as nothing catches kill -9."""


def measured(folder):
    work = Work(folder, {"run": "this one"})
    try:
        return measure.measure(tiny(), windows(5), batch_size=2, progress=False, work=work, scopes=["content", "averaged"])
    finally:
        work.close()


@pytest.mark.parametrize(
    ("error", "after"), [(Crash(), False), (Crash(), True), (OSError(errno.ENOSPC, "No space left on device"), False)], ids=repr
)
def test_a_run_that_stops_at_any_renaming_of_a_file_goes_on_to_the_same_table(tmp_path, monkeypatch, error, after):
    whole = measured(tmp_path / "whole")
    own, stopped = Path.replace, 0
    for k in range(8):
        folder, calls = tmp_path / f"{k}", [0]

        def replace(path, target, k=k, calls=calls):
            calls[0] += 1
            if after and calls[0] == k + 1:
                own(path, target)
            if calls[0] == k + 1:
                raise error
            return own(path, target)

        monkeypatch.setattr(Path, "replace", replace)
        try:
            measured(folder)
        except type(error):
            stopped += 1
        monkeypatch.setattr(Path, "replace", own)
        pd.testing.assert_frame_equal(measured(folder), whole, check_exact=True)
    assert stopped == 7  # at the run's description, then totals and table of three batches


@pytest.mark.parametrize("at", [1, 5, 9])
def test_a_run_that_stops_within_a_batch_goes_on_to_the_same_table(tmp_path, monkeypatch, at):
    whole = measured(tmp_path / "whole")
    own, calls = Work.add, [0]

    def add(work, sums):
        calls[0] += 1
        own(work, sums)
        if calls[0] == at:
            raise Crash

    monkeypatch.setattr(Work, "add", add)
    with pytest.raises(Crash):
        measured(tmp_path / "stopped")
    monkeypatch.setattr(Work, "add", own)
    pd.testing.assert_frame_equal(measured(tmp_path / "stopped"), whole, check_exact=True)


def test_a_table_cut_off_by_a_full_disk_does_not_count(tmp_path, monkeypatch):
    whole = measured(tmp_path / "whole")
    own = pd.DataFrame.to_parquet

    def cut(table, path, **options):
        own(table, path, **options)
        if "000001" in Path(path).name:
            Path(path).write_bytes(Path(path).read_bytes()[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", cut)
    with pytest.raises(OSError, match="No space left"):
        measured(tmp_path / "full")
    monkeypatch.setattr(pd.DataFrame, "to_parquet", own)
    pd.testing.assert_frame_equal(measured(tmp_path / "full"), whole, check_exact=True)


def test_the_folder_of_another_run_or_of_a_running_one_is_refused(tmp_path):
    work = Work(tmp_path, {"inputs": 1, "model": "a"})
    with refused("another process measures in"):
        Work(tmp_path, {"inputs": 1, "model": "a"})
    work.finish(pd.DataFrame({"scope": []}))
    work.close()
    for run in ({"inputs": 2, "model": "a"}, {"inputs": 1}, {"inputs": 1, "model": "a", "more": 0}):
        with refused("holds an unfinished run with another"):
            Work(tmp_path, run)
    again = Work(tmp_path, {"model": "a", "inputs": 1})
    assert again.started == work.started
    again.close()
    (tmp_path / "run.json").unlink()  # whose batches are these?
    with refused("holds an unfinished run with another inputs (None; now 1)"):
        Work(tmp_path, {"inputs": 1, "model": "a"})
    work = Work(tmp_path / "new", {"inputs": 1})
    work.delete()
    assert not (tmp_path / "new").exists()


def test_a_run_that_finished_no_batch_does_not_stand_in_the_way_of_another(tmp_path):
    Work(tmp_path, {"inputs": 1}).close()
    other = Work(tmp_path, {"inputs": 2})
    other.finish(pd.DataFrame({"scope": []}))
    other.close()
    with refused("holds an unfinished run with another inputs (2; now 1)"):
        Work(tmp_path, {"inputs": 1})


# --- the command --------------------------------------------------------------------------------------------------

COMMAND = ["measure", "minilm", "--number", "6", "--length", "16", "--batch-size", "1"]


def test_the_command_goes_on_after_kill_9_to_the_same_bytes(tmp_path, capfd):
    folder = tmp_path / "killed"
    # The child dies by SIGKILL once it has finished two batches, whatever the machine's speed.
    child = (
        "import os, signal, sys\n"
        "from dobrushin import cli, work\n"
        "own = work.Work.finish\n"
        "def finish(self, table):\n"
        "    own(self, table)\n"
        "    if self.done == 2: os.kill(os.getpid(), signal.SIGKILL)\n"
        "work.Work.finish = finish\n"
        "sys.exit(cli.main(sys.argv[1:]))\n"
    )
    ended = subprocess.run([sys.executable, "-c", child, *COMMAND, "--output", str(folder)], capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-500:]
    assert not list(folder.glob("*.parquet"))
    assert len(list((folder / "minilm.unfinished").glob("batch-*.parquet"))) == 2
    assert cli.main([*COMMAND, "--output", str(folder)]) == 0
    assert "goes on after 2 finished batches" in capfd.readouterr().err
    assert cli.main([*COMMAND, "--output", str(tmp_path / "whole")]) == 0
    assert (folder / "minilm.parquet").read_bytes() == (tmp_path / "whole" / "minilm.parquet").read_bytes()
    assert sorted(p.name for p in folder.iterdir()) == ["minilm.json", "minilm.parquet"]


def test_the_command_measures_text_and_says_how(tmp_path, capsys):
    text = tmp_path / "mine.txt"
    text.write_text("The quick brown fox jumps over the lazy dog, and nobody minds. " * 20)
    out = tmp_path / "out"
    assert (
        cli.main(
            [
                "measure",
                "minilm",
                "--text",
                str(text),
                "--number",
                "3",
                "--length",
                "16",
                "--output",
                str(out),
                "--scopes",
                "content,all",
            ]
        )
        == 0
    )
    assert capsys.readouterr().out.strip() == str(out / "minilm.parquet")
    table, how = results.read("minilm", out)
    assert table.groupby("scope", observed=True).size().to_dict() == {"content": 18, "all": 18}
    assert how["kind"] == "measurement"
    assert how["command"] == (
        "dobrushin measure minilm --text mine.txt --number 3 --length 16 --batch-size 8 --scopes content,all --name minilm"
    )
    assert how["inputs"]["roles"] == [["cls", 1], ["content", 14], ["separator", 1]]
    assert how["model"]["status"] == "another model"
    assert len(how["model"]["weights_sha256"]) == 64
    assert str(tmp_path) not in json.dumps(how)


def test_the_command_measures_images_and_reports(tmp_path, capsys):
    command = ["measure", "timm:test_vit", "--untrained", "--number", "3", "--seed", "5", "--output", str(tmp_path)]
    assert cli.main(command) == 0
    table, how = results.read("test_vit-untrained", tmp_path)
    assert how["model"]["status"] == "untrained"
    assert how["seed"] == 5
    assert how["inputs"]["content_tokens"] == 100
    again = results.read("test_vit-untrained", tmp_path)[0]
    pd.testing.assert_frame_equal(table, again)
    capsys.readouterr()
    assert cli.main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    share = table.loc[table["scope"] == "content", "holds"].mean()
    assert "Shares that satisfy the condition" in shown
    assert f"{share:.6f}"[:5] in shown
    first, second = (tmp_path / "test_vit-untrained.parquet").read_bytes(), None
    assert cli.main(command) == 0
    second = (tmp_path / "test_vit-untrained.parquet").read_bytes()
    assert first == second
    capsys.readouterr()
    for more, difference in (
        (["--scopes", "all"], "--scopes (not given; now all)"),
        (["--seed", "6"], "--seed (5; now 6), weights' SHA-256 ("),
        (["--number", "4"], "--number (3; now 4), inputs' SHA-256 ("),
    ):
        assert cli.main([*command, *more]) == 2
        assert f"differs in {difference}" in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["test_vit-untrained.json", "test_vit-untrained.parquet"]
    assert (tmp_path / "test_vit-untrained.parquet").read_bytes() == first


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "nothing"], "model is 'nothing'; expected one of"),
        (["measure", "dinov2-l"], "get them with: hf download timm/vit_large_patch14_reg4_dinov2.lvd142m"),
        (["measure", "roberta-base"], "get them with: hf download FacebookAI/roberta-base"),
        (["measure", "minilm", "--images", "."], "takes text, not images"),
        (["measure", "minilm", "--size", "224"], "takes text, not images"),
        (["measure", "timm:test_vit", "--untrained", "--text", "x"], "takes images, not text"),
        (["measure", "minilm", "--length", "3"], "length is 3; expected from 4 to"),
        (["measure", "minilm", "--length", "513"], "length is 513; expected from 4 to 512"),
        (["measure", "minilm", "--text", "no_such_file.txt"], "there is no file no_such_file.txt; expected one of UTF-8 text"),
        (["measure", "minilm", "--text", "."], ". is a folder; expected one file of UTF-8 text"),
        (["measure", "minilm", "--number", "100000"], "100000 were asked for"),
        (["measure", "minilm", "--device", "abacus"], "device is 'abacus'; this machine has cpu"),
        (["measure", "minilm", "--number", "1", "--length", "8", "--scopes", "heads"], "scope is 'heads'"),
        (["report", "no_such_folder"], "holds no measurement"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "empty"))
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert message in said[-1]
    assert said[-1].startswith("dobrushin: ")
    assert not list(tmp_path.glob("results/*.parquet"))


def test_the_command_lists_the_registry(capsys):
    assert cli.main(["models"]) == 0
    shown = capsys.readouterr().out
    for word in ("dinov2-l", "vit_large_patch14_reg4_dinov2.lvd142m", "hf download", "FacebookAI/roberta-base", "here"):
        assert word in shown
    assert len(tables.registry()) == 10
