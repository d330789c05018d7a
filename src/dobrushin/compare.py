"""The paper's numbers beside ours, with a verdict on each.

A verdict is one of

- ``reproduced``: measured as the paper does (its own weights or law, its input size, at least its number of inputs, all
  its columns), and it agrees;
- ``differs``: measured so, and it does not agree;
- ``not measured yet``: the paper's weights were not at hand; the command that measures them stands beside it.

A share or a count of inputs agrees if the 95 % interval of ours contains the paper's, to the digits that are printed; a
number of layers and what Table 2 says of carriers agree if they are the same as printed.  All other results have a row of
their own, with a status in place of a verdict, for they neither confirm nor contradict the paper: ``measured on a
derivative``, ``another model``, ``untrained``, ``not the paper's inputs or columns`` (its weights, but fewer inputs,
another size or some of the columns) and ``no row of the paper at hand`` (measured as the paper does, in a table of which
our sources lack that row).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pandas as pd

from dobrushin import results
from dobrushin.models import REGISTRY
from dobrushin.random import wilson_interval
from dobrushin.results import Measurement
from dobrushin.tables import carriers, failing_by_layer, relative_gap

__all__ = [
    "baseline_shares",
    "compare_baseline",
    "compare_carriers",
    "compare_failing",
    "compare_shares",
    "count_text",
    "half_unit",
    "is_the_papers",
    "paper",
    "paper_share",
    "percent",
    "share_by_layer",
    "shares_by_size",
    "shares_by_training",
]

SCOPE_TITLES = {"content": "Content tokens", "all": "All tokens", "head": "Heads", "averaged": "Averaged"}
"""The paper's columns: scope to title."""

_TRAINING_SCOPES = {"content": "content tokens", "all": "all tokens", "head": "heads"}

MEASURED_SIZES = (8, 256)
"""Smallest and largest number of content tokens of the paper's models: where its baseline applies."""


def paper(name: str, *, as_printed: bool = False) -> pd.DataFrame:
    """One of the paper's tables, from ``data/paper``.

    Args:
        name: of the file.
        as_printed: all values as text, with the digits of the paper, and what is missing as "".

    Raises:
        FileNotFoundError: there is no such table; the message lists those there are.
    """
    path = results.PAPER / f"{name}.csv"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in results.PAPER.glob("*.csv"))) or "none"
        raise FileNotFoundError(f"no table {name!r} of the paper; there are: {there}")
    return pd.read_csv(path, dtype=str, keep_default_na=False) if as_printed else pd.read_csv(path)


def half_unit(text: str) -> float:
    """Half a unit of the last digit that is printed: 0.005 for "99.98", 5e-6 for "8.3e-4"."""
    exponent = Decimal(text).as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{text!r} is no finite number")
    return 0.5 * 10.0**exponent


def is_the_papers(one: Measurement, model: str) -> bool:
    """Whether a result measures a model of the paper as the paper does: its weights, size and number of inputs, and scopes."""
    given, spec = one.how["inputs"], REGISTRY.get(model)
    return (
        one.how["model"]["name"] == model and one.status == "paper's checkpoint" and spec is not None
        and given["tokens"] == spec.tokens and given["number"] >= int(paper("table4")["inputs"].max())
        and {*SCOPE_TITLES, "averaged_all"} <= set(one.table["scope"])
    )  # fmt: skip


def percent(share: float, digits: int = 1) -> str:
    """A share in percent, for example ``"98.9 %"``: rounded, but never to 0 or 100 what is not."""
    text = f"{100 * share:.{digits}f}"
    if float(text) in (0.0, 100.0) and share not in (0, 1):
        return percent(share, digits + 1)
    return f"{int(share * 100)} %" if share in (0, 1) else f"{text} %"


def count_text(holds: int, total: int) -> str:
    """A count and its share, for example ``"3039/3072 (98.9 %)"``."""
    return f"{holds}/{total} ({percent(holds / total)})"


def baseline_shares(table: pd.DataFrame) -> pd.DataFrame:
    """The random baseline with its shares and 95 % Wilson intervals (columns share, low, high)."""
    intervals = [wilson_interval(holds, draws) for holds, draws in zip(table["holds"], table["draws"], strict=True)]
    return table.assign(
        share=table["holds"] / table["draws"], low=[low for low, _ in intervals], high=[high for _, high in intervals]
    )


