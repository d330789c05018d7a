"""Every number of the paper that is at hand, ours beside it, and a verdict on each.

A row belongs to one cell of one table in ``data/paper``, named ``table/row/column``, and its verdict is one of
:data:`VERDICTS`. What was measured on a derivative of the paper's model, or with other training rows, has rows of its own
that belong to no cell.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dobrushin import compare, networks, results
from dobrushin.compare import SCOPE_TITLES, count_text, paper, percent
from dobrushin.models import REGISTRY
from dobrushin.networks import Network, authors, expectations
from dobrushin.random import wilson_interval
from dobrushin.results import Measurement

__all__ = ["COLUMNS", "VERDICTS", "counts", "markdown", "summary"]

VERDICTS = ("reproduced", "differs", "measured on a derivative", "partial training data", "not measured yet")
"""What can be said of a number; the third and the fourth of numbers of ours only."""

COLUMNS = ["cell", "place", "subject", "quantity", "paper", "ours", "verdict", "why", "command"]
"""Columns of :func:`summary`; missing values are empty."""

_WHY = {
    "Set-up": "another architecture than the paper's, or other scores than it took from the authors",
    "Table 1": "other inputs than the paper's, which our sources do not name ({doc}`04_vision`, {doc}`08_language_models`)",
    "Table 2": "the mean over other images, which our sources do not name ({doc}`05_special_tokens`)",
    "Table 3": "trained anew, with settings that our sources do not give ({doc}`09_ft_transformer`)",
    "Table 4": "other images than the paper's, which our sources do not name ({doc}`04_vision`)",
    "abstract": "see {doc}`02_random_baseline`, {doc}`04_vision`, {doc}`08_language_models` and {doc}`09_ft_transformer`",
}
_SCOPES = {
    "content": "share, content tokens",
    "all": "share, all tokens",
    "head": "share of heads",
    "averaged": "averaged, layers",
}


def summary(folder: Path = results.RESULTS) -> pd.DataFrame:
    """One row for every number of the paper, and for those of ours that were made with a derivative or partial data.

    Args:
        folder: where our results are.

    Returns:
        The columns of :data:`COLUMNS`; `command` is what makes a number that is not measured yet.
    """
    measured = results.measurements(folder)
    trained = networks.networks(folder)
    rows = [
        *_random(folder), *_claims(measured, trained), *_tokens(measured, trained), *_shares(measured), *_carriers(measured),
        *_networks(trained, folder), *_failing(measured),
    ]  # fmt: skip
    return pd.DataFrame(rows, columns=COLUMNS).fillna("")


def counts(table: pd.DataFrame) -> pd.DataFrame:
    """How many numbers of the paper have which verdict, and how many rows are of ours alone; by place."""
    return table.groupby(["place", "verdict"]).size().unstack(fill_value=0).reindex(columns=VERDICTS, fill_value=0)


def markdown(table: pd.DataFrame) -> str:
    """Rows of a summary as a table in MyST Markdown, of the class "summary"."""
    lines = ["```{table}", ":class: summary", "", "| Number | Paper | Here | Verdict |", "|---|---|---|---|"]
    for row in table.to_dict("records"):
        ours = f"`{row['command']}`" if row["command"] else row["ours"]
        verdict = f"**{row['verdict']}**" + (f": {row['why']}" if row["why"] else "")
        lines.append(f"| {row['subject']}: {row['quantity']} | {row['paper'] or '–'} | {ours} | {verdict} |")
    return "\n".join([*lines, "```"])


def _row(
    cell: str, place: str, subject: str, quantity: str, papers: str, ours: str, agrees: bool, why: str = ""
) -> dict[str, str]:
    verdict = "reproduced" if agrees else "differs"
    return {
        "cell": cell, "place": place, "subject": subject, "quantity": quantity, "paper": papers, "ours": ours, "verdict": verdict,
        "why": why if agrees else _WHY[place],
    }  # fmt: skip


def _not_yet(cell: str, place: str, subject: str, quantity: str, papers: str, command: str) -> dict[str, str]:
    return {
        "cell": cell, "place": place, "subject": subject, "quantity": quantity, "paper": papers, "verdict": "not measured yet",
        "command": command,
    }  # fmt: skip


def _own(place: str, subject: str, quantity: str, ours: str, verdict: str) -> dict[str, str]:
    return {"place": place, "subject": subject, "quantity": quantity, "ours": ours, "verdict": verdict}


def _of(model: str, measured: Sequence[Measurement]) -> Measurement | None:
    """The result that stands in the paper's row: of its checkpoint, size and number; the one with the model's name first."""
    found = [one for one in measured if compare.is_the_papers(one, model)]
    return min(found, key=lambda one: (one.name != model, one.name), default=None)


def _derivatives(measured: Sequence[Measurement]) -> list[Measurement]:
    return [one for one in measured if one.status == "derivative" and {*SCOPE_TITLES, "averaged_all"} <= set(one.table["scope"])]


def _random(folder: Path) -> Iterator[dict[str, str]]:
    printed = paper("baseline", as_printed=True).iloc[0]
    papers = f"{printed['low_percent']}–{printed['high_percent']} %"
    said = ("baseline/0", "abstract", printed["law"], "share", papers)
    if not (folder / "random_baseline.json").exists():
        yield _not_yet(*said, "dobrushin baseline")
        return
    row = compare.compare_baseline(results.read("random_baseline", folder)[0]).iloc[0]
    yield _row(*said, f"{row['Ours']} ({row['Quantity'].removeprefix('random matrices, ')})", row["Verdict"] == "reproduced")


def _claims(measured: Sequence[Measurement], trained: Sequence[Network]) -> Iterator[dict[str, str]]:
    """What the abstract says of several models together; all of them must have been measured."""
    for claim in paper("abstract", as_printed=True).to_dict("records"):
        models = claim["models"].split()
        papers = claim["words"] or f"{claim['low_percent']}–{claim['high_percent']} %"
        quantity = "where it fails" if claim["words"] else "range of the share"
        said = (f"abstract/{claim['claim']}", "abstract", claim["title"], quantity, papers)
        ours = {m: _of(m, measured) for m in models}
        missing = [m for m, one in ours.items() if one is None and m not in {network.config for network in trained}]
        if missing:
            command = f"dobrushin train {missing[0]}" if claim["claim"] == "tabular" else f"dobrushin measure {missing[0]}"
            yield _not_yet(*said, command)
        elif claim["words"]:
            late = {m: min(compare.failing(one), default=None) for m, one in ours.items() if one is not None}
            agrees = all(
                first is None or first > one.table["layer"].max() / 2
                for one, first in zip(ours.values(), late.values(), strict=True) if one is not None
            )  # fmt: skip
            yield _row(*said, ", ".join(f"{m} from layer {first}" for m, first in late.items() if first), agrees)
        else:
            found = [
                _counted(one.table, claim["scope"]) if one is not None
                else tuple(map(sum, zip(*(n.count(claim["scope"]) for n in trained if n.config == m), strict=True)))
                for m, one in ours.items()
            ]  # fmt: skip
            ends = min(found, key=lambda k: k[0] / k[1]), max(found, key=lambda k: k[0] / k[1])
            agrees = all(
                low - 0.005 <= float(claim[f"{name}_percent"]) / 100 <= high + 0.005
                for name, (low, high) in zip(("low", "high"), (wilson_interval(*end) for end in ends), strict=True)
            )
            yield _row(*said, " to ".join(percent(holds / total) for holds, total in ends), agrees)


def _counted(table: pd.DataFrame, scope: str) -> tuple[int, int]:
    holds = table.loc[table["scope"] == scope, "holds"]
    return int(holds.sum()), len(holds)


def _tokens(measured: Sequence[Measurement], trained: Sequence[Network]) -> Iterator[dict[str, str]]:
    """Numbers of tokens and layers: properties of an architecture, whatever its weights."""
    why = "counted in the architecture, which does not depend on the weights"

    def counted(model: str, key: str) -> int | None:
        for one in measured:
            spec, given = REGISTRY.get(model), one.how["inputs"]
            of_architecture = one.how["model"]["name"] == model and one.status in ("paper's checkpoint", "untrained")
            if of_architecture and spec is not None and given["tokens"] == spec.tokens:
                return int(one.table["layer"].max()) if key == "layers" else int(given["content_tokens"])
        for network in trained:
            if network.config.startswith(model):
                return int(network.how["measured"]["tokens" if key == "n" else "content_tokens"])
        return None

    cells = [
        *(("tokens", c["model"], c["title"], "content_tokens", "number of content tokens") for c in _rows("tokens")),
        *(("table2", c["model"], c["title"], "layers", "number of layers") for c in _rows("table2")),
        *(("table3", c["configuration"], c["title"], "n", "number of tokens") for c in _rows("table3")),
    ]
    for table, model, title, key, quantity in cells:
        column = "configuration" if table == "table3" else "model"
        papers = next(c[key] for c in _rows(table) if c[column] == model)
        said = (f"{table}/{model}/{key}", "Set-up", title, quantity, papers)
        ours = counted(model, key)
        command = f"dobrushin train {model}" if table == "table3" else f"dobrushin measure {model}"
        yield _not_yet(*said, command) if ours is None else _row(*said, str(ours), str(ours) == papers, why)


def _rows(name: str) -> list[dict[Any, Any]]:
    return paper(name, as_printed=True).to_dict("records")


def _shares(measured: Sequence[Measurement]) -> Iterator[dict[str, str]]:
    for cell in _rows("table1"):
        model, scope = cell["model"], cell["scope"]
        said = (f"table1/{model}/{scope}", cell["source"], cell["title"], _SCOPES[scope], compare.paper_share(cell))
        one = _of(model, measured)
        if one is None:
            yield _not_yet(*said, f"dobrushin measure {model}")
        else:
            yield _row(*said, _share(one, scope), compare.agrees_with(cell, one.table))
    for one in _derivatives(measured):
        for scope in SCOPE_TITLES:
            yield _own("Table 1", one.label, _SCOPES[scope], _share(one, scope), "measured on a derivative")


def _share(one: Measurement, scope: str) -> str:
    holds, total = _counted(one.table, scope)
    return f"{holds}/{total}" if scope == "averaged" else count_text(holds, total)


def _carriers(measured: Sequence[Measurement]) -> Iterator[dict[str, str]]:
    quantities = {
        "special_carrier_layers": "layers with a special carrier", "max_score": "largest Δ",
        "median_score_patch_carrier": "median Δ, patch carrier", "modal_carrier": "modal special carrier",
    }  # fmt: skip
    for cell in _rows("table2"):
        one = _of(cell["model"], measured)
        papers = dict(zip(quantities, compare.paper_carriers(cell), strict=True))
        ours = dict(zip(quantities, compare.carrier_cells(one)[1:], strict=True)) if one is not None else {}
        for key, quantity in quantities.items():
            said = (f"table2/{cell['model']}/{key}", "Table 2", cell["title"], quantity, papers[key])
            if one is None:
                yield _not_yet(*said, f"dobrushin measure {cell['model']}")
            else:
                yield _row(*said, ours[key], ours[key] == papers[key])
    for one in _derivatives(measured):
        for quantity, value in zip(quantities.values(), compare.carrier_cells(one)[1:], strict=True):
            yield _own("Table 2", one.label, quantity, value, "measured on a derivative")


def _failing(measured: Sequence[Measurement]) -> Iterator[dict[str, str]]:
    cells = _rows("table4")
    for cell in cells:
        papers = {int(c["layer"]): int(c["failing"]) for c in cells if c["model"] == cell["model"] and c["layer"] != "other"}
        where = f"layer {cell['layer']}" if cell["layer"] != "other" else "all other layers" if papers else "all layers"
        said = (f"table4/{cell['model']}/{cell['layer']}", "Table 4", cell["title"], f"failing inputs, {where}", cell["failing"])
        one = _of(cell["model"], measured)
        if one is None:
            yield _not_yet(*said, f"dobrushin measure {cell['model']}")
        else:
            yield _row(*said, compare.by_layer(compare.failing(one)), compare.failing_agrees(cell, one, papers))
    for one in _derivatives(measured):
        yield _own("Table 4", one.label, "failing inputs", compare.by_layer(compare.failing(one)), "measured on a derivative")


def _networks(trained: Sequence[Network], folder: Path) -> Iterator[dict[str, str]]:
    expected = expectations(trained)
    keys = ("score_low", "score_high", "features_percent", "all_percent", "averaged_holds")
    for cell in _rows("table3"):
        config, title = cell["configuration"], cell["title"]
        found = expected[expected["configuration"] == config].to_dict("records")
        names = (
            f"test {cell['metric']}, lowest seed", f"test {cell['metric']}, highest seed", "share, features", "share, all tokens",
            f"averaged, layers of {cell['averaged_total']}",
        )  # fmt: skip
        for place, (key, quantity) in enumerate(zip(keys, names, strict=True)):
            papers = cell[key] + (" %" if key.endswith("percent") else "")
            said = (f"table3/{config}/{key}", "Table 3", title, quantity, papers)
            if found:
                one = found[place]
                ours = f"{one['mean_text']} (expected: {one['interval_text']}; {one['seeds']} seeds)"
                yield _row(*said, ours, one["verdict"] == "reproduced")
            else:
                yield _not_yet(*said, f"dobrushin train {config}")
        yield from _published(cell)
        yield from _baselines(cell, folder)
    for network in trained:
        if network.how["data"]["partial"]:
            for scope, quantity in (
                ("content", "share, features"),
                ("all", "share, all tokens"),
                ("averaged", "averaged, layers"),
            ):
                text = "{}/{}".format(*network.count(scope)) if scope == "averaged" else percent(network.share(scope))
                yield _own("Table 3", f"{network.title}, seed {network.seed}", quantity, text, "partial training data")


def _published(cell: dict[Any, Any]) -> Iterator[dict[str, str]]:
    """The paper's column of the authors' scores, against the scores that these publish."""
    if not cell["authors_low"]:
        return
    scores = authors(cell["configuration"]).loc[: networks.PAPERS_SEEDS - 1]
    for key, word, value in (("authors_low", "lowest", scores.min()), ("authors_high", "highest", scores.max())):
        said = (f"table3/{cell['configuration']}/{key}", "Set-up", cell["title"], f"authors' {cell['metric']}, {word} seed")
        ours = f"{value:.3f}"
        yield _row(*said, cell[key], ours, ours == cell[key], "from the scores that the authors publish")


def _baselines(cell: dict[Any, Any], folder: Path) -> Iterator[dict[str, str]]:
    """Boosting, over seeds of ours; the linear model, whose features our sources do not give, on either kind of them."""
    name = f"ftt_{cell['configuration'].partition('-')[0]}-baselines"
    there = (folder / f"{name}.json").exists()
    scores = results.read(name, folder)[0] if there else pd.DataFrame({"model": [], "score": []})
    for key, title in (("boosting", "gradient boosting"), ("linear", "linear model")):
        said = (f"table3/{cell['configuration']}/{key}", "Table 3", cell["title"], f"{cell['metric']} of the {title}", cell[key])
        found = sorted(f"{score:.3f}" for score in scores.loc[scores["model"].astype(str).str.startswith(key), "score"])
        if not found:
            yield _not_yet(*said, f"dobrushin train {name.removeprefix('ftt_')}")
        elif key == "boosting":
            yield _row(*said, f"{found[0]} to {found[-1]}", found[0] <= cell[key] <= found[-1])
        else:
            yield _row(*said, " or ".join(found), cell[key] in found)
