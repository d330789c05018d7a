"""What the README and its companions tell a reader to do can be done."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import site_cite
from dobrushin import cli

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "book").glob("*.md")),
    *sorted((ROOT / "data").glob("*/README.md")),
]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_EXAMPLE = {"S": "0", "0,1,…": "0,1"}
"""What stands for seeds, and seeds."""

every_page = pytest.mark.parametrize("name", list(TEXTS))


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, flags=re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[list[str]]:
    """The shell's lines of a page, and what it names in code between its words."""
    lines = [line.strip() for block in blocks(text, "sh") for line in block.splitlines()]
    lines += re.findall(r"(?<!`)`((?:make|dobrushin|\.venv/bin/\w+) [^`\n]+)`", text)
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def targets() -> set[str]:
    return {name for line in re.findall(r"^([a-z ]+):(?!=)", MAKEFILE, flags=re.MULTILINE) for name in line.split()}


@pytest.mark.parametrize(("name", "block"), [(name, block) for name, text in TEXTS.items() for block in blocks(text, "python")])
def test_python_runs(name, block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, name, "exec"), {})


def test_the_readme_has_python_to_run_and_the_two_commands():
    assert any("assert " in block for block in blocks(TEXTS["README.md"], "python"))
    assert {("make", "book"), ("make", "test"), ("make", "lab"), ("make", "clean")} <= {
        tuple(c) for c in commands(TEXTS["README.md"])
    }


@every_page
def test_make_knows_what_a_page_says(name):
    for program, *words in commands(TEXTS[name]):
        if program != "make":
            continue
        for word in words:
            variable, assigned, _ = word.partition("=")
            if assigned:
                assert re.search(rf"^{variable} \?=", MAKEFILE, flags=re.MULTILINE)
            else:
                assert word in targets()


def test_make_says_what_it_can_do():
    for target in set(re.findall(r'@echo "make (\w+) ', MAKEFILE)):
        assert target in targets()
    phony = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, flags=re.MULTILINE)[1].split())
    assert phony == targets()


@every_page
def test_the_command_line_knows_what_a_page_says(name, capsys):
    for program, *words in commands(TEXTS[name]):
        if program.rpartition("/")[2] != "dobrushin" or "..." in words:
            continue
        if len(words) == 1:  # a command that is named, not given
            with pytest.raises(SystemExit) as stopped:
                cli._parser().parse_args([*words, "--help"])
            assert stopped.value.code == 0
        else:
            cli._parser().parse_args([FOR_EXAMPLE.get(word, word) for word in words])


@every_page
def test_relative_links_and_pictures_are_there(name):
    text = re.sub(r"^( *)(`{3,}).*?^\1\2", "", TEXTS[name], flags=re.DOTALL | re.MULTILINE)
    for picture, words, target in re.findall(r"(!?)\[([^\]]*)\]\(([^)\s#]+)[^)]*\)", text):
        if not re.match(r"[a-z]+:", target):
            assert (ROOT / name).parent.joinpath(target).exists(), target
        if picture:
            assert len(words) > 40


def test_the_map_leads_to_what_is_there():
    (chart,) = re.findall(r"## Map\n\n```\n(.*?)```", TEXTS["README.md"], flags=re.DOTALL)
    modules = {path.stem for path in (ROOT / "src" / "dobrushin").glob("*.py")} - {"__init__"}
    named: list[str] = []
    for line in chart.splitlines():
        first = re.split(r" {3,}", line.strip())[0]
        if re.fullmatch(r"    [a-z_]+( [a-z_]+)*( {3,}.*)?", line):
            named += first.split()
        for path in re.findall(r"(?<!\S)[\w./]+(?:/|\.yml)", line):
            assert (ROOT / path).exists(), path
    assert sorted(named) == sorted(modules)


def test_the_supported_versions_of_python_agree():
    low, high = re.search(r"Python (3\.\d+) to (3\.\d+)", TEXTS["README.md"]).groups()
    beyond = f"3.{int(high.split('.')[1]) + 1}"
    assert PROJECT["requires-python"] == f">={low},<{beyond}"
    assert f"({low.replace('.', ', ')}) <= v < ({beyond.replace('.', ', ')})" in MAKEFILE
    assert f"expected {low} to {high}" in MAKEFILE


def test_the_citation_of_the_paper_is_that_of_the_site():
    (shown,) = blocks(TEXTS["README.md"], "bibtex")

    def fields(entry: str) -> dict[str, str]:
        return {
            key: " ".join(value.split())
            for key, value in re.findall(r"(\w+)\s*=\s*\{(.*?)\},?$", entry, flags=re.MULTILINE | re.DOTALL)
        }

    assert fields(shown) == fields(site_cite.entries()["paper.bib"])
    assert fields(shown)["eprint"] == "2610.05558"


def test_continuous_integration_runs_the_readmes_commands():
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    lines = script.read_text(encoding="utf-8").splitlines()
    assert {"make test", "make book"} <= set(lines)
    assert "set -euo pipefail" in lines
