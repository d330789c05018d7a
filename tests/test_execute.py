"""Execution of the notebooks: what is shown is what ran, and nothing is shown that did not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import nbformat.v4 as nb
import pytest

import execute


def write(folder: Path, name: str, *cells: str, parameters: str = "number = 2\nword = 'a'") -> Path:
    tagged = nb.new_code_cell(parameters, metadata={"tags": ["parameters"]})
    document = nb.new_notebook(cells=[nb.new_markdown_cell("# Title"), tagged, *map(nb.new_code_cell, cells)])
    document.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    path = folder / "notebooks" / f"{name}.ipynb"
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A house of its own: sources, data, a lock file, no notebook yet."""
    for name in ("notebooks", "src/package", "data/results", "src/package/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src/package/module.py").write_text("x = 1\n")
    (tmp_path / "data/results/one.csv").write_text("1\n")
    (tmp_path / "requirements.lock").write_text("numpy==2.4.6\n")
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setattr(execute, "EXECUTED", tmp_path / "_build" / "executed")
    return tmp_path


def outputs(house: Path, name: str) -> str:
    document = json.loads((house / "_build" / "executed" / f"{name}.ipynb").read_text())
    return "".join("".join(out.get("text", "")) for cell in document["cells"] for out in cell.get("outputs", []))


# --- keys -------------------------------------------------------------------------------------------------------

CHANGES = {
    "a source file": lambda house: (house / "src/package/module.py").write_text("x = 2\n"),
    "a new source file": lambda house: (house / "src/package/other.py").write_text(""),
    "a file that is gone": lambda house: (house / "data/results/one.csv").unlink(),
    "a file renamed": lambda house: (house / "src/package/module.py").rename(house / "src/package/nodule.py"),
    "a file moved": lambda house: (house / "src/package/module.py").rename(house / "src/module.py"),
    "the data": lambda house: (house / "data/results/one.csv").write_text("2\n"),
    "the lock file": lambda house: (house / "requirements.lock").write_text("numpy==2.4.7\n"),
    "the notebook": lambda house: write(house, "01_a", "print(1)"),
}  # fmt: skip


@pytest.mark.parametrize("change", list(CHANGES))
def test_the_key_changes_with_everything_a_page_depends_on(house, change):
    notebook = write(house, "01_a", "print(0)")
    before = execute.key(notebook, {"number": 2})
    assert execute.key(notebook, {"number": 2}) == before
    CHANGES[change](house)
    assert execute.key(notebook, {"number": 2}) != before


def test_the_key_depends_on_parameters_and_python_and_on_nothing_else(house, monkeypatch):
    notebook = write(house, "01_a", "print(0)")
    before = execute.key(notebook, {"number": 2, "word": "a"})
    assert execute.key(notebook, {"word": "a", "number": 2}) == before
    for others in ({"number": 3, "word": "a"}, {"number": 2, "word": "b"}, {"number": "2", "word": "a"}, {"number": 2}):
        assert execute.key(notebook, others) != before
    (house / "src/package/__pycache__/module.pyc").write_bytes(b"compiled")
    write(house, "02_b", "print(0)")
    os.utime(house / "src/package/module.py", (0, 0))
    assert execute.key(notebook, {"number": 2, "word": "a"}) == before
    monkeypatch.setattr(execute.platform, "python_version", lambda: "3.99.0")
    assert execute.key(notebook, {"number": 2, "word": "a"}) != before


# --- parameters -------------------------------------------------------------------------------------------------


def test_parameters_are_names_and_plain_values(house):
    notebook = write(house, "01_a", parameters="number = 512  # sequences\nnames = ['a', 'b']\nwhich = None\nscale = -0.5")
    assert execute.parameters_of(notebook) == {"number": 512, "names": ["a", "b"], "which": None, "scale": -0.5}


@pytest.mark.parametrize(
    ("cell", "message"),
    [("import os", "assignments of plain values"), ("a[0] = 1", "assignments of plain values"), ("a = f(1)", "malformed")],
)
def test_other_parameters_are_refused(house, cell, message):
    with pytest.raises(ValueError, match=message):
        execute.parameters_of(write(house, "01_a", parameters=cell))


@pytest.mark.parametrize("tags", [[], ["parameters", "parameters"]])
def test_there_is_exactly_one_cell_of_parameters(house, tags):
    notebook = write(house, "01_a", "x = 1", "y = 1")
    document = json.loads(notebook.read_text())
    document["cells"][1]["metadata"] = {}
    for cell, tag in zip(document["cells"][2:], tags, strict=False):
        cell["metadata"] = {"tags": [tag]}
    notebook.write_text(json.dumps(document))
    with pytest.raises(ValueError, match=f"01_a.ipynb has {len(tags)} cells tagged 'parameters'; expected one"):
        execute.parameters_of(notebook)


