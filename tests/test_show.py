"""Looks at single inputs: the verdicts are those of the package, the levels are the matrix, the page carries both."""

from __future__ import annotations

import base64
import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import site_viewer
from dobrushin import cli, equality, results, show
from dobrushin.coefficient import coefficient
from dobrushin.inputs import Text, lines
from strategies import any_matrix


@settings(max_examples=40)
@given(st.lists(any_matrix(6), min_size=1, max_size=3))
def test_a_look_has_the_verdict_and_the_matrix(found):
    for A in found:
        row = show.look(A[None]).to_dict("records")[0]
        verdict = equality(A)
        assert (row["kappa"], row["gap"], row["holds"]) == (verdict.kappa, verdict.gap, verdict.holds)
        i, j = verdict.pair
        assert (row["i"], row["j"]) == (i, j)
        assert (row["A_ii"], row["A_ji"], row["A_jj"], row["A_ij"]) == (A[i, i], A[j, i], A[j, j], A[i, j])
        half_a_level = row["largest"] / show.LEVELS / 2 * (1 + 1e-9)  # and the rounding of two products
        assert np.abs(show.weights(row) - A).max() <= half_a_level


@settings(max_examples=30)
@given(any_matrix(6))
def test_what_is_written_is_read_back(A):
    table = show.look(A[None])
    example = {"kind": "words", "label": "</script>", "tokens": ["a"] * len(A)}
    text = show.written(example, table)
    assert "<" not in text
    back = json.loads(text)
    assert {name: back[name] for name in example} == example
    row, layer = table.to_dict("records")[0], back["layers"][0]
    assert base64.b64decode(layer["levels"]) == row["levels"]
    assert layer["margin"] == (row["margin"] if np.isfinite(row["margin"]) else None)
    assert all(layer[name] == row[name] for name in ("layer", "n", "kappa", "lazy_kappa", "gap", "holds", "fragile", "i", "j"))


@pytest.fixture(scope="module")
def committed():
    return site_viewer.groups()


@pytest.mark.parametrize("name", site_viewer.GROUPS)
def test_committed_levels_fit_the_committed_verdicts(committed, name):
    table, how = committed[name]
    assert table["example"].nunique() == len(how["examples"])
    for row in table.to_dict("records"):
        A, tokens = show.weights(row), how["examples"][row["example"]]["tokens"]
        assert len(A) == row["n"] == len(tokens)
        assert row["holds"] == (row["gap"] == 0) == (row["margin"] >= 0)
        off = row["n"] * row["largest"] / show.LEVELS  # what rounding to levels can move a row sum, or twice a distance
        assert np.abs(A.sum(axis=1) - 1).max() <= off
        assert abs(0.5 * np.abs(A[row["i"]] - A[row["j"]]).sum() - row["kappa"]) <= off
        assert abs(float(coefficient(A / A.sum(axis=1, keepdims=True))) - row["kappa"]) <= 2 * off
        assert row["gap"] == pytest.approx((1 + row["kappa"]) / 2 - row["lazy_kappa"], abs=1e-15)
        good = row["A_ii"] >= row["A_ji"] and row["A_jj"] >= row["A_ij"]
        assert good == row["holds"]


def test_sentences_are_judged_the_same_again(minilm, committed):
    table, how = committed["sentences"]
    if minilm.weights_sha256 != how["model"]["weights_sha256"]:
        pytest.skip("the installed package has other weights than the examples")
    for k in (0, 7):
        sentence = how["examples"][k]["label"]
        inputs = lines(minilm.tokenizer, Text("", sentence), 1, 64)
        example, again = show.describe(minilm, inputs, 0)
        assert example["tokens"] == how["examples"][k]["tokens"]
        before = table[table["example"] == k]
        assert np.allclose(again["kappa"], before["kappa"], atol=1e-4)  # float32 weights on another processor
        firm = ~before["fragile"].to_numpy()
        assert (again["holds"].to_numpy() == before["holds"].to_numpy())[firm].all()


@pytest.mark.parametrize("config", ["california-3", "california-6", "higgs-3-partial"])
def test_rows_of_tables_are_those_that_were_counted(committed, config):
    table, _ = committed[f"rows-{config}"]
    counted, _ = results.read(f"ftt_{config}_seed0")
    counted = counted[(counted["scope"] == "content") & counted["input"].isin(table["example"])]
    both = table.merge(counted, left_on=["example", "layer"], right_on=["input", "layer"], validate="one_to_one")
    assert len(both) == len(table)
    assert (both["holds_x"] == both["holds_y"]).all()
    assert np.allclose(both["kappa_x"], both["kappa_y"], atol=1e-6)  # some results keep kappa in float32


def test_the_command_writes_one_page(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("A <b>short</b> sentence, & another one.\nThe second line.\n")
    target = tmp_path / "new" / "page.html"
    asked = ["show", "minilm", "--text", str(tmp_path / "text.txt"), "--number", "2", "--output", str(target)]
    assert cli.main(asked) == 0
    text = target.read_text(encoding="utf-8")
    assert "<b>short" not in text
    assert str(tmp_path) not in text
    assert not re.search(r"""(src|href)=["'](?!https://arxiv|data:)""", text.partition("<script>")[0])
    assert text.count("DobrushinLooks ??= {})[") == 2
    assert cli.main([*asked[:5], "3"]) == 2
    assert "has 2 lines of two words or more, 3 were asked for" in capsys.readouterr().err


def test_an_image_is_shown_as_the_model_saw_it():
    """An untrained model on the default crops: the picture in the page is that of the model's input."""
    from PIL import Image

    from dobrushin.images import default_pictures, images
    from dobrushin.models import load

    model = load("dinov2-s-saliency", untrained=True, size=56)
    inputs = images(model, default_pictures(2))
    example, table = show.describe(model, inputs, 1)
    assert example["tokens"][5] == "row 2, column 2"
    assert set(table["n"]) == {16}

    shown = np.asarray(Image.open(io.BytesIO(base64.b64decode(example["picture"].partition(",")[2]))), dtype=float)
    photograph = np.asarray(inputs.pictures.open(1).resize((56, 56)), dtype=float)
    assert shown.shape == (56, 56, 3)
    assert np.abs(shown - photograph).mean() < 12  # of 255: JPEG, and another filter of the resizing