def compare_baseline(table: pd.DataFrame) -> pd.DataFrame:
    """The paper's range for random matrices beside ours, at the sizes at which the paper measures models.

    Reproduced means: every interval reaches into the paper's range.
    """
    row = paper("baseline").iloc[0]
    low, high = row["low_percent"] / 100, row["high_percent"] / 100
    sizes = table["n"].between(*MEASURED_SIZES)
    ours = baseline_shares(table[sizes & (table["law"] == "dirichlet")])
    agrees = bool(((ours["high"] >= low) & (ours["low"] <= high)).all())
    return pd.DataFrame(
        {
            "Quantity": [f"random matrices, N from {ours['n'].min()} to {ours['n'].max()}"],
            "Paper": [f"{row['low_percent']:g}–{row['high_percent']:g} % ({row['source']})"],
            "Ours": [f"{percent(ours['share'].min())} to {percent(ours['share'].max())}"],
            "Draws": [f"{ours['draws'].min():,} at each N"],
            "Verdict": ["reproduced" if agrees else "differs"],
        }
    )


def compare_shares(training: str, measured: list[Measurement]) -> pd.DataFrame:
    """Table 1 of the paper for one kind of training, and what was measured here.

    Args:
        training: ``language``, ``self-supervised`` or ``supervised``.
        measured: results with the scopes of the table, as ``dobrushin.results.measurements`` gives them.

    Returns:
        For each of the paper's models a row with its numbers and one with ours, or with the command that measures
        it; then a row for every result with other weights, with their status.
    """
    table = paper("table1", as_printed=True)
    rows = []
    left = list(measured)
    for model, cells in table[table["training"] == training].groupby("model", sort=False):
        title, where = str(cells["title"].iloc[0]), ", ".join(map(str, cells["source"].unique()))
        rows.append({"Model": title, "From": f"paper ({where})", **_paper_cells(cells), "Verdict": ""})
        ours = [one for one in left if is_the_papers(one, str(model))]
        left = [one for one in left if one not in ours]
        rows += [
            {"Model": title, "From": f"here, {one.inputs}", **_our_cells(one.table), "Verdict": _agreement(cells, one.table)}
            for one in ours
        ]
        if not ours:
            empty = dict.fromkeys(SCOPE_TITLES.values(), "")
            rows.append({"Model": title, "From": "here", **empty, "Verdict": _not_yet(str(model))})
    rows += [
        {"Model": one.label, "From": f"here, {one.inputs}", **_our_cells(one.table), "Verdict": _status(one)} for one in left
    ]
    return pd.DataFrame(rows)


def _not_yet(model: str) -> str:
    return "not measured yet" + (f": dobrushin measure {model}" if model in REGISTRY else "")


def _status(one: Measurement) -> str:
    """What stands in place of a verdict."""
    if is_the_papers(one, one.how["model"]["name"]):
        return "no row of the paper at hand"
    other = {"derivative": "measured on a derivative", "paper's checkpoint": "not the paper's inputs or columns"}
    return other.get(one.status, one.status)


def compare_failing(measured: list[Measurement]) -> pd.DataFrame:
    """Table 4 of the paper, failing inputs by layer (content tokens), and what was measured here.

    Layers at which no input fails are left out; rows as of :func:`compare_shares`. Reproduced means: every count of the
    paper, and the zeros of all other layers together, lie in our intervals.
    """
    table, rows, left = paper("table4"), [], list(measured)
    for model, cells in table.groupby("model", sort=False):
        title = str(cells["title"].iloc[0])
        papers = {int(c["layer"]): int(c["failing"]) for c in cells.to_dict("records") if c["layer"] != "other"}
        rows.append({"Model": title, "From": "paper (Table 4)", "Failing inputs": by_layer(papers), "Verdict": ""})
        ours = [one for one in left if is_the_papers(one, str(model))]
        left = [one for one in left if one not in ours]
        for one in ours:
            agrees = all(failing_agrees(cell, one, papers) for cell in cells.to_dict("records"))
            verdict = "reproduced" if agrees else "differs"
            rows.append(
                {"Model": title, "From": f"here, {one.inputs}", "Failing inputs": by_layer(failing(one)), "Verdict": verdict}
            )
        if not ours:
            rows.append({"Model": title, "From": "here", "Failing inputs": "", "Verdict": _not_yet(str(model))})
    for one in left:
        found = by_layer(failing(one)) if "content" in set(one.table["scope"]) else "–"
        rows.append({"Model": one.label, "From": f"here, {one.inputs}", "Failing inputs": found, "Verdict": _status(one)})
    return pd.DataFrame(rows)


