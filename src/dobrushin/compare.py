"""The paper's numbers beside ours, with a verdict on each.

A verdict is one of

- ``reproduced``: measured with the paper's own weights (or law), and it agrees;
- ``differs``: measured with the paper's own weights (or law), and it does not agree;
- ``not measured yet``: the paper's weights were not at hand; the command that measures them stands beside it.

What was measured with other weights has a row of its own, which says so, and no verdict: it neither confirms nor
contradicts the paper.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from dobrushin import results
from dobrushin.models import REGISTRY
from dobrushin.random import wilson_interval

__all__ = ["baseline_shares", "compare_baseline", "compare_shares", "count_text", "paper", "percent", "share_by_layer"]

SCOPE_TITLES = {"content": "Content tokens", "all": "All tokens", "head": "Heads", "averaged": "Averaged"}
"""The paper's columns: scope to title."""

MEASURED_SIZES = (8, 256)
"""Smallest and largest number of content tokens of the paper's models: where its baseline applies."""


def paper(name: str) -> pd.DataFrame:
    """One of the paper's tables, from ``data/paper``.

    Raises:
        FileNotFoundError: there is no such table; the message lists those there are.
    """
    path = results.PAPER / f"{name}.csv"
    if not path.exists():
        there = ", ".join(sorted(p.stem for p in results.PAPER.glob("*.csv"))) or "none"
        raise FileNotFoundError(f"no table {name!r} of the paper; there are: {there}")
    return pd.read_csv(path)


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


def compare_shares(training: str, measured: dict[str, tuple[pd.DataFrame, dict[str, Any]]]) -> pd.DataFrame:
    """Table 1 of the paper for one kind of training, and what was measured here.

    Args:
        training: ``language``, ``self-supervised`` or ``supervised``.
        measured: results by name, as :func:`dobrushin.results.read` gives them.

    Returns:
        For each of the paper's models a row with its numbers and one with ours, or with the command that measures
        it; then a row for every result with other weights, with their status.
    """
    table = paper("table1")
    rows = []
    left = dict(measured)
    for model, cells in table[table["training"] == training].groupby("model", sort=False):
        title, where = str(cells["title"].iloc[0]), ", ".join(map(str, cells["source"].unique()))
        rows.append({"Model": title, "From": f"paper ({where})", **_paper_cells(cells), "Verdict": ""})
        ours = {name: result for name, result in left.items() if _is_the_papers(result[1], str(model))}
        for name, (verdicts, _) in ours.items():
            del left[name]
            agrees = _agreement(cells, verdicts)
            rows.append({"Model": title, "From": "here", **_our_cells(verdicts), "Verdict": agrees})
        if not ours:
            how_to = f": dobrushin measure {model!s}" if model in REGISTRY else ""
            empty = dict.fromkeys(SCOPE_TITLES.values(), "")
            rows.append({"Model": title, "From": "here", **empty, "Verdict": f"not measured yet{how_to}"})
    for verdicts, how in left.values():
        label = f"{how['model']['title']}, {how['inputs']['text']}"
        rows.append({"Model": label, "From": "here", **_our_cells(verdicts), "Verdict": how["model"]["status"]})
    return pd.DataFrame(rows)


def _is_the_papers(how: dict[str, Any], model: str) -> bool:
    return how["model"]["name"] == model and how["model"]["status"] == "paper's checkpoint"


def _paper_cells(cells: pd.DataFrame) -> dict[str, str]:
    by_scope = {str(cell["scope"]): cell for cell in cells.to_dict("records")}
    found = {}
    for scope, title in SCOPE_TITLES.items():
        if scope not in by_scope:
            found[title] = "–"
            continue
        cell = by_scope[scope]
        count = f"{cell['holds']:.0f}/{cell['total']:.0f}" if pd.notna(cell["holds"]) else ""
        share = f"{cell['percent']:g} %" if pd.notna(cell["percent"]) else ""
        words = str(cell["words"]) if pd.notna(cell["words"]) else ""
        found[title] = f"{count} ({share})" if count and share else count or share or words
    return found


def _our_cells(verdicts: pd.DataFrame) -> dict[str, str]:
    found = {}
    for scope, title in SCOPE_TITLES.items():
        holds = verdicts.loc[verdicts["scope"] == scope, "holds"]
        found[title] = f"{holds.sum()}/{len(holds)}" if scope == "averaged" else count_text(int(holds.sum()), len(holds))
    return found


def _agreement(cells: pd.DataFrame, verdicts: pd.DataFrame) -> str:
    """Whether every share of the paper lies in our interval, to the digits that it prints."""
    for cell in cells.to_dict("records"):
        holds = verdicts.loc[verdicts["scope"] == cell["scope"], "holds"]
        if cell["scope"] == "averaged":
            if (holds.sum(), len(holds)) != (cell["holds"], cell["total"]):
                return "differs"
        elif pd.notna(cell["percent"]):
            low, high = wilson_interval(int(holds.sum()), len(holds))
            if not 100 * low - 0.05 <= cell["percent"] <= 100 * high + 0.05:
                return "differs"
    return "reproduced"


def share_by_layer(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Per scope and layer: matrices, how many hold, share with its 95 % Wilson interval (columns low, high)."""
    grouped = verdicts[verdicts["scope"] != "averaged"].groupby(["scope", "layer"], observed=True)["holds"]
    shares = grouped.agg(total="size", holds="sum").reset_index()
    intervals = [wilson_interval(holds, total) for holds, total in zip(shares["holds"], shares["total"], strict=True)]
    shares["share"] = shares["holds"] / shares["total"]
    shares["low"], shares["high"] = zip(*intervals, strict=True)
    return shares
