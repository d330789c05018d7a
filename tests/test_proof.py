"""The formal proof compiles without an axiom, a proof with a hole is refused, and the book shows what was proved."""

import ast
import json
import os
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest

from oracle import HALF, judge, kappa, lazy, product

PROOF = Path(__file__).parents[1] / "book" / "proof"
SOUND = """Theorem true_holds : True. Proof. exact I. Qed.
Print Assumptions true_holds.
"""

needs_coq = pytest.mark.skipif(shutil.which("coqc") is None, reason="coqc is not installed: `make proof` installs it")


def check(folder: Path, build: Path) -> subprocess.CompletedProcess[str]:
    """`make check` in folder, with MAKEFLAGS of an outer make left out."""
    environment = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    return subprocess.run(
        ["make", "-C", str(folder), f"BUILD={build}"], capture_output=True, text=True, env=environment, timeout=600
    )


@needs_coq
def test_the_proof_compiles_and_rests_on_no_axiom(tmp_path):
    before = sorted(PROOF.iterdir())
    result = check(PROOF, tmp_path / "build")
    assert result.returncode == 0, result.stdout + result.stderr
    theorems = [line.split()[1] for line in (PROOF / "statements.v").read_text().splitlines() if line.startswith("Theorem ")]
    assert "equality_condition" in theorems
    for name in theorems:
        assert f"{name}: Closed under the global context" in result.stdout
    assert sorted(PROOF.iterdir()) == before  # nothing is written beside the sources


HOLES = {
    "admitted": (
        {"statements.v": SOUND + "Theorem false_holds : False. Admitted.\nPrint Assumptions false_holds.\n"},
        "Admitted",
    ),
    "axiom": ({"statements.v": "Axiom false_holds : False.\n" + SOUND}, "Axiom"),
    "hidden axiom": (  # a variable outside a section is an axiom that no forbidden word announces
        {"statements.v": "Variable p : False.\nTheorem any : 0 = 1. Proof. destruct p. Qed.\nPrint Assumptions any.\n"},
        "rests on the axioms",
    ),
    "unused axiom": (
        {
            "statements.v": "From dobrushin_proof Require other.\n" + SOUND,
            "other.v": "Variable p : False.\nLemma any : True. Proof. exact I. Qed.\n",
        },
        "dobrushin_proof.other.p",
    ),
    "wrong": ({"statements.v": "Theorem wrong : 0 = 1. Proof. reflexivity. Qed.\nPrint Assumptions wrong.\n"}, "Unable to unify"),
    "left out": ({"statements.v": SOUND, "other.v": SOUND}, "other.v is not compiled"),
    "not printed": ({"statements.v": SOUND + "Theorem second : True. Proof. exact I. Qed.\n"}, "one Print Assumptions"),
}


@needs_coq
def test_a_sound_proof_of_one_line_is_accepted(tmp_path):
    shutil.copy(PROOF / "Makefile", tmp_path)
    (tmp_path / "statements.v").write_text(SOUND)
    result = check(tmp_path, tmp_path / "build")
    assert result.returncode == 0, result.stdout + result.stderr


@needs_coq
@pytest.mark.parametrize(("files", "says"), HOLES.values(), ids=HOLES.keys())
def test_a_hole_in_the_proof_is_refused(tmp_path, files, says):
    shutil.copy(PROOF / "Makefile", tmp_path)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    result = check(tmp_path, tmp_path / "build")
    assert result.returncode != 0
    assert says in result.stdout + result.stderr


def coq_matrices() -> dict[str, list[list[Fraction]]]:
    """The example matrices of examples.v."""
    text = (PROOF / "examples.v").read_text()
    found = {}
    for name, rows in re.findall(r"^Definition (\w+) := of_rows\s+(\[::.*?\]\])\.", text, re.DOTALL | re.MULTILINE):
        values = ast.parse(rows.replace("[::", "[").replace(";", ","), mode="eval").body
        found[name] = [
            [HALF if isinstance(x, ast.Name) else Fraction(ast.literal_eval(x)) for x in row.elts] for row in values.elts
        ]
    return found


def notebook_matrices() -> dict[str, list[list[Fraction]]]:
    """Those of the chapter, from its cell tagged ``examples``."""
    path = PROOF.parents[1] / "notebooks" / "10_behind_the_theorem.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    (source,) = ["".join(cell["source"]) for cell in cells if "examples" in cell["metadata"].get("tags", [])]
    names = {"Fraction": Fraction}
    exec(source, names)
    return {name: value for name, value in names.items() if isinstance(value, list)}


def test_the_examples_of_the_chapter_are_those_of_the_proof_and_do_what_it_says():
    examples = coq_matrices()
    assert len(examples) == 6
    assert notebook_matrices() == examples
    holds = {name: judge(A).holds for name, A in examples.items()}
    assert holds == {
        "layer_1": True, "layer_2": True, "tight_head_1": True, "tight_head_2": True,
        "loose_head_1": False, "loose_head_2": False,
    }  # fmt: skip
    layers = [examples["layer_1"], examples["layer_2"]]
    assert kappa(product(lazy(layers[1]), lazy(layers[0]))) == Fraction(3, 4)
    assert [kappa(A) for A in layers] == [1, 1]

    def mean(kind):
        pair = examples[f"{kind}_head_1"], examples[f"{kind}_head_2"]
        return [[HALF * (a + b) for a, b in zip(*rows, strict=True)] for rows in zip(*pair, strict=True)]

    assert not judge(mean("tight")).holds
    assert judge(mean("loose")).holds


def test_the_page_shows_every_theorem():
    page = (PROOF.parent / "formal_proof.md").read_text(encoding="utf-8")
    stated = re.findall(r"^Theorem (\w+)", (PROOF / "statements.v").read_text(), re.MULTILINE)
    assert re.findall(r':start-at: "Theorem (\w+) ', page) == stated


def test_missing_tools_are_named_with_the_remedy(tmp_path):
    """Where neither Coq nor apt-get is there."""
    for tool in ("make", "sh", "id"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    result = subprocess.run(
        [tmp_path / "make", "-C", PROOF, "tools"], capture_output=True, text=True, env={"PATH": str(tmp_path)}, timeout=60
    )
    assert result.returncode != 0
    assert "Coq with MathComp is missing" in result.stderr
    assert "opam install" in result.stderr
