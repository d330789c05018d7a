"""The paper beside ours: what is printed is shown as printed, and a verdict needs the paper's own weights."""

from __future__ import annotations

import csv
import math
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from dobrushin import compare, results
from dobrushin.models import REGISTRY
from dobrushin.results import Measurement

TRAININGS = ("self-supervised", "supervised", "language")
SCOPES = {"content": "Content tokens", "all": "All tokens", "head": "Heads", "averaged": "Averaged"}


def verdicts(scope: str, holds: list[bool], layers: list[int] | None = None, **columns) -> pd.DataFrame:
    number = len(holds)
    rows = {"scope": scope, "layer": layers or [1] * number, "holds": np.array(holds, bool), "n": 16, "kappa": 0.5, "gap": 0.0}
    return pd.DataFrame(rows | columns, index=range(number))


def counted(scope: str, holds: int, total: int) -> pd.DataFrame:
    return verdicts(scope, [True] * holds + [False] * (total - holds))


def measured(name: str, *parts: pd.DataFrame, status: str = "paper's checkpoint", title: str = "", number=512) -> Measurement:
    """A result of as many tokens as the paper's model has, if there is one of that name."""
    model = {"name": name, "title": title or name, "status": status, "training": "whatever"}
    tokens = REGISTRY[name].tokens if name in REGISTRY else 17
    how = {"model": model, "inputs": {"images": "photographs", "number": number, "tokens": tokens}}
    return Measurement(name, pd.concat(parts, ignore_index=True), how)


def whole(name: str, *parts: pd.DataFrame, **options: str) -> Measurement:
    """A measurement with all scopes; of those not given, one matrix that satisfies the condition."""
    given = {part["scope"].iloc[0] for part in parts}
    return measured(name, *parts, *(counted(scope, 1, 1) for scope in (*SCOPES, "averaged_all") if scope not in given), **options)


def stated(name: str) -> set[str]:
    """Scopes of which the paper says something."""
    return set(compare.paper("table1").query("model == @name")["scope"])


def as_the_paper(name: str, **changes: tuple[int, int]) -> Measurement:
    """A measurement whose counts are the paper's, or follow from its percentages of 100,000, but for the changes."""
    parts = []
    for cell in compare.paper("table1").query("model == @name").to_dict("records"):
        if pd.isna(cell["percent"]) and pd.isna(cell["holds"]):
            count = (1, 1)
        elif pd.notna(cell["holds"]):
            count = (int(cell["holds"]), int(cell["total"]))
        else:
            count = (round(1000 * cell["percent"]), 100_000)
        parts.append(counted(cell["scope"], *changes.get(cell["scope"], count)))
    return whole(name, *parts)


# --- numbers as text --------------------------------------------------------------------------------------------


@given(st.integers(1, 10**7).flatmap(lambda total: st.tuples(st.integers(0, total), st.just(total))), st.integers(0, 3))
def test_a_percentage_is_rounded_but_never_to_none_or_all(count, digits):
    holds, total = count
    text = compare.percent(holds / total, digits)
    shown = Fraction(text.removesuffix(" %"))
    decimals = len(text.removesuffix(" %").partition(".")[2])
    assert abs(shown - Fraction(100 * holds, total)) <= Fraction(1, 10**decimals) / 2 + Fraction(1, 10**9)  # of the division
    assert (shown == 0) == (holds == 0)
    assert (shown == 100) == (holds == total)
    assert decimals >= digits or holds in (0, total)
    assert compare.count_text(holds, total) == f"{holds}/{total} ({compare.percent(holds / total)})"


def test_percentages_by_example():
    shown = [compare.percent(share) for share in (0.0, 1.0, 0.5, 0.9886, 0.99999, 1e-6)]
    assert shown == ["0 %", "100 %", "50.0 %", "98.9 %", "99.999 %", "0.0001 %"]


# --- the paper's tables -----------------------------------------------------------------------------------------


def test_a_table_the_paper_does_not_have():
    there = ", ".join(sorted(path.stem for path in results.PAPER.glob("*.csv")))
    with pytest.raises(FileNotFoundError, match=f"no table 'table9' of the paper; there are: {there}"):
        compare.paper("table9")


