"""The paper beside ours: what is printed is shown as printed, and a verdict needs what the paper measures."""

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
ALL_SCOPES = (*SCOPES, "averaged_all")


def verdicts(scope: str, holds: list[bool], layers: list[int] | None = None, **columns) -> pd.DataFrame:
    number = len(holds)
    rows = {"scope": scope, "layer": layers or [1] * number, "holds": np.array(holds, bool), "n": 16, "kappa": 0.5, "gap": 0.0}
    return pd.DataFrame(rows | columns, index=range(number))


def counted(scope: str, holds: int, total: int) -> pd.DataFrame:
    return verdicts(scope, [True] * holds + [False] * (total - holds))


def measured(
    name: str, *parts: pd.DataFrame, status: str = "paper's checkpoint", title: str = "", number: int = 512, tokens: int = 0
) -> Measurement:
    """A result at the model's own size (17 tokens for models without a name), unless another is given."""
    model = {"name": name, "title": title or name, "status": status, "training": "whatever"}
    own = REGISTRY[name].tokens if name in REGISTRY else 17
    how = {"model": model, "inputs": {"images": "photographs", "number": number, "tokens": tokens or own}}
    return Measurement(name, pd.concat(parts, ignore_index=True), how)


def complete(*parts: pd.DataFrame) -> list[pd.DataFrame]:
    """The parts, and in every scope that the paper measures and that they lack a matrix that holds."""
    there = {scope for part in parts for scope in part["scope"]}
    return [*parts, *(counted(scope, 1, 1) for scope in ALL_SCOPES if scope not in there)]


def as_the_paper(name: str, **changes: tuple[int, int]) -> Measurement:
    """A measurement whose counts are the paper's, or follow from its percentages of 1000, but for the changes."""
    parts = []
    for cell in compare.paper("table1").query("model == @name").to_dict("records"):
        if pd.isna(cell["percent"]) and pd.isna(cell["holds"]):
            count = (6144, 6144)
        elif pd.notna(cell["holds"]):
            count = (int(cell["holds"]), int(cell["total"]))
        else:
            count = (round(10 * cell["percent"]), 1000)
        parts.append(counted(cell["scope"], *changes.get(cell["scope"], count)))
    return measured(name, *complete(*parts))


def beside(table: pd.DataFrame, one: Measurement, title: str = "") -> str:
    """The verdict, or what stands in its place, on the one row that shows a result (of that title)."""
    shown = table[(table["From"] == f"here, {one.inputs}") & (table["Model"] == (title or table["Model"]))]
    (row,) = shown.to_dict("records")
    return str(row["Verdict"])


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
    there = "abstract, baseline, table1, table2, table3, table4, tokens"
    with pytest.raises(FileNotFoundError, match=f"no table 'table9' of the paper; there are: {there}"):
        compare.paper("table9")


@pytest.mark.parametrize("name", sorted(path.stem for path in results.PAPER.glob("*.csv")))
def test_as_printed_keeps_every_digit_and_nothing_else(name):
    with (results.PAPER / f"{name}.csv").open(newline="") as file:
        assert compare.paper(name, as_printed=True).to_dict("records") == list(csv.DictReader(file))


def test_as_printed_and_as_numbers_say_the_same():
    printed, numbers = compare.paper("table1", as_printed=True), compare.paper("table1")
    assert "94.0" in set(printed["percent"])
    for column in ("holds", "total", "percent"):
        given = printed[column] != ""
        assert given.equals(numbers[column].notna())
        assert (printed.loc[given, column].astype(float) == numbers.loc[given, column]).all()


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
        for cell in cells.to_dict("records"):
            count = f"{cell['holds']}/{cell['total']}" if cell["holds"] else ""
            share = f"{cell['percent']} %" if cell["percent"] else ""
            expected = {count, share, cell["words"]} - {""}
            assert expected
            assert all(text in theirs[SCOPES[cell["scope"]]] for text in expected)
        missing = set(SCOPES) - set(cells["scope"])
        assert all(theirs[SCOPES[scope]] == "–" for scope in missing)
    assert len(table) == 2 * printed["model"].nunique()


