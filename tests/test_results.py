"""Results on disk: what is written is read back, and what is not whole is not read."""

from __future__ import annotations

import hashlib
import re
import shlex
import subprocess
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import results

HOW = {"kind": "measurement", "command": "dobrushin measure thing", "seed": 0, "words": "κ ≤ 1"}


@pytest.fixture
def table():
    return pd.DataFrame({"layer": [1, 1, 2], "kappa": [0.25, 5e-324, np.inf], "holds": [True, False, True]})


@st.composite
def tables(draw):
    rows = draw(st.integers(0, 5))

    def column(values):
        return st.lists(values, min_size=rows, max_size=rows)

    frame = {
        "scope": pd.Categorical(draw(column(st.sampled_from(["all", "head"]))), ["all", "head"]),
        "layer": np.array(draw(column(st.integers(0, 300))), dtype=np.int16),
        "kappa": np.array(draw(column(st.floats(allow_nan=True))), dtype=np.float64),
        "holds": np.array(draw(column(st.booleans())), dtype=bool),
        "role": np.array(draw(column(st.text(st.characters(codec="utf-8"), max_size=4))), dtype=object),
    }
    return pd.DataFrame(frame)


WORDS = st.text(st.characters(codec="utf-8"), max_size=6)


@settings(max_examples=20)
@given(tables(), st.dictionaries(WORDS, st.floats(-1, 1) | WORDS, max_size=3))
def test_what_is_written_is_read_back(tmp_path_factory, written, how):
    folder = tmp_path_factory.mktemp("results")
    given = {f"my {key}": value for key, value in how.items()}
    path = results.write(written, given, "one", folder)
    back, beside = results.read("one", folder)
    assert path == folder / "one.parquet"
    assert sorted(p.name for p in folder.iterdir()) == ["one.json", "one.parquet"]
    for column in ("scope", "layer", "holds", "role"):
        assert back[column].tolist() == written[column].tolist()
    kept, gone = back["kappa"].to_numpy(), written["kappa"].isna().to_numpy()
    assert np.array_equal(np.isnan(kept), gone)  # Parquet stores that there is no number, not which NaN it was
    assert kept[~gone].tobytes() == written["kappa"].to_numpy()[~gone].tobytes()  # infinities and -0 included
    assert back["layer"].dtype == np.int16
    assert {key: beside[key] for key in given} == given
    assert beside["table"] == {
        "file": "one.parquet", "rows": len(written), "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }  # fmt: skip
    assert {"commit", "versions", "machine", "finished"} <= set(beside)


@settings(max_examples=20)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_table_with_any_other_byte_is_refused(tmp_path_factory, place, change):
    folder = tmp_path_factory.mktemp("results")
    path = results.write(pd.DataFrame({"kappa": [0.5, 0.25]}), HOW, "one", folder)
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= change
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"one.parquet is not the table that one.json describes \(its SHA-256 differs\)"):
        results.read("one", folder)


