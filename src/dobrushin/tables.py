"""The paper's tables, from results: shares, failing inputs by layer, carriers, the depth bound, the registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from dobrushin import results
from dobrushin.measure import summary

__all__ = ["averages", "carriers", "depth", "failing_by_layer", "registry", "relative_gap", "report", "shares"]


def registry() -> pd.DataFrame:
    """The models that have a name: checkpoint, layers, heads, tokens, and whether the weights are on this machine."""
    from dobrushin.checkpoints import command_to_get, find
    from dobrushin.models import REGISTRY

    rows = [
        {
            "model": spec.name, "checkpoint": spec.checkpoint, "layers": spec.layers, "heads": spec.heads,
            "tokens": spec.tokens, "status": spec.status, "weights": "here" if find(spec) is not None else command_to_get(spec),
        }
        for spec in REGISTRY.values()
    ]  # fmt: skip
    return pd.DataFrame(rows).set_index("model")


def shares(table: pd.DataFrame) -> dict[str, Any]:
    """One row of Table 1: share of inputs (content, all) and of heads, number of layers that hold on average."""
    counts = summary(table)
    row: dict[str, Any] = {}
    for scope in ("content", "content_raw", "all", "head"):
        if scope in counts.index:
            row[scope] = float(counts["share"][scope])
    for scope in ("averaged", "averaged_all"):
        if scope in counts.index:
            row[scope] = f"{counts['holds'][scope]}/{counts['matrices'][scope]}"
    return row | {"fragile": int(counts["fragile"].sum())}


def failing_by_layer(table: pd.DataFrame, scope: str = "content") -> pd.Series:
    """Table 4: how many inputs fail, by layer."""
    rows = table[table["scope"] == scope]
    return (~rows["holds"]).groupby(rows["layer"]).sum().astype(int).rename("failing")


def averages(table: pd.DataFrame) -> pd.DataFrame:
    """Figures 2 and 3: kappa of the mean attention over inputs, Doeblin's bounds and the carrier, by scope and layer.

    Raises:
        ValueError: the table is of a version that did not measure them, or has no averages.
    """
    rows = table[table["scope"].isin(["averaged", "averaged_all"])]
    if "entrywise" not in rows or rows.empty:
        raise ValueError("the result has no averages with Doeblin's bounds; measure the model again")
    columns = ["scope", "layer", "n", "kappa", "columnwise", "entrywise", "holds", "carrier", "role", "score"]
    return rows[columns].reset_index(drop=True)


def carriers(table: pd.DataFrame) -> dict[str, Any]:
    """One row of Table 2: which token carries kappa of the mean attention over all tokens, and by how much."""
    rows = averages(table)
    rows = rows[rows["scope"] == "averaged_all"]
    special = rows[rows["role"] != "content"]
    modal = special["role"].astype(str).value_counts()
    return {
        "layers": len(rows),
        "special carrier": len(special),
        "max score": float(rows["score"].max()),
        "median score, content carrier": float(rows.loc[rows["role"] == "content", "score"].median()),
        "modal special carrier": f"{modal.index[0]} ({modal.iloc[0]}/{len(special)})" if len(special) else "–",
    }


def depth(table: pd.DataFrame) -> pd.DataFrame:
    """Per input: the depth bound, the product of the layers' own factors, and kappa of the rollout; content and all.

    bound >= factors >= kappa: the first step is lost in the layers, the second to submultiplicativity.

    Raises:
        ValueError: the table has no rollouts.
    """
    parts = []
    for scope in ("content", "all"):
        rows = table[table["scope"] == scope]
        rolled = table[table["scope"] == f"rollout_{scope}"].set_index("input")["kappa"]
        if rolled.empty or rows.empty:
            continue
        half = 0.5 * (1 + rows["kappa"])
        products = pd.DataFrame({"input": rows["input"], "bound": half, "factors": half - rows["gap"]}).groupby("input").prod()
        parts.append(products.assign(kappa=rolled, scope=scope).reset_index())
    if not parts:
        raise ValueError("the result has no rollouts; measure the model again")
    return pd.concat(parts, ignore_index=True)[["scope", "input", "bound", "factors", "kappa"]]


def relative_gap(table: pd.DataFrame, scope: str = "content") -> float:
    """Median gap among the failing input-layer pairs, as a share of kappa/2 (Figure 4); NaN if none fails."""
    rows = table[(table["scope"] == scope) & ~table["holds"]]
    return float((rows["gap"] / (0.5 * rows["kappa"])).median()) if len(rows) else float("nan")


def report(folder: Path) -> list[tuple[str, pd.DataFrame]]:
    """Title and table of what the results of a folder say.

    Raises:
        FileNotFoundError: the folder holds no measurement.
        ValueError: it is a file, or holds JSON that is not the provenance of a table beside it.
    """
    if folder.is_file():
        raise ValueError(f"{folder} is a file; expected the folder that holds the results")
    first: list[dict[str, Any]] = []
    failing: dict[str, pd.Series] = {}
    carried: dict[str, dict[str, Any]] = {}
    deep: dict[str, Any] = {}
    for path in sorted(folder.glob("*.json")):
        if not path.with_suffix(".parquet").exists():
            raise ValueError(f"{path} has no table beside it; take it out of the folder, or measure again")
        table, how = results.read(path.stem, folder)
        if how.get("kind") != "measurement":
            continue
        model, given, scopes = how["model"], how["inputs"], set(table["scope"])
        first.append(
            {"result": path.stem, "model": model["title"], "status": model["status"], "inputs": given["number"],
             "tokens": given["tokens"], **shares(table)}
        )  # fmt: skip
        if "content" in scopes:
            failing[path.stem] = failing_by_layer(table)
        if "averaged_all" in scopes:
            carried[path.stem] = carriers(table)
        if {"content", "rollout_content"} <= scopes:
            deep[path.stem] = depth(table).groupby("scope")[["bound", "factors", "kappa"]].median().stack()  # noqa: PD013
    if not first:
        raise FileNotFoundError(f"{folder} holds no measurement; make one with: dobrushin measure MODEL")
    parts = [
        ("Shares that satisfy the condition; of averages, layers", pd.DataFrame(first).set_index("result")),
        ("Failing inputs by layer, content tokens", pd.DataFrame(failing).T.astype("Int64").astype(str).replace("<NA>", "–")),
        ("Which token carries the mean attention, all tokens", pd.DataFrame(carried).T),
        ("Depth bound, product of the factors, kappa of the rollout: medians over inputs", pd.DataFrame(deep).T),
    ]
    return [(title, table) for title, table in parts if len(table)]
