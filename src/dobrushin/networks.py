"""The trained FT-Transformers among the results, beside the paper's Table 3.

A network that is trained again differs with its seed, so the paper's three seeds are compared with what our seeds lead
one to expect of three further ones: an interval that covers it in 95 % of cases, if the seeds' values are normal (for
counts: if the layers are independent).

- ``reproduced``: the paper's number lies in that interval;
- ``differs``: it does not;
- ``not measured yet``: no network of this configuration was trained here; the command stands beside it.

A network that learned from other rows than the paper's has rows of its own, and no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.stats import fisher_exact
from scipy.stats import t as student

from dobrushin import results
from dobrushin.compare import paper, percent

__all__ = [
    "COLUMNS",
    "Network",
    "authors",
    "by_block",
    "by_seed",
    "compare_baselines",
    "compare_networks",
    "count_interval",
    "dominance",
    "expectations",
    "frequent_pairs",
    "interval",
    "learning",
    "networks",
    "variants",
]

COLUMNS = {"content": "Features", "all": "All", "averaged": "Averaged"}
"""Scopes and the titles of the paper's columns."""

PAPERS_SEEDS = 3
"""How many seeds the paper has of every configuration; we take the first ones for them."""

_EXPECTED = [
    "configuration", "title", "quantity", "seeds", "paper", "mean", "low", "high", "verdict", "paper_text", "mean_text",
    "interval_text",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Network:
    """A trained network: verdicts about its attention, how it learned, and how all that was made."""

    table: pd.DataFrame
    learned: pd.DataFrame
    how: dict[str, Any]

    @property
    def config(self) -> str:
        """Name of the configuration."""
        return str(self.how["config"]["name"])

    @property
    def title(self) -> str:
        """The configuration in words."""
        return str(self.how["config"]["title"])

    @property
    def seed(self) -> int:
        """Its seed."""
        return int(self.how["seed"])

    @property
    def score(self) -> float:
        """RMSE or accuracy on the test part."""
        return float(self.how["score"]["test"])

    def count(self, scope: str, layer: int | None = None) -> tuple[int, int]:
        """How many matrices of a scope satisfy the condition, and of how many."""
        rows = [c for c in self.how["counts"] if c["scope"] == scope and layer in (None, c["layer"])]
        return sum(c["holds"] for c in rows), sum(c["matrices"] for c in rows)

    @property
    def fragile(self) -> float:
        """Share of the rows' verdicts, on features and on all tokens, that the network's rounding could turn."""
        return float(self.table.loc[self.table["scope"] != "averaged", "fragile"].mean())

    def share(self, scope: str, layer: int | None = None) -> float:
        """Share of them."""
        holds, matrices = self.count(scope, layer)
        return holds / matrices


def networks(folder: Path = results.RESULTS) -> list[Network]:
    """All trained networks among the results, by configuration and seed."""
    names = [path.stem for path in folder.glob("ftt_*.json") if json.loads(path.read_text())["kind"] == "tabular"]
    found = [Network(*_verdicts_and_learning(name, folder)) for name in names]
    return sorted(found, key=lambda one: (one.config, one.seed))


def _verdicts_and_learning(name: str, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, Any]]:
    table, how = results.read(name, folder)
    learned, learned_how = results.read(f"{name}_training", folder)
    if learned_how["weights"] != how["weights"]:
        raise ValueError(f"{name} and {name}_training are of different weights; measure the network again")
    return table, learned, how


def _of(config: str, all_networks: Iterable[Network]) -> list[Network]:
    return [one for one in all_networks if one.config == config]