def test_a_result_that_is_not_there(tmp_path, table):
    with pytest.raises(FileNotFoundError, match=rf"no result 'two' in {re.escape(str(tmp_path))}; there are: none"):
        results.read("two", tmp_path)
    for name in ("one", "other"):
        results.write(table, HOW, name, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no result 'two' in .*; there are: one, other"):
        results.read("two", tmp_path)
    (tmp_path / "one.parquet").unlink()
    with pytest.raises(FileNotFoundError, match="no result 'one'"):
        results.read("one", tmp_path)


@pytest.mark.parametrize("stop_at", [1, 2])
def test_a_write_that_is_stopped_never_leaves_half_a_result(tmp_path, table, monkeypatch, stop_at):
    results.write(table, HOW, "one", tmp_path)
    replaced = []

    def replace(self, target):
        replaced.append(target)
        if len(replaced) == stop_at:
            raise OSError(28, "No space left on device")
        return self.rename(target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="No space left"):
        results.write(table.iloc[:1], HOW, "one", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.json", "one.parquet"]
    if stop_at == 1:
        assert len(results.read("one", tmp_path)[0]) == len(table)  # the earlier result
    else:
        with pytest.raises(ValueError, match="its SHA-256 differs"):  # the new table beside the earlier provenance
            results.read("one", tmp_path)


def test_provenance_that_json_does_not_know_leaves_nothing(tmp_path, table):
    with pytest.raises(TypeError, match="not JSON serializable"):
        results.write(table, {"count": np.int64(3)}, "one", tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_same_table_gives_the_same_bytes(tmp_path, table):
    first, second = (results.write(table, HOW, name, tmp_path).read_bytes() for name in ("one", "two"))
    assert first == second


OPTIONS = st.dictionaries(st.sampled_from(["--scopes", "--number", "--name", "--lines"]), st.sampled_from(["", "1", "a b", "é"]))
RUNS = st.tuples(
    st.sampled_from(["measure thing", "measure other", "baseline"]), OPTIONS,
    *[st.sampled_from(["00", "11"])] * 3, st.sampled_from([16, [4, 16]]),
)  # fmt: skip


def provenance(run):
    command, options, weights, text, split, tokens = run
    words = ["dobrushin", *command.split(), *(word for pair in options.items() for word in pair if word)]
    return {
        "command": shlex.join(words), "model": {"weights_sha256": weights, "package": "thing 1.0"},
        "inputs": {"sha256": text, "tokens": tokens}, "data": {"split_sha256": split}, "started": "earlier",
    }  # fmt: skip


@settings(max_examples=60)
@given(RUNS, RUNS | st.none())
def test_a_result_is_only_replaced_by_the_same_run(tmp_path_factory, first, then):
    then = first if then is None else then
    folder = tmp_path_factory.mktemp("results")
    results.refuse_another_run(provenance(then), "one", folder)  # nothing is there
    results.write(pd.DataFrame({"kappa": [0.5]}), provenance(first), "one", folder)
    later = provenance(then) | {"started": "later", "versions": {"python": "4"}}
    later["model"] |= {"package": "thing 2.0"}
    results.refuse_another_run(later, "two", folder)
    if first == then:
        results.refuse_another_run(later, "one", folder)
        return
    with pytest.raises(ValueError, match=re.escape(f"{folder / 'one.parquet'} is the result of another run")) as refused:
        results.refuse_another_run(later, "one", folder)
    said = str(refused.value)
    for name, before, now in zip(("weights", "inputs", "data"), first[2:5], then[2:5], strict=True):
        assert (f"{name}' SHA-256" in said or f"{name}'s SHA-256" in said) == (before != now)
    for option in ("--scopes", "--number", "--lines"):
        assert (f"{option} (" in said) == (first[1].get(option) != then[1].get(option))
    assert ("command (" in said) == (first[0] != then[0])
    assert ("inputs' tokens" in said) == (first[5] != then[5])
    assert said.endswith(
        f"give this run another {'--name or ' * ('--name' in then[1])}--output, or move one.parquet and one.json away"
    )


def test_a_file_that_is_no_result_is_not_replaced(tmp_path):
    (tmp_path / "one.parquet").write_bytes(b"mine")
    with pytest.raises(ValueError, match=r"one.parquet has no one.json beside it that says what it is; move it away, or give"):
        results.refuse_another_run(HOW, "one", tmp_path)
    (tmp_path / "one.json").write_text("{}")
    with pytest.raises(ValueError, match=r"one.json is not the provenance of a result"):
        results.refuse_another_run(HOW, "one", tmp_path)


def test_versions_are_those_installed():
    versions = results.versions()
    assert {name: version(name) for name in versions if name != "python"} | {"python": versions["python"]} == versions
    assert {"python", "dobrushin", "numpy", "torch", "transformers"} <= set(versions)


def test_the_time_is_utc_to_the_second():
    parsed = datetime.fromisoformat(results.now())
    assert parsed.utcoffset() == timedelta(0)
    assert parsed.microsecond == 0


def test_the_commit_says_whether_tracked_source_differs(tmp_path, monkeypatch):
    def git(*arguments):
        identity = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    monkeypatch.setattr(results, "_ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert results.git_commit() == "unknown"
    git("init", "-q")
    source = tmp_path / "src" / "module.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    (tmp_path / "README.md").write_text("words\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    commit = git("rev-parse", "HEAD")
    assert results.git_commit() == commit
    (tmp_path / "README.md").write_text("other words\n")
    (tmp_path / "src" / "untracked.py").write_text("")
    assert results.git_commit() == commit
    source.write_text("one = 2\n")
    assert results.git_commit() == commit + "+changes"
    (tmp_path / "lib").mkdir()
    monkeypatch.setattr(results, "_ROOT", tmp_path / "lib")  # as in a virtual environment within another project
    assert results.git_commit() == "unknown"
    monkeypatch.setattr(results, "_ROOT", tmp_path)
    monkeypatch.setenv("PATH", "")
    assert results.git_commit() == "unknown"


def test_measurements_are_those_of_models_in_the_order_of_their_names(tmp_path, table):
    model = {"title": "A model", "status": "untrained", "training": "language"}
    given = {"text": "words.txt", "number": 3, "tokens": 16}
    for name in ("b", "a"):
        results.write(table, HOW | {"model": model, "inputs": given}, name, tmp_path)
    results.write(table, HOW | {"kind": "baseline"}, "0", tmp_path)
    first, second = results.measurements(tmp_path)
    assert (first.name, second.name) == ("a", "b")
    assert (first.status, first.training, first.label) == ("untrained", "language", "A model, untrained")
    assert first.inputs == "3 inputs of 16 tokens (words.txt)"
    assert results.measurements(tmp_path / "nothing here") == []


def test_a_model_whose_weights_were_learned_goes_by_its_title(table):
    how = {"model": {"title": "A model", "status": "derivative"}, "inputs": {"images": "photographs", "number": 2, "tokens": 5}}
    one = results.Measurement("a", table, how)
    assert one.label == "A model"
    assert one.inputs == "2 inputs of 5 tokens (photographs)"
