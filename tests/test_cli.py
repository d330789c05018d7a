"""The command line: what it makes, what it refuses and how it says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version

import pandas as pd
import pytest

from dobrushin import LAWS, cli, results
from dobrushin.random import baseline
from dobrushin.tabular import CONFIGS

COMMANDS = ("measure", "show", "models", "report", "baseline", "train", "variants")


@pytest.fixture
def small(monkeypatch):
    """A baseline that takes no time."""
    monkeypatch.setattr(cli, "BASELINE_SIZES", (2, 5))


def refused(capsys, *arguments: str) -> str:
    """What the parser says of arguments that it refuses."""
    with pytest.raises(SystemExit) as stopped:
        cli.main(arguments)
    assert stopped.value.code == 2
    return capsys.readouterr().err


# --- baseline ---------------------------------------------------------------------------------------------------


def test_the_baseline_writes_what_the_function_gives(small, tmp_path, capsys):
    assert cli.main(["baseline", "--draws", "30", "--seed", "4", "--output", str(tmp_path / "new" / "folder")]) == 0
    path = tmp_path / "new" / "folder" / "random_baseline.parquet"
    assert capsys.readouterr().out == f"{path}\n"
    table, how = results.read("random_baseline", path.parent)
    expected = pd.DataFrame([list(baseline(law, n, 30, 4))[-1] for law in LAWS for n in (2, 5)])
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    assert (how["kind"], how["seed"], how["command"]) == ("baseline", 4, "dobrushin baseline --draws 30 --seed 4")


def test_the_command_in_the_provenance_makes_the_same_bytes(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["baseline", "--draws", "7"]) == 0
    path = tmp_path / "results" / "random_baseline.parquet"
    first, how = path.read_bytes(), results.read("random_baseline", path.parent)[1]
    program, *words = how["command"].split()
    assert program == "dobrushin"
    assert cli.main(words) == 0
    assert path.read_bytes() == first
    assert capsys.readouterr().out == "results/random_baseline.parquet\n" * 2


def test_a_baseline_of_other_matrices_does_not_replace_the_one_there(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["baseline", "--draws", "7"]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()}
    monkeypatch.setattr(cli, "baseline", lambda *arguments: 1 / 0)  # refused before anything is drawn
    assert cli.main(["baseline", "--draws", "9", "--seed", "1"]) == 2
    said = capsys.readouterr().err
    assert "random_baseline.parquet is the result of another run, which differs in --draws (7; now 9), --seed (0; now 1)" in said
    assert {path.name: path.read_bytes() for path in (tmp_path / "results").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--draws", "0"], "0 is not a positive number"),
        (["--draws", "-3"], "-3 is not a positive number"),
        (["--draws", "many"], "'many' is not a whole number"),
        (["--draws", "1e4"], "'1e4' is not a whole number"),
        (["--seed", "-1"], "-1 is not a seed; expected a number from 0 to 2^32 - 1"),
        (["--seed", "4294967296"], "4294967296 is not a seed"),
        (["--seed"], "expected one argument"),
        (["--sead", "1"], "unrecognized arguments: --sead"),
    ],
)
def test_bad_options_are_refused_with_what_was_given(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in refused(capsys, "baseline", *arguments)
    assert not list(tmp_path.iterdir())


# --- refusals and exit codes ------------------------------------------------------------------------------------


def test_an_unknown_command_is_refused_with_those_there_are(capsys):
    said = refused(capsys, "mesure")
    assert "invalid choice: 'mesure'" in said
    assert all(command in said for command in COMMANDS)
    assert "the following arguments are required: COMMAND" in refused(capsys)


def test_a_request_that_cannot_be_met_is_said_in_one_line(tmp_path, capsys):
    for arguments, message in (
        (["report", str(tmp_path)], f"{tmp_path} holds no "),
        (["report", __file__], f"{__file__} is a file; expected the folder that holds the results"),
        (["train", "california-3", "--data", __file__], f"there is no data folder {__file__}; name another one"),
        (
            ["measure", "timm:test_vit", "--untrained", "--images", __file__],
            f"{__file__} is not a folder; expected one that holds",
        ),
        (["train", "california-9"], f"configuration is 'california-9'; expected one of {', '.join(CONFIGS)}"),
        (["variants", "california-9"], "configuration is 'california-9'; expected one of "),
        (["variants", "california-3", "--checkpoints", str(tmp_path)], "holds no finished run; train first: dobrushin train"),
        (["measure", "minilm", "--device", "abacus"], "device is 'abacus'; this machine has cpu"),
        (["measure", "minilm", "--device", "cpu:x"], "device is 'cpu:x'; this machine has cpu"),
        (["measure", "minilm", "--device", "cpu:"], "device is 'cpu:'; this machine has cpu"),
        (["measure", "minilm", "--device", "cpu:3"], "device is 'cpu:3'; this machine has cpu"),
        (["measure", "minilm", "--device", "cuda:99"], "device is 'cuda:99'; this machine has cpu"),
    ):
        assert cli.main(arguments) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith("dobrushin: ")
        assert message in said.err
        assert said.err.count("\n") == 1


@pytest.mark.parametrize("name", ["a/b", "../up", ".", "..", "", ".hidden", "a/"])
def test_a_name_that_is_no_file_of_the_folder_is_refused(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert f"{name!r} is not a name; expected a file's" in refused(capsys, "measure", "minilm", "--name", name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", ["{", "[]", '{"kind": "measurement"}', '{"table": 3}'])
def test_a_report_names_the_file_that_is_no_result(content, tmp_path, capsys):
    (tmp_path / "one.json").write_text(content)
    assert cli.main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path / 'one.json'} has no table beside it" in capsys.readouterr().err
    (tmp_path / "one.parquet").write_bytes(b"")
    assert cli.main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path / 'one.json'} is not the provenance of a result" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["baseline"], ["measure", "minilm"], ["train", "california-3"], ["show", "minilm"]])
def test_a_place_that_cannot_be_written_is_refused_before_the_work(command, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("in the way")
    option = "--checkpoints" if command[0] == "train" else "--output"
    for place in (tmp_path / "file" / "new", tmp_path / "file" / "new" / "deeper"):
        said = refused(capsys, *command, option, str(place))
        assert f"argument {option}: {tmp_path / 'file'} is a file; expected a folder, which is made where it is" in said
    assert (tmp_path / "file").read_text() == "in the way"
    if command[0] == "show":
        said = refused(capsys, *command, option, str(tmp_path))
        assert f"{tmp_path} is a folder; expected the name of a file, such as {tmp_path / 'attention.html'}" in said
    else:
        assert f"{tmp_path / 'file'} is a file" in refused(capsys, *command, option, str(tmp_path / "file"))
    there = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK and there(path, mode))  # root may write anywhere
    said = refused(capsys, *command, option, str(tmp_path / "new" / "deeper"))
    assert f"argument {option}: this user may not write to {tmp_path}; name another folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interruption_is_no_error_of_the_program(small, tmp_path, monkeypatch, capsys):
    """What is kept of a measurement and of a training is shown where they are tested."""

    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "baseline", interrupted)
    monkeypatch.setattr("dobrushin.models.load", interrupted)
    monkeypatch.setattr("dobrushin.tabular_data.load", interrupted)
    monkeypatch.setattr("dobrushin.tabular.is_finished", lambda path: True)
    monkeypatch.setattr("dobrushin.tabular.checkpoint_path", lambda *arguments: tmp_path)
    goes_on, starts_again = "the same command goes on after them", "nothing was kept, and the same command starts again"
    for command, said in (
        (["baseline", "--output"], starts_again),
        (["show", "minilm", "--output"], starts_again),
        (["variants", "california-3", "--output"], starts_again),
        (["measure", "minilm", "--output"], f"finished batches are kept, and {goes_on}"),
        (["train", "california-3", "--output"], "finished epochs are kept, and the same command without --restart goes on"),
    ):
        assert cli.main([*command, str(tmp_path / "out")]) == 130
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.splitlines()[-1].startswith(f"dobrushin: stopped; {said}")
        assert not list(tmp_path.iterdir())


def test_a_fault_of_the_program_is_not_hidden(small, tmp_path, monkeypatch):
    monkeypatch.setattr(cli, "baseline", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["baseline", "--output", str(tmp_path)])


# --- help -------------------------------------------------------------------------------------------------------


def test_it_runs_as_a_program_without_loading_a_model():
    """The version and the help are there at once: nothing heavy is imported."""
    code = "import sys; from dobrushin import cli\ntry: cli.main(['--version'])\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"dobrushin {version('dobrushin')}\nFalse\n")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_explains_every_argument_and_its_default(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as stopped:
        cli.main([*filter(None, [command]), "--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    assert "(default: None)" not in said
    assert "(default: False)" not in said
    explained = " ".join(said.split())
    options = set(re.findall(r"--[a-z-]+", said.partition("options:")[2]))
    assert options
    assert not [option for option in options if re.search(rf"{option}(?: [A-Z_]+)?(?: --|$)", explained)]
    if command == "baseline":
        assert "(default: 10000)" in said
        assert "(default: results)" in said
    if command == "train":
        assert all(name in said for name in CONFIGS)
    if command == "":
        assert all(f"\n    {name} " in said for name in COMMANDS)