@pytest.mark.parametrize(
    ("text", "value"),
    [("a=1", 1), ("a=0.5", 0.5), ("a=x", "x"), ("a='1'", "1"), ("a=[1, 2]", [1, 2]), ("a=", ""), ("a=b=c", "b=c")],
)
def test_values_on_the_command_line(text, value):
    assert execute._given(text) == ("a", value)


def test_a_parameter_that_no_notebook_has_is_refused(house, capsys):
    write(house, "01_a", "print(0)")
    assert execute.main(["-p", "numbers=3"]) == 2
    assert capsys.readouterr().err == "no notebook has a parameter numbers; there are: number, word\n"
    with pytest.raises(SystemExit):
        execute.main(["-p", "number"])
    assert "'number'; expected NAME=VALUE" in capsys.readouterr().err
    assert not execute.EXECUTED.exists()


# --- what can be shown ------------------------------------------------------------------------------------------


def test_only_a_copy_that_belongs_to_the_sources_can_be_shown(house):
    notebook = write(house, "01_a", "print(0)")
    execute.EXECUTED.mkdir(parents=True)
    copy = execute.EXECUTED / "01_a.ipynb"
    unknown = "01_a.ipynb has not been executed; run: make book"
    assert execute.fault(copy) == unknown
    for content in ("", "{", "{}", '{"metadata": {}}'):
        copy.write_text(content)
        assert execute.record(copy) is None
        assert execute.fault(copy) == unknown
    how = {"key": execute.key(notebook, {"number": 2}), "parameters": {"number": 2}}
    copy.write_text(json.dumps({"metadata": {"dobrushin": how}}))
    assert execute.record(copy) == how
    assert execute.fault(copy) is None
    CHANGES["a source file"](house)
    assert execute.fault(copy) == "01_a.ipynb was executed before its sources changed; run: make book"


# --- runs, with real kernels ------------------------------------------------------------------------------------


def test_a_run_from_nothing_then_only_what_changed(house, capsys):
    where = "import os; print('in', os.path.basename(os.getcwd()), number * 21, word, os.environ['OMP_NUM_THREADS'])"
    write(house, "01_a", where)
    write(house, "02_b", "print('unchanged')", parameters="other = 0")
    stale = house / "_build" / "executed" / "00_gone.ipynb"
    stale.parent.mkdir(parents=True)
    stale.write_text("{}")

    assert execute.main([]) == 0
    assert outputs(house, "01_a") == "in notebooks 42 a 1\n"
    assert outputs(house, "02_b") == "unchanged\n"
    assert not stale.exists()
    assert sorted(path.name for path in execute.EXECUTED.iterdir()) == ["01_a.ipynb", "02_b.ipynb"]
    how = execute.record(execute.EXECUTED / "01_a.ipynb")
    assert how["parameters"] == {"number": 2, "word": "a"}
    assert how["seconds"] > 0
    assert 10 < how["memory_mb"] < 10_000
    assert {"key", "started", "commit", "versions", "machine"} <= set(how)
    assert execute.fault(execute.EXECUTED / "01_a.ipynb") is None
    said = capsys.readouterr().out
    assert "executing 01_a, 02_b" in said
    assert "[2/2]" in said

    first = (execute.EXECUTED / "02_b.ipynb").read_bytes()
    assert execute.main(["-p", "number=3", "-p", "word=c"]) == 0
    assert outputs(house, "01_a") == "in notebooks 63 c 1\n"
    assert (execute.EXECUTED / "02_b.ipynb").read_bytes() == first
    assert "02_b: nothing changed" in capsys.readouterr().out
    assert execute.record(execute.EXECUTED / "01_a.ipynb")["parameters"] == {"number": 3, "word": "c"}


def test_a_cell_that_fails_fails_the_run_and_a_change_during_a_run_does_not_count_as_executed(house, capsys):
    """No copy is left of the first; the key of the other is that of the sources before its run."""
    write(house, "01_a", "print('before')", "raise RuntimeError('the reason')", "print('after')")
    write(house, "02_b", "import pathlib", "pathlib.Path('../src/package/module.py').write_text('x = 3')")
    assert execute.main([]) == 1
    said = capsys.readouterr()
    assert "01_a: FAILED" in said.out
    assert "the reason" in said.err
    assert "02_b: done" in said.out
    assert [path.name for path in execute.EXECUTED.iterdir()] == ["02_b.ipynb"]  # and nothing unfinished
    assert execute.fault(execute.EXECUTED / "01_a.ipynb") == "01_a.ipynb has not been executed; run: make book"
    assert execute.fault(execute.EXECUTED / "02_b.ipynb") == "02_b.ipynb was executed before its sources changed; run: make book"