@pytest.mark.parametrize("name", sorted(path.stem for path in results.PAPER.glob("*.csv")))
def test_as_printed_keeps_every_character(name):
    printed, numbers = compare.paper(name, as_printed=True), compare.paper(name)
    lines = (results.PAPER / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    assert [list(row) for row in csv.reader(lines)] == [list(printed.columns), *printed.to_numpy().tolist()]
    for column in numbers.select_dtypes("number"):
        assert [float(text or "nan") for text in printed[column]] == pytest.approx(numbers[column].tolist(), rel=0, nan_ok=True)


# --- random matrices --------------------------------------------------------------------------------------------


def baseline_table(shares: dict[int, float], law: str = "dirichlet", draws: int = 10_000) -> pd.DataFrame:
    rows = [{"law": law, "n": n, "draws": draws, "holds": round(share * draws), "fragile": 0} for n, share in shares.items()]
    return pd.DataFrame(rows)


def test_baseline_shares_carry_their_wilson_interval():
    table = compare.baseline_shares(baseline_table({2: 0.5, 8: 0.27}))
    for row in table.itertuples():
        interval = binomtest(row.holds, row.draws).proportion_ci(method="wilson")
        assert (row.share, row.low, row.high) == (row.holds / row.draws, interval.low, interval.high)


@settings(max_examples=25)
@given(st.dictionaries(st.sampled_from([2, 3, 8, 16, 256, 512]), st.floats(0.15, 0.6), min_size=1))
def test_the_baseline_is_reproduced_where_every_interval_reaches_the_papers_range(shares):
    shares = {8: 0.27} | shares
    ours = compare.baseline_shares(baseline_table(shares))
    other = baseline_table({16: 1.0}, law="sparse")
    row = compare.compare_baseline(pd.concat([ours[["law", "n", "draws", "holds", "fragile"]], other])).iloc[0]
    inside = ours[(ours["n"] >= 8) & (ours["n"] <= 256)]
    reached = ((inside["high"] >= 0.24) & (inside["low"] <= 0.30)).all()
    assert row["Verdict"] == ("reproduced" if reached else "differs")
    assert row["Paper"] == "24–30 % (abstract)"
    assert row["Ours"] == f"{compare.percent(inside['share'].min())} to {compare.percent(inside['share'].max())}"
    assert row["Quantity"] == f"random matrices, N from {inside['n'].min()} to {inside['n'].max()}"
    assert row["Draws"] == "10,000 at each N"


# --- Table 1 ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", TRAININGS)
def test_without_results_every_number_of_the_paper_stands_there_and_the_command_that_is_missing(training):
    table = compare.compare_shares(training, [])
    printed = compare.paper("table1", as_printed=True).query("training == @training")
    for name, cells in printed.groupby("model", sort=False):
        theirs, ours = table[table["Model"] == cells["title"].iloc[0]].to_dict("records")
        assert ours == {
            "Model": theirs["Model"],
            "From": "here",
            **dict.fromkeys(SCOPES.values(), ""),
            "Verdict": ours["Verdict"],
        }
        assert ours["Verdict"] == f"not measured yet: dobrushin measure {name}"
        assert name in REGISTRY
        assert theirs["Verdict"] == ""
        for cell in cells[cells["percent"] != ""].to_dict("records"):
            assert f"{cell['percent']} %" in theirs[SCOPES[cell["scope"]]]
        for cell in cells[cells["holds"] != ""].to_dict("records"):
            assert f"{cell['holds']}/{cell['total']}" in theirs[SCOPES[cell["scope"]]]
        missing = set(SCOPES) - set(cells["scope"])
        assert {theirs[SCOPES[scope]] for scope in missing} <= {"–"}
    assert len(table) == 2 * printed["model"].nunique()


@pytest.mark.parametrize("name", list(dict.fromkeys(compare.paper("table1").dropna(subset=["percent"])["model"])))
def test_the_papers_own_numbers_are_reproduced_and_others_differ(name):
    training = compare.paper("table1").query("model == @name")["training"].iloc[0]

    def verdict(one: Measurement) -> str:
        table = compare.compare_shares(training, [one])
        (row,) = table[table["From"] == f"here, {one.inputs}"].to_dict("records")
        return row["Verdict"]

    assert verdict(as_the_paper(name)) == "reproduced"
    for scope in stated(name):
        wrong = (1, 12) if scope == "averaged" else (500, 1000)
        assert verdict(as_the_paper(name, **{scope: wrong})) == "differs"
    if name == "dinov2-s":  # a count is compared as a count: all of 6144 is not 99.5 % of them
        assert verdict(as_the_paper(name, content=(6142, 6144))) == "differs"


@pytest.mark.parametrize("scope", [*SCOPES, "averaged_all", "number"])
def test_the_papers_row_needs_all_its_columns_and_inputs(scope):
    whole = as_the_paper("dinov2-s")
    part = Measurement(whole.name, whole.table[whole.table["scope"] != scope], whole.how)
    if scope == "number":
        part = measured("dinov2-s", whole.table, number=511)
    table = compare.compare_shares("self-supervised", [part])
    assert table.iloc[1]["Verdict"] == "not measured yet: dobrushin measure dinov2-s"
    own = table.iloc[-1]
    assert own["Verdict"] == "not the paper's inputs or columns"
    if scope in SCOPES:
        assert own[SCOPES[scope]] == "–"


def test_a_percentage_is_compared_to_the_digits_that_are_printed():
    """64 % stands for anything from 63.5 to 64.5 %; the interval of 100,000 matrices is 0.6 points wide."""

    def verdict(holds):
        one = as_the_paper("vit-b16", content=(holds, 10**5))
        return compare.compare_shares("supervised", [one]).query("From.str.startswith('here, ')")["Verdict"].tolist()

    assert [verdict(round(share * 10**5)) for share in (0.63, 0.636, 0.644, 0.65)] == [
        ["differs"], ["reproduced"], ["reproduced"], ["differs"]
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("derivative", "measured on a derivative"), ("another model", "another model"), ("untrained", "untrained")],
)
@pytest.mark.parametrize("name", ["dinov2-b", "a model of one's own"])
def test_other_weights_have_a_row_of_their_own_and_no_verdict(status, verdict, name):
    parts = [counted(scope, 3, 4) for scope in SCOPES]
    one = measured(name, *parts, status=status, title="Some title")
    table = compare.compare_shares("self-supervised", [one])
    own = table[table["Model"].str.startswith("Some title")].to_dict("records")
    label = "Some title, untrained" if status == "untrained" else "Some title"
    assert own == [
        {"Model": label, "From": f"here, {one.inputs}",
         **dict.fromkeys(list(SCOPES.values())[:3], "3/4 (75.0 %)"), "Averaged": "3/4", "Verdict": verdict}
    ]  # fmt: skip
    without = table[~table["Model"].str.startswith("Some title")].reset_index(drop=True)
    pd.testing.assert_frame_equal(without, compare.compare_shares("self-supervised", []))