def failing_agrees(cell: Mapping[Any, Any], one: Measurement, papers: Mapping[int, int]) -> bool:
    """Whether a count of Table 4 lies in our interval; layer "other" is all those that the paper does not name."""
    counts = failing_by_layer(one.table)
    named = int(cell["layer"]) if cell["layer"] != "other" else None
    layers = [layer for layer in counts.index if (layer not in papers if named is None else layer == named)]
    total = one.how["inputs"]["number"] * len(layers)
    low, high = wilson_interval(int(counts[layers].sum()), total)
    return low <= int(cell["failing"]) / (int(cell["inputs"]) * len(layers)) <= high


def failing(one: Measurement) -> dict[int, int]:
    """Failing inputs by layer, content tokens, where there are any."""
    counts = failing_by_layer(one.table)
    return {int(layer): int(k) for layer, k in zip(counts.index, counts, strict=True) if k}


def by_layer(counts: Mapping[int, int]) -> str:
    """Counts by layer in words: "layer 11: 50, layer 12: 512", or "none"."""
    return ", ".join(f"layer {layer}: {count}" for layer, count in counts.items()) or "none"


def compare_carriers(measured: list[Measurement]) -> pd.DataFrame:
    """Table 2 of the paper, leave-one-out scores on the mean attention over all tokens, and what was measured here."""
    rows, left = [], list(measured)
    titles = ("Layers", "With a special carrier", "Largest Δ", "Median Δ, content carrier", "Modal special carrier")
    for cell in paper("table2", as_printed=True).to_dict("records"):
        values = (str(cell["layers"]), *paper_carriers(cell))
        rows.append({"Model": cell["title"], "From": "paper (Table 2)", **dict(zip(titles, values, strict=True)), "Verdict": ""})
        ours = [one for one in left if is_the_papers(one, str(cell["model"]))]
        left = [one for one in left if one not in ours]
        for one in ours:
            mine = carrier_cells(one)
            same = mine == values
            rows.append(
                {"Model": cell["title"], "From": f"here, {one.inputs}", **dict(zip(titles, mine, strict=True)),
                 "Verdict": "reproduced" if same else "differs"}
            )  # fmt: skip
        if not ours:
            rows.append(
                {"Model": cell["title"], "From": "here", **dict.fromkeys(titles, ""), "Verdict": _not_yet(str(cell["model"]))}
            )
    rows += [
        {"Model": one.label, "From": f"here, {one.inputs}", **dict(zip(titles, carrier_cells(one), strict=True))}
        | {"Verdict": _status(one)}
        for one in left
    ]
    return pd.DataFrame(rows)


def paper_carriers(cell: Mapping[Any, Any]) -> tuple[str, str, str, str]:
    """A row of Table 2 without its layers: layers with a special carrier, largest and median score, modal carrier."""
    carrier = str(cell["modal_carrier"]).replace("reg#", "register ")
    of = cell["special_carrier_layers"]
    median = f"{float(cell['median_score_patch_carrier']):.1e}"
    return of, cell["max_score"], median, f"{carrier} ({cell['modal_layers']}/{of})"


def carrier_cells(one: Measurement) -> tuple[str, ...]:
    """The same of a result, its layers first; "–" for each if the mean over all tokens was not measured."""
    if "averaged_all" not in set(one.table["scope"]):
        return ("–",) * 5
    found = carriers(one.table)
    median = found["median score, content carrier"]
    return (
        str(found["layers"]), str(found["special carrier"]), f"{found['max score']:.3f}", "–" if pd.isna(median) else f"{median:.1e}",  # noqa: E501
        found["modal special carrier"],
    )  # fmt: skip