@pytest.mark.parametrize("name", list(dict.fromkeys(compare.paper("table1")["model"])))
def test_the_papers_own_numbers_are_reproduced_and_others_differ(name):
    cells = compare.paper("table1").query("model == @name")
    training, title = cells["training"].iloc[0], cells["title"].iloc[0]

    def verdict(one: Measurement) -> str:
        table = compare.compare_shares(training, [one])
        assert len(table) == len(compare.compare_shares(training, []))  # it stands in place of "not measured yet"
        return beside(table, one, title)

    assert verdict(as_the_paper(name)) == "reproduced"
    for scope in cells["scope"]:
        wrong = (1, 12) if scope == "averaged" else (500, 1000)
        assert verdict(as_the_paper(name, **{scope: wrong})) == "differs"
    if name == "dinov2-s":  # all of 6144 is not in the interval of all but two
        assert verdict(as_the_paper(name, content=(6142, 6144))) == "differs"


@pytest.mark.parametrize("name", ["dinov2-s", "vit-b16", "roberta-base"])
def test_the_papers_weights_on_other_inputs_or_in_part_have_no_verdict(name):
    whole = as_the_paper(name)
    training = compare.paper("table1").query("model == @name")["training"].iloc[0]
    others = [
        measured(name, whole.table, number=511),
        measured(name, whole.table, tokens=REGISTRY[name].tokens + 1),
        *(measured(name, whole.table[whole.table["scope"] != scope]) for scope in ALL_SCOPES),
    ]
    for one in others:
        table = compare.compare_shares(training, [one])
        assert beside(table, one) == "not the paper's inputs or columns"
        pd.testing.assert_frame_equal(table.iloc[:-1], compare.compare_shares(training, []))


def test_a_percentage_is_compared_to_the_digits_that_are_printed():
    """64 % stands for anything from 63.5 to 64.5 %; the interval of 100,000 matrices is 0.6 points wide."""

    def verdict(share: float) -> str:
        one = measured("vit-b16", *complete(counted("content", round(share * 10**5), 10**5)))
        return beside(compare.compare_shares("supervised", [one]), one)

    assert [verdict(share) for share in (0.63, 0.636, 0.644, 0.65)] == ["differs", "reproduced", "reproduced", "differs"]


@pytest.mark.parametrize(
    ("status", "verdict"),
    [("derivative", "measured on a derivative"), ("another model", "another model"), ("untrained", "untrained")],
)
@pytest.mark.parametrize("name", ["dinov2-b", "a model of one's own"])
def test_other_weights_have_a_row_of_their_own_and_no_verdict(status, verdict, name):
    parts = [counted(scope, 3, 4) for scope in ALL_SCOPES]
    one = measured(name, *parts, status=status, title="Some title")
    tokens = {"dinov2-b": 261}.get(name, 17)
    table = compare.compare_shares("self-supervised", [one])
    own = table[table["Model"].str.startswith("Some title")].to_dict("records")
    label = "Some title, untrained" if status == "untrained" else "Some title"
    assert own == [
        {"Model": label, "From": f"here, 512 inputs of {tokens} tokens (photographs)",
         **dict.fromkeys(list(SCOPES.values())[:3], "3/4 (75.0 %)"), "Averaged": "3/4", "Verdict": verdict}
    ]  # fmt: skip
    without = table[~table["Model"].str.startswith("Some title")].reset_index(drop=True)
    pd.testing.assert_frame_equal(without, compare.compare_shares("self-supervised", []))


def test_scopes_that_were_not_measured_are_marked():
    one = measured("own", counted("content", 1, 2), status="another model")
    row = compare.compare_shares("language", [one]).iloc[-1]
    assert row[list(SCOPES.values())].tolist() == ["1/2 (50.0 %)", "–", "–", "–"]
    carried = compare.compare_carriers([one]).iloc[-1]
    assert set(carried.drop(["Model", "From", "Verdict"])) == {"–"}
    averaged = measured("own", counted("averaged", 1, 2), status="another model")
    assert compare.compare_shares("language", [averaged]).iloc[-1]["Averaged"] == "1/2"
    assert compare.compare_failing([averaged]).iloc[-1]["Failing inputs"] == "–"


@pytest.mark.parametrize("name", [name for name in REGISTRY if REGISTRY[name].status == "paper's checkpoint"])
def test_a_row_of_the_paper_that_is_not_at_hand_is_said_to_be_missing(name):
    """Tables 2 and 4 lack models: what was measured as the paper does has its verdict, or the reason why it has none."""
    more = {"entrywise": 1.0, "columnwise": 1.0, "carrier": 0, "role": "content", "score": 0.5}
    one = measured(name, *complete(failing({}), verdicts("averaged_all", [True], **more)))
    for table, compared in (("table2", compare.compare_carriers), ("table4", compare.compare_failing)):
        said = beside(compared([one]), one)
        if name in set(compare.paper(table)["model"]):
            assert said in {"reproduced", "differs"}
        else:
            assert said == "no row of the paper at hand"