def test_scopes_that_were_not_measured_are_marked():
    one = measured("own", counted("content", 1, 2), status="another model")
    row = compare.compare_shares("language", [one]).iloc[-1]
    assert row[list(SCOPES.values())].tolist() == ["1/2 (50.0 %)", "–", "–", "–"]


# --- Table 4 ----------------------------------------------------------------------------------------------------


def failing(counts: dict[int, int], layers: int = 12, inputs: int = 512) -> pd.DataFrame:
    each = [(layer, k >= counts.get(layer, 0)) for layer in range(1, layers + 1) for k in range(inputs)]
    return verdicts("content", [holds for _, holds in each], [layer for layer, _ in each])


def test_failing_inputs_by_layer_as_the_paper_prints_them():
    table = compare.compare_failing([])
    printed = {m: dict(zip(c["layer"], c["failing"], strict=True)) for m, c in compare.paper("table4").groupby("title")}
    assert {counts.pop("other") for counts in printed.values()} == {0}
    theirs = table[table["From"] == "paper (Table 4)"].set_index("Model")["Failing inputs"].to_dict()
    assert theirs == {
        title: ", ".join(f"layer {layer}: {k}" for layer, k in counts.items()) or "none" for title, counts in printed.items()
    }
    assert set(table[table["From"] == "here"]["Failing inputs"]) == {""}
    for verdict in table[table["From"] == "here"]["Verdict"]:
        assert re.fullmatch(rf"not measured yet: dobrushin measure ({'|'.join(REGISTRY)})", verdict)


@pytest.mark.parametrize(
    ("name", "counts", "verdict"),
    [
        ("deit-b", {11: 50, 12: 512}, "reproduced"),
        ("deit-b", {11: 49, 12: 512}, "reproduced"),
        ("deit-b", {11: 100, 12: 512}, "differs"),
        ("deit-b", {10: 50, 12: 512}, "differs"),
        ("dinov2-s", {}, "reproduced"),
        ("dinov2-s", {3: 1}, "differs"),
    ],
)
def test_failing_inputs_that_were_measured(name, counts, verdict):
    own = measured("own", failing({2: 7}), status="derivative")
    table = compare.compare_failing([whole(name, failing(counts)), own])
    (row,) = table[table["Model"] == name].to_dict("records") or table[table["Verdict"] == verdict].to_dict("records")
    assert row["Verdict"] == verdict
    assert row["Failing inputs"] == (", ".join(f"layer {layer}: {k}" for layer, k in counts.items()) or "none")
    assert table.iloc[-1].to_dict() == {
        "Model": "own", "From": "here, 512 inputs of 17 tokens (photographs)", "Failing inputs": "layer 2: 7",
        "Verdict": "measured on a derivative",
    }  # fmt: skip


# --- Table 2 ----------------------------------------------------------------------------------------------------