def shares_by_size(measured: list[Measurement]) -> pd.DataFrame:
    """Content-token test by input size (Figure 4): share with its Wilson interval, and the relative gap.

    Returns:
        Columns model, measurement, inputs, n (content tokens), total, holds, share, low, high, and ``relative gap``:
        the median gap of the failing pairs as a share of half of kappa (NaN if none fails).
    """
    rows = []
    for one in measured:
        content = one.table[one.table["scope"] == "content"]
        holds, total = int(content["holds"].sum()), len(content)
        low, high = wilson_interval(holds, total)
        rows.append(
            {"model": one.label, "measurement": one, "inputs": one.how["inputs"]["number"], "n": int(content["n"].iloc[0]),
             "total": total, "holds": holds, "share": holds / total, "low": low, "high": high, "relative gap": relative_gap(one.table)}  # noqa: E501
        )  # fmt: skip
    return pd.DataFrame(rows).sort_values(["model", "n"], ignore_index=True)


def shares_by_training(measured: list[Measurement]) -> pd.DataFrame:
    """Shares of trained and untrained networks side by side: model, weights, scope, share and its Wilson interval."""
    rows = []
    for one in measured:
        for scope, title in _TRAINING_SCOPES.items():
            holds = one.table.loc[one.table["scope"] == scope, "holds"]
            low, high = wilson_interval(int(holds.sum()), len(holds))
            rows.append(
                {"model": one.how["model"]["title"], "weights": one.status, "inputs": one.how["inputs"]["number"], "scope": title,
                 "total": len(holds), "holds": int(holds.sum()), "share": float(holds.mean()), "low": low, "high": high}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _paper_cells(cells: pd.DataFrame) -> dict[str, str]:
    by_scope = {str(cell["scope"]): paper_share(cell) for cell in cells.to_dict("records")}
    return {title: by_scope.get(scope, "–") for scope, title in SCOPE_TITLES.items()}


def paper_share(cell: Mapping[Any, Any]) -> str:
    """A cell of Table 1 as the paper has it: a count, a share, both, or words."""
    count = f"{cell['holds']}/{cell['total']}" if cell["holds"] else ""
    share = f"{cell['percent']} %" if cell["percent"] else ""
    return f"{count} ({share})" if count and share else count or share or str(cell["words"])


def _our_cells(verdicts: pd.DataFrame) -> dict[str, str]:
    found = {}
    for scope, title in SCOPE_TITLES.items():
        holds = verdicts.loc[verdicts["scope"] == scope, "holds"]
        if holds.empty:
            found[title] = "–"
        elif scope == "averaged":
            found[title] = f"{holds.sum()}/{len(holds)}"
        else:
            found[title] = count_text(int(holds.sum()), len(holds))
    return found


def _agreement(cells: pd.DataFrame, verdicts: pd.DataFrame) -> str:
    agrees = all(agrees_with(cell, verdicts) for cell in cells.to_dict("records"))
    return "reproduced" if agrees else "differs"


def agrees_with(cell: Mapping[Any, Any], verdicts: pd.DataFrame) -> bool:
    """Whether a cell of Table 1 agrees with a result.

    A count of layers must be the same; a share must lie in our interval, to the digits that the paper prints.  "Essentially
    all" is a share too: the smallest to which the paper's abstract applies such words, that of DINOv2.
    """
    holds = verdicts.loc[verdicts["scope"] == cell["scope"], "holds"]
    if cell["scope"] == "averaged":
        return f"{holds.sum()}/{len(holds)}" == f"{cell['holds']}/{cell['total']}"
    low, high = wilson_interval(int(holds.sum()), len(holds))
    if cell["holds"]:
        return low <= int(cell["holds"]) / int(cell["total"]) <= high
    if cell["percent"]:
        share, half = float(cell["percent"]) / 100, half_unit(cell["percent"]) / 100
        return low - half <= share <= high + half
    dinov2 = paper("table1").query("scope == 'content' and training == 'self-supervised'")
    return high >= float((dinov2["holds"] / dinov2["total"]).min())


def share_by_layer(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Per scope (of inputs and heads) and layer: matrices, how many hold, share with its 95 % Wilson interval (low, high)."""
    grouped = verdicts[verdicts["scope"].isin(["content", "content_raw", "all", "head"])].groupby(
        ["scope", "layer"], observed=True
    )["holds"]
    shares = grouped.agg(total="size", holds="sum").reset_index()
    intervals = [wilson_interval(holds, total) for holds, total in zip(shares["holds"], shares["total"], strict=True)]
    shares["share"] = shares["holds"] / shares["total"]
    shares["low"], shares["high"] = zip(*intervals, strict=True)
    return shares
