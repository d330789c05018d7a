"""Figures of the trained FT-Transformers: spread over seeds, training, gaps, and single matrices.

Colours are those of seaborn's colour-blind palette; blocks and sources differ in mark or line as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dobrushin.compare import baseline_shares, paper, percent
from dobrushin.equality import equality
from dobrushin.figures import BLUE, GREEN, GREY, ORANGE, RED, finished
from dobrushin.networks import Network, authors, learning
from dobrushin.points import tell
from dobrushin.stochastic import restrict

__all__ = ["feature_matrices", "gaps", "random_level", "spread", "training"]

_BLOCKS: list[tuple[Any, Any]] = [(BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), ("black", ":"), (RED, (0, (5, 1, 1, 1, 1, 1)))]


def random_level(baseline: pd.DataFrame, n: int) -> float:
    """Share of uniformly random matrices that satisfy the condition, at the measured size nearest to n."""
    shares = baseline_shares(baseline[baseline["law"] == "dirichlet"])
    return float(shares["share"].iloc[int((shares["n"] - n).abs().argmin())])


def _groups(networks: Sequence[Network]) -> dict[str, list[Network]]:
    groups: dict[str, list[Network]] = {}
    for one in networks:
        groups.setdefault(one.config, []).append(one)
    return groups


def spread(networks: Sequence[Network], baseline: pd.DataFrame) -> Figure:
    """Every network's shares, and its test score, beside the paper's numbers and the scores that the authors publish.

    Args:
        networks: of the paper's configurations, all with the same metric.
        baseline: the result of the random baseline.
    """
    groups = _groups(networks)
    printed: dict[str, Any] = {row["configuration"]: row for row in paper("table3").to_dict("records")}
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 3.9), width_ratios=(1.35, 1))
    places, labels = [], []
    for g, (config, ours) in enumerate(groups.items()):
        for k, (scope, column, word) in enumerate((("content", "features", "features"), ("all", "all", "all tokens"))):
            place = 2.4 * g + k
            shares = [one.share(scope) for one in ours]
            offsets = place + np.linspace(-0.16, 0.16, len(shares)) if len(shares) > 1 else [place]
            first = g == k == 0
            left.scatter(offsets, shares, color=BLUE, s=26, label="a seed, here" if first else None)
            left.plot([place - 0.3, place + 0.3], [np.mean(shares)] * 2, color=BLUE, lw=2, label="mean, here" if first else None)
            left.scatter(
                [place], [printed[config][f"{column}_percent"] / 100], marker="D", s=50, fc="none", ec=RED, lw=1.8, zorder=3,
                label="paper, three seeds" if first else None,
            )  # fmt: skip
            places.append(place)
            of = f"{word}, {ours[0].how['config']['blocks']} blocks"
            labels.append(of.replace(", ", "\n"))
            said = [f"seed {one.seed}, {of}: {percent(x)}" for one, x in zip(ours, shares, strict=True)]
            tell(left, offsets, shares, said, label="a seed, here", color=BLUE, ls="")
            said = [f"mean of {len(ours)} seeds, {of}: {percent(float(np.mean(shares)))}"]
            tell(left, [place], [np.mean(shares)], said, label="mean, here", color=BLUE, marker="_", ls="")
            printed_share = printed[config][f"{column}_percent"] / 100
            said = [f"paper, Table 3, {of}: {100 * printed_share:.4g} %"]
            tell(left, [place], [printed_share], said, label="paper, three seeds", color=RED, marker="D", ls="", mfc="white")
    content = int(networks[0].how["measured"]["content_tokens"])
    left.axhline(random_level(baseline, content), color="black", lw=1, ls=":", label=f"random matrices, $N={content}$")
    left.set_xticks(places, labels)
    left.set(ylabel="share that satisfies the condition", ylim=(0, None), title="condition")
    left.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))

    rows: list[tuple[str, Any, str, str]] = []
    for config, ours in groups.items():
        blocks = ours[0].how["config"]["blocks"]
        rows.append((f"here\n{blocks} blocks", [one.score for one in ours], BLUE, "o"))
        if len(published := authors(config)):
            rows.append((f"authors\n{blocks} blocks", published, GREEN, "s"))
        rows.append((f"paper\n{blocks} blocks", [printed[config]["score_low"], printed[config]["score_high"]], RED, "D"))
    for place, (name, values, colour, mark) in enumerate(rows):
        if mark == "D":
            right.plot(values, [place, place], color=colour, lw=2)
        right.scatter(values, [place] * len(values), color=colour, marker=mark, s=24, alpha=0.8)
        of, label = name.replace("\n", ", "), {"o": "a seed, here", "s": "authors", "D": "paper, three seeds"}[mark]
        said = [f"{of}: {networks[0].how['metric']} {value:.4g}" for value in values]
        tell(right, values, [place] * len(values), said, label=label, color=colour, marker=mark, ls="-" if mark == "D" else "")
    right.set_yticks(range(len(rows)), [name for name, *_ in rows])
    right.invert_yaxis()
    right.xaxis.set_major_locator(MaxNLocator(4))
    right.set(xlabel=f"test {networks[0].how['metric']}", title="test score")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncol=4, frameon=False, fontsize=9)
    return finished(figure)


def training(networks: Sequence[Network], baseline: pd.DataFrame) -> Figure:
    """Share of validation rows that satisfy the condition along training, by block: thin each seed, thick their mean.

    The mean is drawn as long as every seed still learns; epoch 0 is the untrained network.
    """
    groups = _groups(networks)
    figure, panels = plt.subplots(1, len(groups), figsize=(max(4.6, 3.5 * len(groups)), 3.6), sharey=True, squeeze=False)
    for axes, ours in zip(panels[0], groups.values(), strict=True):
        table = learning(ours)
        until = table.groupby("seed")["epoch"].max().min()
        for block in sorted(table["block"].unique()):
            rows = table[table["block"] == block]
            colour, line = _BLOCKS[(block - 1) % len(_BLOCKS)]
            for _, one in rows.groupby("seed"):
                axes.plot(one["epoch"], one["share"], color=colour, lw=0.7, alpha=0.35)
            by_epoch = rows[rows["epoch"] <= until].groupby("epoch")["share"]
            mean, low, high = by_epoch.mean(), by_epoch.min(), by_epoch.max()
            axes.plot(mean.index, mean, color=colour, ls=line, lw=2.2, label=f"block {block}")
            said = [
                f"block {block}, epoch {epoch}: mean {percent(mean[epoch])}, "
                f"the seeds from {percent(low[epoch])} to {percent(high[epoch])}"
                for epoch in mean.index
            ]
            tell(axes, mean.index, mean, said, label=f"block {block}", low=low, high=high, color=colour, ls=line)
        content = int(ours[0].how["measured"]["content_tokens"])
        axes.axhline(random_level(baseline, content), color="black", lw=1, ls=":", label="random matrices")
        axes.set_xscale("symlog", linthresh=1)
        ticks = [0, 1, 2, 4, 8, 16, 32, 64]
        axes.set_xticks(ticks, [str(t) for t in ticks])
        axes.minorticks_off()
        seeds = f"{len(ours)} seed" + ("s" if len(ours) > 1 else "")
        axes.set(title=f"{ours[0].title}\n{seeds}, $N={content}$", xlabel="epoch", ylim=(0, 1), xlim=(0, None))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0][0].set_ylabel("share, features")
    widest = max(panels[0], key=lambda axes: len(axes.get_legend_handles_labels()[1]))
    figure.legend(*widest.get_legend_handles_labels(), loc="outside lower center", ncol=6, frameon=False, fontsize=9)
    return finished(figure)


def gaps(networks: Sequence[Network]) -> Figure:
    """Distribution of the gap, as a share of half of kappa, among the rows at which the condition fails, by block."""
    groups = _groups(networks)
    figure, panels = plt.subplots(1, len(groups), figsize=(max(4.6, 3.5 * len(groups)), 3.3), sharey=True, squeeze=False)
    for axes, ours in zip(panels[0], groups.values(), strict=True):
        content = pd.concat([one.table[one.table["scope"] == "content"] for one in ours])
        for block in sorted(content["layer"].unique()):
            rows = content[~content["holds"] & (content["layer"] == block)]
            colour, line = _BLOCKS[(block - 1) % len(_BLOCKS)]
            ratios = np.sort(2 * rows["gap"] / rows["kappa"])
            axes.plot(ratios, np.arange(1, len(ratios) + 1) / len(ratios), color=colour, ls=line, lw=1.8, label=f"block {block}")
        axes.set(title=ours[0].title, xlabel=r"gap as a share of $\frac{1}{2}\kappa$", ylim=(0, 1.02), xlim=(0, None))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0][0].set_ylabel("failing rows with\na smaller gap")
    widest = max(panels[0], key=lambda axes: len(axes.get_lines()))
    figure.legend(*widest.get_legend_handles_labels(), loc="outside lower center", ncol=5, frameon=False, fontsize=9)
    return finished(figure)


def feature_matrices(shown: dict[str, Any], features: Sequence[str]) -> Figure:
    """Attention among features, restricted and renormalised, with the pair of rows that attains kappa.

    Args:
        shown: title to a row-stochastic matrix of cls and the features.
        features: their names.
    """
    figure, panels = plt.subplots(len(shown), 1, figsize=(6.4, 4.5 * len(shown)), squeeze=False)
    for axes, (title, A) in zip(panels[:, 0], shown.items(), strict=True):
        A = restrict(np.asarray(A), np.arange(1, len(features) + 1))
        verdict = equality(A)
        sns.heatmap(
            A, ax=axes, annot=True, fmt=".2f", cmap="rocket_r", vmin=0, square=True, annot_kws={"fontsize": 8},
            xticklabels=list(features), yticklabels=list(features), cbar_kws={"label": "attention weight", "shrink": 0.8},
        )  # fmt: skip
        i, j = verdict.pair
        for a, b in ((i, j), (j, i)):
            axes.add_patch(Rectangle((0, a), len(A), 1, fill=False, ec=GREY, lw=1.2))
            axes.add_patch(Rectangle((a + 0.06, a + 0.06), 0.88, 0.88, fill=False, ec=BLUE, lw=2.4))
            axes.add_patch(Rectangle((a + 0.06, b + 0.06), 0.88, 0.88, fill=False, ec=GREEN, lw=2.4, ls="--"))
        axes.tick_params(axis="y", rotation=0)
        axes.tick_params(axis="x", rotation=40)
        for label in axes.get_xticklabels():
            label.set_ha("right")
        says = "holds" if verdict.holds else "fails"
        axes.set(title=f"{title}\n$\\kappa$ = {verdict.kappa:.3f}, the condition {says}")
        axes.set(xlabel="attended feature (key)", ylabel="attending feature (query)")
    return finished(figure)