def carried(roles: list[str], scores: list[float]) -> pd.DataFrame:
    layers = list(range(1, len(roles) + 1))
    more = {"entrywise": 1.0, "columnwise": 1.0, "carrier": 0, "role": roles, "score": scores}
    return verdicts("averaged_all", [True] * len(roles), layers, **more)


PAPERS = carried(["register 1"] * 4 + ["cls"] * 2 + ["content"] * 6, [0.163, 0.1, 0.1, 0.1, 0.1, 0.1, *[8.3e-4] * 6])


def test_carriers_as_the_paper_prints_them():
    table = compare.compare_carriers([])
    theirs = table[table["From"] == "paper (Table 2)"].reset_index(drop=True)
    printed = compare.paper("table2")
    assert theirs["Model"].tolist() == printed["title"].tolist()
    assert theirs["Largest Δ"].astype(float).tolist() == printed["max_score"].tolist()
    assert theirs["Median Δ, content carrier"].astype(float).tolist() == printed["median_score_patch_carrier"].tolist()
    assert theirs["Modal special carrier"].tolist() == ["register 1 (4/6)", "register 4 (5/7)", "register 1 (8/13)"]
    assert theirs["Layers"].tolist() == ["12", "12", "24"]
    assert theirs["With a special carrier"].tolist() == ["6", "7", "13"]


@pytest.mark.parametrize(("change", "verdict"), [(0.0, "reproduced"), (0.001, "differs")])
def test_carriers_that_were_measured(change, verdict):
    table = PAPERS.assign(score=PAPERS["score"] + change * (PAPERS["layer"] == 1))
    shown = compare.compare_carriers([whole("dinov2-s", table, title="DINOv2-S")]).query("Model == 'DINOv2-S'")
    assert shown["Verdict"].tolist() == ["", verdict]
    own = compare.compare_carriers([measured("own", carried(["content"] * 2, [0.5, 0.25]), status="untrained")]).iloc[-1]
    assert own.tolist() == [
        "own, untrained",
        "here, 512 inputs of 17 tokens (photographs)",
        "2",
        "0",
        "0.500",
        "3.8e-01",
        "–",
        "untrained",
    ]


# --- shares for the figures -------------------------------------------------------------------------------------


@st.composite
def mixed_tables(draw):
    rows = draw(
        st.lists(st.tuples(st.sampled_from(list(SCOPES)), st.integers(1, 3), st.booleans(), st.floats(0, 0.5)), min_size=1)
    )
    rows.append(("content", 1, draw(st.booleans()), 0.125))
    frame = pd.DataFrame(rows, columns=["scope", "layer", "holds", "gap"])
    return frame.assign(gap=frame["gap"].where(~frame["holds"], 0.0), kappa=0.5, n=16)


@settings(max_examples=25)
@given(mixed_tables())
def test_shares_by_layer_are_counts_over_counts(table):
    shares = compare.share_by_layer(table)
    expected: dict[tuple[str, int], list[bool]] = {}
    for row in table.itertuples():
        if row.scope != "averaged":
            expected.setdefault((row.scope, row.layer), []).append(row.holds)
    assert set(zip(shares["scope"], shares["layer"], strict=True)) == set(expected)
    for row in shares.itertuples():
        flags = expected[row.scope, row.layer]
        interval = binomtest(sum(flags), len(flags)).proportion_ci(method="wilson")
        assert (row.holds, row.total, row.share) == (sum(flags), len(flags), sum(flags) / len(flags))
        assert (row.low, row.high) == (interval.low, interval.high)


@settings(max_examples=25)
@given(st.lists(mixed_tables(), min_size=1, max_size=3))
def test_shares_by_size_and_by_training(tables):
    ones = [measured(f"m{k}", table.assign(n=16 * (k + 1))) for k, table in enumerate(tables)]
    sizes = compare.shares_by_size(ones)
    assert sizes["model"].tolist() == [f"m{k}" for k in range(len(ones))]
    for row, table in zip(sizes.itertuples(index=False), tables, strict=True):
        content = table[table["scope"] == "content"]
        assert (row.holds, row.total, row.inputs) == (content["holds"].sum(), len(content), 512)
        gaps = sorted(content.loc[~content["holds"], "gap"] / 0.25)
        middle = (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2 if gaps else math.nan
        assert sizes["relative gap"].iloc[int(row.n / 16) - 1] == pytest.approx(middle, nan_ok=True)
    full = [measured("t", *(counted(scope, k, 4) for k, scope in enumerate(SCOPES)), status="untrained")]
    by_training = compare.shares_by_training(full)
    assert by_training["scope"].tolist() == ["content tokens", "all tokens", "heads"]
    assert by_training["share"].tolist() == [0, 0.25, 0.5]
    assert set(by_training["weights"]) == {"untrained"}
