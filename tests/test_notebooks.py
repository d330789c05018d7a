"""The notebooks as they are stored: stripped, executable from anywhere, and without a number that nothing computes."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest
import yaml

import execute

ROOT = Path(__file__).parents[1]
NOTEBOOKS = execute.notebooks()
PROSE = [*NOTEBOOKS, *sorted((ROOT / "book").glob("*.md"))]

# What may hold a number in prose: mathematics, code, links, citations, the paper's own identifiers.
NOT_PROSE = re.compile(
    r"""
      ^(?P<fence>`{3,}|~{3,}|:{3,})\{(?:math|raw|bibliography)\}.*?^(?P=fence)\s*$   # directives that hold no prose
    | ^(?P<plain>`{3,})\w*\n.*?^(?P=plain)\s*$                                       # blocks of code
    | \$\$.*?\$\$ | \$[^$]+\$                                                        # mathematics
    | \{[\w:.-]+\}`[^`]*` | `[^`]*`                                                  # roles, code
    | \]\([^)]*\) | <[^>]*> | https?://\S+                                           # links
    | ^[ ]{4,}\S.*$                                                                  # indented code
    | (?:arXiv:|(?:Apache|CC\ BY|Python|MathComp|Coq|version)\ )[\d.]+v?\d*(?:,?\ (?:to\ |or\ )?[\d.]+)*          # versions
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
RESULT = re.compile(
    r"""
      (?<![\d.])\d+\.\d+(?!\.?\d) | \d+\s?/\s?\d+ | \d\s?[×·]\s?10\b | \d e-?\d  # a fraction, a count of a total, a power of ten
    | \d(?:\s|&nbsp;)*per\s?cent
    | \d(?:\s|&nbsp;)*%(?!\s*(?:Wilson|interval|confidence|of\ cases))   # but for a level of confidence
    """,
    re.VERBOSE,
)


def cells_of(notebook: Path) -> list[dict]:
    return json.loads(notebook.read_text(encoding="utf-8"))["cells"]


def code_of(notebook: Path) -> list[dict]:
    return [cell for cell in cells_of(notebook) if cell["cell_type"] == "code"]


def typed_numbers(markdown: str) -> list[str]:
    prose = NOT_PROSE.sub(" ", re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL))
    return [prose[max(0, found.start() - 40) : found.end() + 20].replace("\n", " ") for found in RESULT.finditer(prose)]


def named(paths: list[Path]):
    return pytest.mark.parametrize("path", paths, ids=[path.name for path in paths])


# --- the check itself -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["holds for 98.9 % of them", "in 99% of", "3/4 of them", "gap of 3e-4", "2 × 10", "9 percent"])
def test_typed_results_are_found(text):
    assert typed_numbers(text)
    assert typed_numbers(f"$x$ {text} `y`")
    assert typed_numbers(f"````{{prf:remark}}\n{text}\n````")


@pytest.mark.parametrize(
    "text",
    ["512 sequences of 128 tokens", "$\\kappa = 0.5$", "`0.25`", "{cite}`a2006`", "[x](https://x.org/1.5)", "arXiv:2610.05558",
     "```python\nx = 0.5\n```", "```{math}\n0.5\n```", "$$\n\\tfrac12 = 0.5\n$$", "Python 3.11 to 3.13"],
)  # fmt: skip
def test_what_is_no_result_is_left_alone(text):
    assert not typed_numbers(text)


# --- every notebook ---------------------------------------------------------------------------------------------


def test_the_table_of_contents_lists_the_notebooks_in_order():
    text = (ROOT / "_toc.yml").read_text(encoding="utf-8")
    listed = [Path(name).name for name in re.findall(r"file: (notebooks/\S+)", text)]
    assert listed == [notebook.stem for notebook in NOTEBOOKS]
    files = [chapter["file"] for part in yaml.safe_load(text)["parts"] for chapter in part["chapters"]]
    pages = {f"book/{page.stem}" for page in (ROOT / "book").glob("*.md")}
    assert {name for name in files if name.startswith("book/")} == pages - {"book/index"}


@named(NOTEBOOKS)
def test_stored_without_outputs(path):
    document = json.loads(path.read_text(encoding="utf-8"))
    nbformat.validate(nbformat.from_dict(document))
    assert set(document["metadata"]) == {"kernelspec", "language_info"}
    assert document["metadata"]["kernelspec"]["name"] == "python3"
    for cell in document["cells"]:
        assert set(cell["metadata"]) <= {"tags", "mystnb"}
        assert "".join(cell["source"]).strip(), "an empty cell"
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@named(NOTEBOOKS)
def test_one_cell_of_parameters_that_are_used(path):
    parameters = execute.parameters_of(path)
    later = "\n".join("".join(cell["source"]) for cell in code_of(path) if "parameters" not in cell["metadata"].get("tags", []))
    assert parameters
    for name, value in parameters.items():
        assert re.search(rf"\b{name}\b", later), f"{name} changes nothing"
        assert json.loads(json.dumps(value)) == value, "papermill takes plain values"


@named(NOTEBOOKS)
def test_plain_python_without_paths_or_installs(path):
    for cell in code_of(path):
        source = "".join(cell["source"])
        ast.parse(source)  # so no magics and no shell
        strings = [n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        assert not [text for text in strings if re.match(r"(?:/|~/|[A-Za-z]:\\|\.\./)\w", text)]
        assert "OMP_NUM_THREADS" not in source
        assert not re.search(r"\b(?:interact|input)\s*\(", source)


@named(NOTEBOOKS)
def test_every_figure_has_a_name_a_caption_and_words_for_those_who_do_not_see_it(path):
    seen = set()
    for cell in code_of(path):
        statements = ast.parse("".join(cell["source"])).body
        last = statements[-1] if statements else None
        called = last.value.func if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
        draws = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id.endswith("figures")
        mystnb = cell["metadata"].get("mystnb", {})
        if draws and called.attr != "use_style":
            assert mystnb.get("figure"), "".join(cell["source"])
        if "figure" not in mystnb:
            continue
        figure, alt = mystnb["figure"], mystnb["image"]["alt"]
        assert re.fullmatch(r"fig-[a-z0-9-]+", figure["name"])
        assert figure["name"] not in seen
        seen.add(figure["name"])
        assert len(figure["caption"]) > 20
        assert len(alt) > 40
        assert alt != figure["caption"]


@named(PROSE)
def test_no_result_is_typed(path):
    if path.suffix == ".md":
        texts = [path.read_text(encoding="utf-8")]
    else:
        cells = cells_of(path)
        texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
        texts += [mystnb["figure"]["caption"] for cell in cells if "figure" in (mystnb := cell["metadata"].get("mystnb", {}))]
        texts += [mystnb["image"]["alt"] for cell in cells if "image" in (mystnb := cell["metadata"].get("mystnb", {}))]
    found = [place for text in texts for place in typed_numbers(text)]
    assert not found, "\n".join(found)


def test_names_of_figures_are_unique_in_the_book():
    names = [
        cell["metadata"]["mystnb"]["figure"]["name"]
        for notebook in NOTEBOOKS
        for cell in code_of(notebook)
        if "figure" in cell["metadata"].get("mystnb", {})
    ]
    assert len(names) == len(set(names))