def _seeds(chosen: Sequence[Network]) -> str:
    """Seeds in words: "seeds 0–4, 7"."""
    runs: list[list[int]] = []
    for seed in sorted(one.seed for one in chosen):
        if runs and runs[-1][-1] == seed - 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    parts = [f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return ("seed " if len(chosen) == 1 else "seeds ") + ", ".join(parts)


def _row(chosen: Sequence[Network], source: str, verdict: str) -> dict[str, str]:
    scores = [one.score for one in chosen]
    cells = {}
    for scope, title in COLUMNS.items():
        holds, matrices = (sum(k) for k in zip(*(one.count(scope) for one in chosen), strict=True))
        cells[title] = f"{holds}/{matrices}" if scope == "averaged" else percent(holds / matrices)
    low, high = f"{min(scores):.3f}", f"{max(scores):.3f}"
    score = f"{chosen[0].how['metric']} {low}" + (f"–{high}" if high != low else "")
    return {"Configuration": chosen[0].title, "From": source, "Test score": score, **cells, "Verdict": verdict}


def compare_networks(all_networks: Sequence[Network]) -> pd.DataFrame:
    """The paper's Table 3 without its baselines, and ours: the first three seeds, then all.

    Configurations that the paper does not have, and networks that learned from other rows, come last.
    """
    rows: list[dict[str, str]] = []
    expected = expectations(all_networks)
    for row in paper("table3").to_dict("records"):
        rows.append(
            {
                "Configuration": row["title"], "From": "paper (Table 3)",
                "Test score": f"{row['metric']} {row['score_low']:.3f}–{row['score_high']:.3f}",
                "Features": f"{row['features_percent']:g} %", "All": f"{row['all_percent']:g} %",
                "Averaged": f"{row['averaged_holds']}/{row['averaged_total']}", "Verdict": "",
            }
        )  # fmt: skip
        ours = _of(row["configuration"], all_networks)
        if not ours:
            command = f"not measured yet: dobrushin train {row['configuration']} --seed 0"
            rows.append({"Configuration": row["title"], "From": "here", "Verdict": command})
            continue
        verdicts = expected.loc[expected["configuration"] == row["configuration"], "verdict"]
        verdict = "; ".join(f"{count} of {len(verdicts)} {word}" for word, count in verdicts.value_counts().items())
        first = ours[:PAPERS_SEEDS]
        rows.append(_row(first, f"here, {_seeds(first)}", "" if len(ours) > len(first) else verdict))
        if len(ours) > len(first):
            rows.append(_row(ours, f"here, {_seeds(ours)}", verdict))
    for config in dict.fromkeys(one.config for one in all_networks):
        if config not in set(paper("table3")["configuration"]):
            ours = _of(config, all_networks)
            partial = ours[0].how["data"]["partial"]
            rows.append(_row(ours, f"here, {_seeds(ours)}", "not the paper's training rows" if partial else "not in the paper"))
    return pd.DataFrame(rows).fillna("")


def interval(values: Sequence[float], of: int = 1) -> tuple[float, float]:
    r"""Interval that covers the mean of `of` further values in 95 % of cases, for normal values.

    :math:`\bar x \pm t_{0.975,\,n-1}\, s\, \sqrt{1/n + 1/k}` for n values with standard deviation s, and k = `of`.

    Raises:
        ValueError: fewer than two values.
    """
    n = len(values)
    if n < 2:
        raise ValueError(f"{n} value; expected at least 2: one value says nothing of the spread")
    half = float(student.ppf(0.975, n - 1) * np.std(values, ddof=1) * np.sqrt(1 / n + 1 / of))
    return float(np.mean(values)) - half, float(np.mean(values)) + half


def count_interval(holds: int, of: int, further: int) -> tuple[int, int]:
    """Counts among `further` draws that `holds` among `of` draws with the same probability do not contradict.

    Those that Fisher's exact test does not reject at 5 %; unlike :func:`interval` it says something of 0 among `of`.
    """
    kept = [count for count in range(further + 1) if fisher_exact([[holds, of - holds], [count, further - count]]).pvalue >= 0.05]
    return kept[0], kept[-1]


def expectations(all_networks: Sequence[Network]) -> pd.DataFrame:
    """Each number of the paper's Table 3 beside what our seeds lead one to expect.

    Shares are compared as means over three seeds, the ends of the range of scores as single values, averaged layers as
    counts.

    Returns:
        Columns configuration, title, quantity, seeds, paper, mean (of ours), low, high (the interval), verdict; and as
        text paper_text, mean_text, interval_text.
    """
    rows = []
    for row in paper("table3").to_dict("records"):
        ours = _of(row["configuration"], all_networks)
        if len(ours) < 2:
            continue
        scores = [one.score for one in ours]
        quantities: list[tuple[str, float, list[float], int, Callable[[float], str]]] = [
            (f"test {row['metric']}, lowest of three", row["score_low"], scores, 1, "{:.3f}".format),
            (f"test {row['metric']}, highest of three", row["score_high"], scores, 1, "{:.3f}".format),
            ("features", row["features_percent"] / 100, [one.share("content") for one in ours], PAPERS_SEEDS, percent),
            ("all", row["all_percent"] / 100, [one.share("all") for one in ours], PAPERS_SEEDS, percent),
        ]
        cells: list[tuple[str, float, float, tuple[float, float], Callable[[float], str]]] = []
        for quantity, papers, values, of, form in quantities:
            low, high = interval(values, of)
            cells.append((quantity, papers, float(np.mean(values)), (max(low, 0.0), high), form))
        holds, layers = (sum(k) for k in zip(*(one.count("averaged") for one in ours), strict=True))
        total = int(row["averaged_total"])
        limits = count_interval(holds, layers, total)
        cells.append((f"averaged, of {total}", row["averaged_holds"], total * holds / layers, limits, "{:.2g}".format))
        for quantity, papers, mean, (low, high), form in cells:
            rows.append(
                {
                    "configuration": row["configuration"], "title": row["title"], "quantity": quantity, "seeds": len(ours),
                    "paper": papers, "mean": mean, "low": low, "high": high,
                    "verdict": "reproduced" if low <= papers <= high else "differs",
                    "paper_text": form(papers), "mean_text": form(mean), "interval_text": f"{form(low)} to {form(high)}",
                }
            )  # fmt: skip
    return pd.DataFrame(rows, columns=_EXPECTED)


def compare_baselines(folder: Path = results.RESULTS) -> pd.DataFrame:
    """Test scores of boosting and of a linear model: the paper's, and those of the baseline results."""
    rows = []
    for name in ("california", "higgs", "higgs-partial"):
        beside = folder / f"ftt_{name}-baselines.json"
        printed = paper("table3").query(f"configuration == '{name}-3'")
        if not beside.exists():
            for cell in printed.to_dict("records"):
                for column, title in (("boosting", "gradient boosting"), ("linear", "linear")):
                    rows.append(
                        {"Table": cell["title"].partition(",")[0], "Model": title, "Metric": cell["metric"]}
                        | {"Paper": f"{cell[column]:.3f}", "Here": ""}
                        | {"Verdict": f"not measured yet: dobrushin train {name}-baselines"}
                    )
            continue
        scores, how = results.read(beside.stem, folder)
        for model, column, title in (
            ("boosting", "boosting", "gradient boosting"),
            ("linear", "linear", "linear, standardised features"),
            ("linear_quantile", "linear", "linear, features as FT-Transformer sees them"),
        ):
            ours = scores.loc[scores["model"] == model, "score"]
            papers = f"{printed[column].iloc[0]:.3f}" if len(printed) else ""
            found = [f"{score:.3f}" for score in ours]
            verdict = "partial training data" if how["data"]["partial"] else "reproduced" if papers in found else "differs"
            rows.append(
                {"Table": how["data"]["table"], "Model": title, "Metric": how["metric"], "Paper": papers}
                | {"Here": ", ".join(found), "Verdict": verdict}
            )  # fmt: skip
    return pd.DataFrame(rows)


def authors(config: str) -> pd.Series:
    """Test scores that the authors of FT-Transformer publish, by seed; empty where they have none."""
    table = pd.read_csv(results.PAPER.parent / "authors" / "ft_transformer.csv")
    return table[table["configuration"] == config].set_index("seed")["score"]


def by_seed(all_networks: Sequence[Network]) -> pd.DataFrame:
    """One row a network: score, epochs, shares of every column, of the blocks, and of what is counted beside them."""
    rows = []
    for one in all_networks:
        shares = {title: percent(one.share(scope)) for scope, title in COLUMNS.items() if scope != "averaged"}
        blocks = ", ".join(percent(one.share("content", block)) for block in one.how["measured"]["blocks"])
        rows.append(
            {
                "Configuration": one.title, "Seed": one.seed, "Test score": f"{one.how['metric']} {one.score:.4f}",
                "Epochs": one.how["epochs"], **shares, "Averaged": "{}/{}".format(*one.count("averaged")),
                "Features by block": blocks, "Not renormalised": percent(one.share("content_raw")),
                "Heads": percent(one.share("head")), "Fragile": percent(one.fragile),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def by_block(all_networks: Sequence[Network]) -> pd.DataFrame:
    """Per configuration and block: share over all seeds, lowest and highest seed, kappa, and the gap where it fails."""
    rows = []
    for config in dict.fromkeys(one.config for one in all_networks):
        ours = _of(config, all_networks)
        for block in ours[0].how["measured"]["blocks"]:
            content = pd.concat([one.table.query(f"scope == 'content' and layer == {block}") for one in ours])
            failing = content[~content["holds"]]
            shares = [one.share("content", block) for one in ours]
            rows.append(
                {
                    "Configuration": ours[0].title, "Block": block, "Seeds": len(ours),
                    "Features": percent(float(np.mean(shares))), "Lowest seed": percent(min(shares)),
                    "Highest seed": percent(max(shares)),
                    "All": percent(float(np.mean([one.share("all", block) for one in ours]))),
                    "Median κ": f"{content['kappa'].median():.4f}", "Median gap of the failing": f"{failing['gap'].median():.2g}",
                    "as a share of ½κ": percent(float((2 * failing["gap"] / failing["kappa"]).median())),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def frequent_pairs(one: Network, top: int = 3) -> pd.DataFrame:
    """Per block the pairs of features that attain kappa most often: on how many rows, and how often self-dominant there.

    Columns block, pair, rows (share of all), holds (share of those), share (of the block).
    """
    names, rows = one.how["data"]["features"], []
    for block in one.how["measured"]["blocks"]:
        content = one.table.query(f"scope == 'content' and layer == {block}")
        pairs = pd.Series(list(zip(content["i"], content["j"], strict=True)), index=content.index)
        for pair, count in pairs.value_counts().head(top).items():
            i, j = cast("tuple[int, int]", pair)
            rows.append(
                {"block": block, "pair": f"{names[i]}, {names[j]}", "rows": count / len(content)}
                | {"holds": float(content.loc[pairs == pair, "holds"].mean()), "share": float(content["holds"].mean())}
            )  # fmt: skip
    return pd.DataFrame(rows)


def learning(all_networks: Sequence[Network], scope: str = "content") -> pd.DataFrame:
    """Share along training, one row a network, block and epoch: configuration, title, seed, block, epoch, share, best."""
    parts = []
    for one in all_networks:
        rows = one.learned[one.learned["quantity"] == scope]
        parts.append(
            pd.DataFrame(
                {
                    "configuration": one.config, "title": one.title, "seed": one.seed, "block": rows["layer"],
                    "epoch": rows["epoch"], "share": rows["value"] / rows["matrices"], "best": one.how["best_epoch"],
                }
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def dominance(config: str, folder: Path = results.RESULTS) -> pd.DataFrame:
    """Why the condition fails, per block: whether features attend to themselves at all.

    Returns:
        Columns block; directions: share of ordered pairs of features, over all rows and seeds, with A_ii >= A_ji; pairs:
        share of pairs with both; features: share of rows at which a pair that attains kappa has both.

    Raises:
        FileNotFoundError: the variants of this configuration were not measured.
    """
    table, _ = results.read(f"ftt_{config}_variants", folder)
    counted = table[(table["variant"] == "base") & table["column"].isin(["directions", "pairs", "features"])]
    sums = counted.groupby(["layer", "column"], observed=True)[["holds", "matrices"]].sum()
    shares = (sums["holds"] / sums["matrices"]).unstack("column")[["directions", "pairs", "features"]]
    return shares.rename_axis(columns=None).rename_axis("block").reset_index()


def variants(config: str, folder: Path = results.RESULTS) -> pd.DataFrame:
    """Shares under every variant, over all seeds of the configuration; and the largest change of one network's share.

    Raises:
        FileNotFoundError: the variants of this configuration were not measured.
    """
    table, how = results.read(f"ftt_{config}_variants", folder)
    counts = table.groupby(["variant", "column"], observed=True)[["holds", "matrices"]].sum()
    each = table.groupby(["variant", "column", "seed"], observed=True)[["holds", "matrices"]].sum()
    share = (each["holds"] / each["matrices"]).unstack("variant")
    change = share.sub(share["base"], axis=0).abs().groupby("column", observed=True).max()
    rows = []
    for name, title in how["variants"].items():
        cells = {}
        for column in ("features", "all", "averaged"):
            if (name, column) in counts.index:
                holds, matrices = counts.loc[(name, column)]
                cells[column.capitalize()] = f"{holds}/{matrices}" if column == "averaged" else percent(holds / matrices)
        moved = change.loc["features", name]
        moved_text = "" if name == "base" or pd.isna(moved) else f"{100 * moved:.2f}"
        rows.append({"Variant": title, **cells, "Largest change of one network, points": moved_text})
    return pd.DataFrame(rows).fillna("–")
