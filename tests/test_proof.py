"""The formal proof compiles without an axiom, and a proof with a hole is refused."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

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
