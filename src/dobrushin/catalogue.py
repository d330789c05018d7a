"""Every share that the paper or a result of ours states, in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from dobrushin import results
from dobrushin.compare import is_the_papers, paper
from dobrushin.measure import VERDICTS
from dobrushin.models import REGISTRY
from dobrushin.random import wilson_interval

__all__ = ["COLUMNS", "catalogue"]

COLUMNS = {
    "source": "who says it: the paper, with the place, or here",
    "model": "model or law",
    "weights": "how the weights relate to the paper's; for trained tables, the seed",
    "inputs": "on what",
    "scope": "which matrices: content, content_raw (not renormalised), all, head, averaged, averaged_all, random",
    "holds": "how many of them satisfy the condition",
    "total": "of how many",
    "share": "holds / total, or the paper's percentage where it gives no count",
    "low": "lower end of the 95 % Wilson interval of our share; the lower of a range of the paper",
    "high": "its upper end",
    "fragile": "how many verdicts rounding in the model could turn",
    "words": "what stands there in words",
    "result": "name of the result in data/results",
    "command": "what made it, or would",
    "commit": "of this project, when it was made",
    "started": "when, in UTC",
}
"""Columns of the table and what they hold; a value that is not known is missing."""


def catalogue(folder: Path = results.RESULTS) -> pd.DataFrame:
    """All shares: the paper's, ours from every result in the folder, and what is not measured yet with its command.

    Returns:
        One row a share, with the columns of :data:`COLUMNS`.
    """
    rows = [*_paper_shares(), *_paper_tables(), *_paper_baseline()]
    measured = set()
    for beside in sorted(folder.glob("*.json")):
        kind = json.loads(beside.read_text()).get("kind")
        if kind in _OURS:
            table, how = results.read(beside.stem, folder)
            made = {"source": "here", "result": beside.stem, **{k: how[k] for k in ("command", "commit", "started")}}
            rows += [made | row for row in _OURS[kind](table, how)]
            if kind == "measurement":
                one = results.Measurement(beside.stem, table, how)
                measured |= {name for name in REGISTRY if is_the_papers(one, name)}
    for name in dict.fromkeys(paper("table1")["model"]):
        if name not in measured and name in REGISTRY:
            rows.append(
                {"source": "here", "model": REGISTRY[name].title, "weights": "paper's checkpoint", "words": "not measured yet",
                 "command": f"dobrushin measure {name}"}
            )  # fmt: skip
    table = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
    return table.astype(dict.fromkeys(("holds", "total", "fragile"), "Int64"))


def _paper_shares() -> list[dict[str, Any]]:
    return [
        {"source": f"paper, {cell['source']}", "model": cell["title"], "scope": cell["scope"], "holds": cell["holds"],
         "total": cell["total"], "share": cell["percent"] / 100 if pd.notna(cell["percent"]) else cell["holds"] / cell["total"],
         "words": cell["words"]}
        for cell in paper("table1").to_dict("records")
    ]  # fmt: skip


def _paper_tables() -> list[dict[str, Any]]:
    rows = []
    for cell in paper("table3").to_dict("records"):
        said = {"source": "paper, Table 3", "model": f"FT-Transformer: {cell['title']}"}
        rows += [
            said | {"scope": scope, "share": cell[f"{name}_percent"] / 100}
            for scope, name in (("content", "features"), ("all", "all"))
        ]
        holds, total = cell["averaged_holds"], cell["averaged_total"]
        rows.append(said | {"scope": "averaged", "holds": holds, "total": total, "share": holds / total})
    return rows


def _paper_baseline() -> list[dict[str, Any]]:
    return [
        {"source": f"paper, {cell['source']}", "model": cell["law"], "scope": "random",
         "low": cell["low_percent"] / 100, "high": cell["high_percent"] / 100, "words": "a range"}
        for cell in paper("baseline").to_dict("records")
    ]  # fmt: skip


def _shares(table: pd.DataFrame) -> list[dict[str, Any]]:
    """One row a scope, in the order of VERDICTS."""
    rows = []
    for scope in VERDICTS:
        of_scope = table[table["scope"] == scope]
        if len(of_scope):
            rows.append(
                _counted(int(of_scope["holds"].sum()), len(of_scope))
                | {"scope": scope, "fragile": int(of_scope["fragile"].sum())}
            )
    return rows


def _counted(holds: int, total: int) -> dict[str, Any]:
    low, high = wilson_interval(holds, total)
    return {"holds": holds, "total": total, "share": holds / total, "low": low, "high": high}


def _measurement(table: pd.DataFrame, how: dict[str, Any]) -> list[dict[str, Any]]:
    said = {
        "model": how["model"]["title"],
        "weights": how["model"]["status"],
        "inputs": results.Measurement("", table, how).inputs,
    }
    return [said | row for row in _shares(table)]


def _tabular(table: pd.DataFrame, how: dict[str, Any]) -> list[dict[str, Any]]:
    said = {
        "model": f"FT-Transformer: {how['config']['title']}",
        "weights": f"trained here, seed {how['seed']}",
        "inputs": f"{how['data']['table']}: {how['measured']['rows']} test rows",
    }
    return [said | row for row in _shares(table)]


def _baseline(table: pd.DataFrame, how: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for law, n, draws, holds, fragile in table[["law", "n", "draws", "holds", "fragile"]].itertuples(index=False):
        said = {"model": f"random matrices, law {law}", "inputs": f"N = {n}", "scope": "random", "fragile": fragile}
        rows.append(said | _counted(holds, draws))
    return rows


_OURS = {"measurement": _measurement, "tabular": _tabular, "baseline": _baseline}