# --- Table 4 ----------------------------------------------------------------------------------------------------


def failing(counts: dict[int, int], layers: int = 12, inputs: int = 512) -> pd.DataFrame:
    each = [(layer, k >= counts.get(layer, 0)) for layer in range(1, layers + 1) for k in range(inputs)]
    return verdicts("content", [holds for _, holds in each], [layer for layer, _ in each])


def test_failing_inputs_by_layer_as_the_paper_prints_them():
    table = compare.compare_failing([])
    expected = {}
    for title, cells in compare.paper("table4", as_printed=True).groupby("title"):
        named = cells[cells["layer"] != "other"]
        expected[title] = ", ".join(f"layer {c.layer}: {c.failing}" for c in named.itertuples()) or "none"
    theirs = table[table["From"] == "paper (Table 4)"].set_index("Model")["Failing inputs"].to_dict()
    assert theirs == expected
    assert theirs["DINOv2-S"] == "none"
    assert set(table[table["From"] == "here"]["Failing inputs"]) == {""}
    for verdict in table[table["From"] == "here"]["Verdict"]:
        assert re.fullmatch(rf"not measured yet: dobrushin measure ({'|'.join(REGISTRY)})", verdict)


@pytest.mark.parametrize(
    ("name", "counts", "verdict"),
    [
        ("deit-b", {11: 50, 12: 512}, "reproduced"),
        ("deit-b", {11: 49, 12: 512}, "reproduced"),  # 50 is in the interval of 49
        ("deit-b", {11: 20, 12: 512}, "differs"),
        ("deit-b", {11: 50, 12: 511}, "differs"),  # all of them is not in the interval of all but one
        ("deit-b", {10: 50, 12: 512}, "differs"),
        ("deit-b", {10: 1, 11: 50, 12: 512}, "differs"),
        ("dinov2-s", {}, "reproduced"),
        ("dinov2-s", {3: 1}, "differs"),
    ],
)
def test_failing_inputs_that_were_measured(name, counts, verdict):
    own = measured("own", failing({2: 7}), status="derivative")
    one = measured(name, *complete(failing(counts)))
    table = compare.compare_failing([one, own])
    (row,) = table[table["From"] == f"here, {one.inputs}"].to_dict("records")
    assert row["Model"] == REGISTRY[name].title
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


SCORES = PAPERS["score"].to_numpy()
ROLES = PAPERS["role"].tolist()


@pytest.mark.parametrize(
    ("table", "verdict"),
    [
        (PAPERS, "reproduced"),
        (PAPERS.assign(score=SCORES + 0.0004 * (SCORES == 0.163)), "reproduced"),  # 0.1634 is printed as 0.163
        (PAPERS.assign(score=SCORES + 0.001 * (SCORES == 0.163)), "differs"),
        (PAPERS.assign(score=SCORES * np.where(SCORES < 0.01, 1.1, 1)), "differs"),
        (PAPERS.assign(role=[*ROLES[:-1], "cls"]), "differs"),  # in 7 layers
        (PAPERS.assign(role=["register 2", *ROLES[1:]]), "differs"),  # the modal carrier in 3 of 6
        (PAPERS.assign(role=["register 2" if role == "register 1" else role for role in ROLES]), "differs"),
        (PAPERS.iloc[:-1], "differs"),
    ],
)
def test_carriers_that_were_measured(table, verdict):
    one = measured("dinov2-s", *complete(table), title="DINOv2-S")
    shown = compare.compare_carriers([one]).query("Model == 'DINOv2-S'")
    assert shown["Verdict"].tolist() == ["", verdict]
    assert shown["From"].tolist() == ["paper (Table 2)", f"here, {one.inputs}"]


def test_carriers_of_other_weights_have_a_row_of_their_own():
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


def test_results_are_looked_up_where_the_project_keeps_them():
    assert results.PAPER.is_dir()
    assert {path.stem for path in results.PAPER.glob("*.csv")} == {
        "abstract", "baseline", "table1", "table2", "table3", "table4", "tokens",
    }  # fmt: skip
