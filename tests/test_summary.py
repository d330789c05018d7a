"""The summary: every number of the paper once, and no verdict that our own counts do not carry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import compare, results, summary
from dobrushin.compare import agrees_with, failing_agrees, half_unit, is_the_papers, paper
from dobrushin.models import REGISTRY
from dobrushin.results import Measurement

SCOPES = ("content", "all", "head", "averaged", "averaged_all")
Z = 1.959963984540054  # of the 95 % interval
NAMES = {
    "title",
    "training",
    "total",
    "source",
    "law",
    "metric",
    "inputs",
    "models",
    "claim",
    "model",
    "configuration",
    "scope",
    "layer",
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return summary.summary()


def numbers_of_the_paper() -> set[str]:
    """Every cell of data/paper that states something, under the name that the summary gives it."""
    cells = {"baseline/0"} | {f"abstract/{c['claim']}" for c in paper("abstract").to_dict("records")}
    cells |= {f"table1/{c['model']}/{c['scope']}" for c in paper("table1").to_dict("records")}
    cells |= {f"table4/{c['model']}/{c['layer']}" for c in paper("table4").to_dict("records")}
    for name, key, together in (
        ("table2", "model", {"modal_layers"}),
        ("table3", "configuration", {"averaged_total"}),
        ("tokens", "model", set()),
    ):
        for c in paper(name, as_printed=True).to_dict("records"):
            cells |= {f"{name}/{c[key]}/{column}" for column in set(c) - NAMES - together if c[column]}
    return cells


def test_every_number_of_the_paper_occurs_once(table):
    cells = table.loc[table["cell"] != "", "cell"]
    assert cells.is_unique
    assert set(cells) == numbers_of_the_paper()
    assert (table.loc[table["cell"] != "", "paper"] != "").all()


def test_rows_of_ours_alone_have_no_number_of_the_paper(table):
    own = table[table["cell"] == ""]
    assert len(own)
    assert (own["paper"] == "").all()
    assert set(own["verdict"]) <= {"measured on a derivative", "partial training data"}
    assert set(table.loc[table["cell"] != "", "verdict"]) <= {"reproduced", "differs", "not measured yet"}


def test_what_is_not_measured_has_its_command_and_no_number_and_what_is_has_one(table):
    missing = table["verdict"] == "not measured yet"
    assert (table.loc[missing, "ours"] == "").all()
    assert table.loc[missing, "command"].str.startswith("dobrushin ").all()
    assert (table.loc[~missing, "ours"] != "").all()
    assert (table.loc[~missing, "command"] == "").all()
    assert (table.loc[table["verdict"] == "differs", "why"] != "").all()


def test_without_results_only_published_scores_are_compared(tmp_path):
    alone = summary.summary(tmp_path)
    compared = alone[alone["verdict"] != "not measured yet"]
    assert set(compared["cell"].str.rpartition("/")[2]) == {"authors_low", "authors_high"}
    assert set(alone["cell"]) == numbers_of_the_paper()


def test_markdown_has_a_line_for_every_row_and_the_command_where_ours_would_be(table):
    lines = [line for line in summary.markdown(table).splitlines() if line.startswith("|")]
    assert len(lines) == len(table) + 2
    assert all(line.count("|") == 5 for line in lines)
    for line, row in zip(lines[2:], table.to_dict("records"), strict=True):
        assert row["verdict"] in line
        assert (f"`{row['command']}`" in line) == bool(row["command"])


def measurement(name: str, holds: dict[str, np.ndarray], *, status: str = "paper's checkpoint", **given: Any) -> Measurement:
    """A result of one model: per scope, verdicts of shape (layers, inputs); in the scopes not given, the condition holds."""
    parts = []
    for scope, of_scope in (dict.fromkeys(SCOPES, np.ones((12, 1), dtype=bool)) | holds).items():
        layer, which = np.indices(of_scope.shape)
        columns = {"layer": layer + 1, "input": which, "holds": of_scope}
        parts.append(pd.DataFrame({"scope": scope, **{name: values.ravel() for name, values in columns.items()}}))
    spec = REGISTRY[name]
    inputs = {"number": holds["content"].shape[1], "tokens": spec.tokens, "content_tokens": 256, "images": "generated"} | given
    model = {"name": name, "title": spec.title, "status": status, "training": spec.training}
    return Measurement(name, pd.concat(parts), {"kind": "measurement", "model": model, "inputs": inputs})


def verdicts(layers: int, inputs: int, failing: int) -> np.ndarray:
    holds = np.ones(layers * inputs, dtype=bool)
    holds[:failing] = False
    return holds.reshape(layers, inputs)


@given(st.sampled_from(["derivative", "untrained", "another model"]))
def test_other_weights_never_stand_in_the_papers_row(status):
    one = measurement("dinov2-s", {"content": verdicts(12, 512, 0)}, status=status)
    assert not any(is_the_papers(one, name) for name in REGISTRY)


@given(st.integers(1, 511), st.sampled_from([65, 145, 257, 577]))
def test_fewer_inputs_or_another_size_never_stand_in_the_papers_row(number, tokens):
    assert not is_the_papers(measurement("dinov2-s", {"content": verdicts(12, number, 0)}), "dinov2-s")
    assert not is_the_papers(measurement("dinov2-s", {"content": verdicts(12, 512, 0)}, tokens=tokens), "dinov2-s")


def test_the_papers_checkpoint_on_its_inputs_and_in_all_scopes_stands_there():
    one = measurement("dinov2-s", {"content": verdicts(12, 512, 0)})
    assert [name for name in REGISTRY if is_the_papers(one, name)] == ["dinov2-s"]
    for scope in SCOPES:
        partial = Measurement(one.name, one.table[one.table["scope"] != scope], one.how)
        assert not is_the_papers(partial, "dinov2-s")


def in_wilson(observed: float, total: int, expected: float) -> bool:
    """The interval of Wilson by its definition: the shares that a score test does not reject."""
    return (observed - expected) ** 2 <= Z**2 * expected * (1 - expected) / total + 1e-12


@given(st.integers(2, 12), st.integers(8, 80), st.data())
def test_a_share_agrees_exactly_if_our_interval_reaches_what_rounds_to_it(layers, inputs, data):
    total = layers * inputs
    failing = data.draw(st.integers(0, total))
    digits = data.draw(st.integers(0, 2))
    printed = f"{data.draw(st.floats(0, 100)):.{digits}f}"
    cell = {"scope": "all", "holds": "", "total": "", "percent": printed, "words": ""}
    ours = measurement("dinov2-s", {"content": verdicts(layers, inputs, 0), "all": verdicts(layers, inputs, failing)})
    observed, half = 1 - failing / total, 0.5 * 10.0 ** -(digits + 2)
    nearest = float(np.clip(observed, max(float(printed) / 100 - half, 0), min(float(printed) / 100 + half, 1)))
    slack = abs((observed - nearest) ** 2 - Z**2 * nearest * (1 - nearest) / total)
    if slack > 1e-9:  # nearer than that rounding decides
        assert agrees_with(cell, ours.table) == in_wilson(observed, total, nearest)


@given(st.integers(0, 6144), st.integers(0, 6144))
def test_a_count_agrees_exactly_if_our_interval_contains_it(papers, failing):
    cell = {"scope": "content", "holds": str(papers), "total": "6144", "percent": "0", "words": ""}
    ours = measurement("dinov2-s", {"content": verdicts(12, 512, failing)})
    observed, expected = 1 - failing / 6144, papers / 6144
    if abs((observed - expected) ** 2 - Z**2 * expected * (1 - expected) / 6144) > 1e-9:
        assert agrees_with(cell, ours.table) == in_wilson(observed, 6144, expected)


@given(st.integers(0, 12), st.integers(0, 12))
def test_a_number_of_layers_must_be_the_same(papers, ours):
    cell = {"scope": "averaged", "holds": str(papers), "total": "12", "percent": "", "words": ""}
    table = measurement("dinov2-s", {"content": verdicts(12, 8, 0), "averaged": verdicts(12, 1, 12 - ours)}).table
    assert agrees_with(cell, table) == (papers == ours)


def test_words_are_no_blank_cheque():
    cell = next(c for c in paper("table1", as_printed=True).to_dict("records") if c["model"] == "roberta-base")
    assert agrees_with(cell, measurement("roberta-base", {"content": verdicts(12, 512, 0)}).table)
    assert not agrees_with(cell, measurement("roberta-base", {"content": verdicts(12, 512, 600)}).table)


@settings(max_examples=25)
@given(st.integers(0, 20), st.integers(0, 20))
def test_failing_inputs_at_a_layer_that_the_paper_does_not_name_are_a_difference(named, elsewhere):
    holds = np.ones((12, 512), dtype=bool)
    holds[0, :named] = False
    holds[5, :elsewhere] = False
    one = measurement("dinov2-b", {"content": holds})
    cells = {c["layer"]: c for c in paper("table4", as_printed=True).to_dict("records") if c["model"] == "dinov2-b"}
    papers = {1: int(cells["1"]["failing"])}
    assert failing_agrees(cells["1"], one, papers) == in_wilson(named / 512, 512, papers[1] / 512)
    assert failing_agrees(cells["other"], one, papers) == (elsewhere == 0)
    shown = compare.compare_failing([one])
    assert ("differs" in set(shown["Verdict"])) == (elsewhere > 0 or not in_wilson(named / 512, 512, papers[1] / 512))


@pytest.mark.parametrize(("failing", "verdict"), [(7, "reproduced"), (600, "differs")])
def test_a_result_with_the_papers_checkpoint_takes_its_row(tmp_path, failing, verdict):
    written(tmp_path, "dinov2-b", content={1: min(failing, 512), 2: max(failing - 512, 0)})
    told = summary.summary(tmp_path).set_index("cell")
    assert told.loc["table1/dinov2-b/content", "verdict"] == verdict
    assert told.loc["table1/dinov2-b/all", "verdict"] == "differs"  # all of them hold here, fewer in the paper
    assert told.loc["table1/dinov2-b/averaged", "verdict"] == "reproduced"
    assert told.loc["table4/dinov2-b/other", "verdict"] == ("reproduced" if failing <= 512 else "differs")
    assert told.loc["table1/dinov2-s/content", "verdict"] == "not measured yet"


def written(folder: Path, name: str, **failing: dict[int, int]) -> None:
    """A result with the paper's checkpoint on disk: per scope, failing inputs by layer."""
    holds = {scope: np.ones((12, 512), dtype=bool) for scope in SCOPES[:3]}
    for scope, counts in failing.items():
        for layer, count in counts.items():
            holds[scope][layer - 1, :count] = False
    one = measurement(name, holds)
    table = one.table.assign(role="content", score=0.001, kappa=0.5, n=256, columnwise=1.0, entrywise=1.0, carrier=0, head=0)
    results.write(table, one.how | {"command": "test", "started": "now"}, name, folder)


