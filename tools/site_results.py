"""The page of all results: its table, and the same as CSV and Parquet."""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from dobrushin.catalogue import COLUMNS, catalogue
from dobrushin.compare import count_text, percent

FILES = "all-results"
HEAD = {
    "model": "Model", "scope": "Scope", "share": "Share that holds", "low": "95 % interval", "source": "From",
    "weights": "Weights", "inputs": "Inputs", "fragile": "Fragile", "result": "Result", "command": "Command",
}  # fmt: skip
CHOICES = ("source", "scope", "weights")
"""Columns that the page offers to filter by."""


def _share(row: Mapping[Any, Any]) -> str:
    if pd.notna(row["holds"]):
        return count_text(int(row["holds"]), int(row["total"]))
    if pd.notna(row["share"]):
        return f"{100 * row['share']:.4g} %" if row["source"] != "here" else percent(row["share"])
    return "" if pd.isna(row["words"]) else str(row["words"])


def _interval(row: Mapping[Any, Any]) -> str:
    return "" if pd.isna(row["low"]) else f"{100 * row['low']:.1f}–{100 * row['high']:.1f} %"


def _cell(column: str, row: Mapping[Any, Any]) -> str:
    value = "" if pd.isna(row[column]) else row[column]
    shown, key = html.escape(str(value)), str(value)
    if column == "share":
        shown, key = html.escape(_share(row)), key
    elif column == "low":
        shown = _interval(row)
    elif column == "result" and value:
        shown = f'<a href="provenance.html#result-{value}">{shown}</a>'
    elif column == "command" and value:
        shown = f"<code>{shown}</code>"
    return f'<td data-key="{html.escape(key)}">{shown}</td>'


def table_html(table: pd.DataFrame) -> str:
    """The table as HTML; the page's script makes it sortable and filterable."""
    head = "".join(f'<th scope="col" data-column="{name}">{title}</th>' for name, title in HEAD.items())
    body = "\n".join("<tr>" + "".join(_cell(name, row) for name in HEAD) + "</tr>" for row in table.to_dict("records"))
    choices = " ".join(CHOICES)
    return (
        f'<div class="results" id="all-results" data-choices="{choices}">'
        '<div class="results-scroll" tabindex="0" role="region" aria-label="All results"><table class="results-table">'
        f"<thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div></div>"
    )


def page(source: str) -> str:
    """Fill the page."""
    columns = "\n".join(f"`{name}`\n: {words}\n" for name, words in COLUMNS.items())
    table = "```{raw} html\n" + table_html(catalogue()) + "\n```"
    return source.replace("{{ table }}", table).replace("{{ columns }}", columns)


def write(target: Path) -> None:
    """Write the files that the page offers."""
    target.mkdir(parents=True, exist_ok=True)
    table = catalogue()
    table.to_csv(target / f"{FILES}.csv", index=False)
    table.to_parquet(target / f"{FILES}.parquet", index=False)