@pytest.mark.parametrize(("first", "verdict"), [(7, "reproduced"), (6, "differs")])
def test_late_means_in_the_second_half_of_the_layers(tmp_path, first, verdict):
    written(tmp_path, "deit-b", content={first: 3, 12: 512})
    assert summary.summary(tmp_path).set_index("cell").loc["abstract/late", "verdict"] == "not measured yet"
    written(tmp_path, "vit-b16", content={11: 40})
    row = summary.summary(tmp_path).set_index("cell").loc["abstract/late"]
    assert (row["verdict"], row["ours"]) == (verdict, f"deit-b from layer {first}, vit-b16 from layer 11")


@pytest.mark.parametrize(("most", "verdict"), [(18, "reproduced"), (30, "differs")])
def test_a_range_over_models_needs_all_of_them_and_its_ends(tmp_path, most, verdict):
    models = next(c["models"].split() for c in paper("abstract").to_dict("records") if c["claim"] == "special")
    shares = np.linspace(3, most, len(models)) / 100  # of failures, the same at each layer
    for name, share in zip(models, shares, strict=True):
        assert summary.summary(tmp_path).set_index("cell").loc["abstract/special", "verdict"] == "not measured yet"
        written(tmp_path, name, all=dict.fromkeys(range(1, 13), round(512 * share)))
    assert summary.summary(tmp_path).set_index("cell").loc["abstract/special", "verdict"] == verdict


@given(st.integers(-6, 3), st.integers(1, 999))
def test_half_a_unit_of_the_last_digit(exponent, mantissa):
    assert half_unit(f"{mantissa}e{exponent}") == pytest.approx(0.5 * 10.0**exponent, rel=1e-15)
    assert half_unit(f"{mantissa}.{mantissa % 10}") == 0.05


def test_no_number_has_no_unit():
    with pytest.raises(ValueError, match="'nan' is no finite number"):
        half_unit("nan")
