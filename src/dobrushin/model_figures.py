"""Figures of the pretrained models: depth, Doeblin's bounds, carriers, input size, and what training changes.

A model has the same colour and mark in every figure; an untrained control is drawn dashed, in its model's colour.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, MultipleLocator, NullFormatter, NullLocator, PercentFormatter

from dobrushin.compare import percent, share_by_layer, shares_by_size
from dobrushin.figures import BLUE, GREEN, GREY, ORANGE, RED, finished
from dobrushin.models import REGISTRY
from dobrushin.points import tell, tell_shares
from dobrushin.results import Measurement
from dobrushin.tables import averages

__all__ = ["carriers", "doeblin", "relative_depth", "sizes", "training"]

_MARKS = "osD^vP*Xhp<>"
# By place in the registry: told apart by colour-blind readers, and dark enough for lines on white.
_COLOURS = (
    "#3a95cc", "#029e73", "#c77c00", "#b85fa6", "#b0773f", "#808080", "#c44e79", "#8172b3", "#d55e00", "#0173b2", "#7a7a1f",
)  # fmt: skip


def look(measurement: Measurement) -> dict[str, Any]:
    """Colour, mark and line of a model: those of its place in the registry, or of the first place after it."""
    name = measurement.how["model"]["name"]
    place = list(REGISTRY).index(name) if name in REGISTRY else len(REGISTRY)
    colour, untrained = _COLOURS[place % len(_COLOURS)], measurement.status == "untrained"
    return {
        "color": colour, "marker": _MARKS[place % len(_MARKS)], "ls": "--" if untrained else "-",
        "mfc": "white" if untrained else colour,
    }  # fmt: skip


def relative_depth(measured: list[Measurement]) -> Figure:
    r"""Share of inputs that satisfy the condition against relative depth :math:`\ell/L`: content tokens above, all below.

    The paper's Figure 1. Bars are 95 % Wilson intervals.
    """
    figure, panels = plt.subplots(2, 1, figsize=(6.4, 5.6), sharex=True, sharey=True)
    for axes, (scope, title) in zip(panels, (("content", "content tokens"), ("all", "all tokens")), strict=True):
        for one in measured:
            shares = share_by_layer(one.table)
            shares = shares[shares["scope"] == scope]
            errors = np.array([shares["share"] - shares["low"], shares["high"] - shares["share"]])
            axes.errorbar(
                shares["layer"] / shares["layer"].max(), shares["share"], yerr=errors, label=one.label, ms=5, lw=1.4,
                capsize=2, **look(one),
            )  # fmt: skip
            layers = [f"layer {k}" for k in shares["layer"]]
            tell_shares(axes, shares["layer"] / shares["layer"].max(), shares, layers, label=one.label, **look(one))
        axes.axhline(0.25, color="black", lw=0.8, ls=":")
        axes.set(title=title, ylabel="share of inputs", ylim=(0, 1.04), xlim=(0, 1.03))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[-1].set_xlabel(r"relative depth $\ell/L$")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=2, frameon=False, fontsize=9)
    return finished(figure)


def doeblin(measured: list[Measurement], scope: str = "averaged") -> Figure:
    r"""Doeblin's bounds against :math:`\kappa` of the mean attention over inputs, by layer: a panel a model.

    The paper's Figure 2, with the sharper columnwise bound beside the entrywise one.
    """
    columns = min(3, len(measured))
    lines = -(-len(measured) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.5 * columns + 0.6, 2.7 * lines + 0.7), sharey=True, squeeze=False)
    for axes, one in zip(panels.ravel(), measured, strict=False):
        rows = averages(one.table)
        rows = rows[rows["scope"] == scope]
        axes.plot(rows["layer"], rows["entrywise"], marker="s", ms=4, color=ORANGE, label=r"entrywise $1-N\varepsilon$")
        axes.plot(rows["layer"], rows["columnwise"], marker="^", ms=4, color=GREEN, label=r"columnwise $1-\sum_k\min_i A_{ik}$")
        axes.plot(rows["layer"], rows["kappa"], marker="o", ms=4, color=BLUE, label=r"$\kappa$")
        axes.fill_between(rows["layer"], rows["kappa"], rows["entrywise"], color=GREY, alpha=0.2, lw=0)
        bounds = (("entrywise bound", "entrywise", ORANGE, "s"), ("columnwise bound", "columnwise", GREEN, "^"))
        for name, column, colour, mark in (*bounds, ("κ", "kappa", BLUE, "o")):
            words = [f"{one.label}, layer {k}: {name} {x:.4f}" for k, x in zip(rows["layer"], rows[column], strict=True)]
            tell(axes, rows["layer"], rows[column], words, label=name, color=colour, marker=mark)
        axes.set(xlabel="layer", ylim=(0, 1.04))
        axes.set_title(one.label, fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in panels.ravel()[len(measured) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel("coefficient and bounds")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)


def carriers(measured: list[Measurement]) -> Figure:
    """Leave-one-out score of the carrier of the mean attention, all tokens, by layer and role of the token.

    The paper's Figure 3, on a logarithmic scale.
    """
    columns = min(3, len(measured))
    lines = -(-len(measured) // columns)
    figure, panels = plt.subplots(lines, columns, figsize=(3.5 * columns + 0.6, 2.7 * lines + 0.7), sharey=True, squeeze=False)
    kinds = {
        "content": (BLUE, "o"),
        "cls": (ORANGE, "s"),
        "register": (RED, "D"),
        "separator": (GREEN, "^"),
        "other": (GREY, "X"),
    }
    seen: dict[str, Any] = {}
    for axes, one in zip(panels.ravel(), measured, strict=False):
        rows = averages(one.table)
        rows = rows[rows["scope"] == "averaged_all"]
        role = rows["role"].astype(str)
        kind = role.where(~role.str.startswith("register"), "register").where(lambda k: k.isin(kinds), "other")
        axes.plot(rows["layer"], rows["score"], color=GREY, lw=0.8, zorder=1)
        for name, (colour, mark) in kinds.items():
            of_kind = rows[kind == name]
            if len(of_kind):
                seen[name] = axes.scatter(of_kind["layer"], of_kind["score"], color=colour, marker=mark, s=32, zorder=2)
                words = [f"{one.label}, layer {row.layer}: {row.role}, Δ = {row.score:.3g}" for row in of_kind.itertuples()]
                tell(axes, of_kind["layer"], of_kind["score"], words, label=name, color=colour, marker=mark, ls="")
        axes.set(xlabel="layer", yscale="log")
        axes.set_title(one.label, fontsize=9)
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes in panels.ravel()[len(measured) :]:
        axes.set_visible(False)
    for axes in panels[:, 0]:
        axes.set_ylabel(r"leave-one-out score $\Delta$")
    names = [name for name in kinds if name in seen]
    figure.legend(
        [seen[name] for name in names], names, loc="outside lower center", ncol=len(names), frameon=False, fontsize=9,
        title="role of the carrier", title_fontsize=9,
    )  # fmt: skip
    return finished(figure)


def sizes(measured: list[Measurement]) -> Figure:
    r"""Content-token test at several input sizes: share that holds, and median gap of the failing in % of ½κ.

    The paper's Figure 4. Measurements of one model are joined by a line.
    """
    table = shares_by_size(measured)
    figure, (share, gap) = plt.subplots(1, 2, figsize=(8.4, 3.7))
    for _, rows in table.groupby("model", sort=False):
        drawn = look(rows["measurement"].iloc[0])
        label = rows["measurement"].iloc[0].label
        errors = np.array([rows["share"] - rows["low"], rows["high"] - rows["share"]])
        share.errorbar(rows["n"], rows["share"], yerr=errors, label=label, capsize=2, ms=5, **drawn)
        places = [f"N = {n}" for n in rows["n"]]
        tell_shares(share, rows["n"], rows, places, label=label, **drawn)
        words = [f"{label}, {place}: {percent(x)}" for place, x in zip(places, rows["relative gap"], strict=True)]
        tell(gap, rows["n"], rows["relative gap"], words, label=label, **drawn)
        gap.plot(rows["n"], rows["relative gap"], label=label, ms=5, **drawn)
    ticks = sorted(table["n"].unique())
    for axes in (share, gap):
        axes.set(xscale="log", xlabel="content tokens $N$")
        axes.set_xticks(ticks, labels=[str(n) for n in ticks], rotation=45)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 5, 10]))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=1))
    lowest = float(table["low"].min())
    share.set(
        ylabel="share that satisfies the condition",
        ylim=(max(0.0, lowest - 0.05 * (1.02 - lowest)), 1.0 + 0.02 * (1.02 - lowest)),
    )
    gap.set(ylabel=r"median gap of the failing, share of $\frac{1}{2}\kappa$")
    gap.set_ylim(bottom=0)
    figure.legend(*share.get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)


def training(pairs: pd.DataFrame, random_share: float) -> Figure:
    """Share that holds, untrained and trained, by model and scope.

    Args:
        pairs: columns model, weights ("untrained" or another word), scope, share, low, high.
        random_share: of random matrices of many tokens, for comparison.
    """
    scopes = ["content tokens", "all tokens", "heads"]
    models = list(dict.fromkeys(pairs["model"]))
    figure, panels = plt.subplots(1, 3, figsize=(9.2, 1.3 + 0.34 * len(models)), sharey=True, sharex=True)
    for axes, scope in zip(panels, scopes, strict=True):
        for name, colour, mark in (("untrained", ORANGE, "s"), ("trained", BLUE, "o")):
            rows = pairs[(pairs["scope"] == scope) & ((pairs["weights"] == "untrained") == (name == "untrained"))]
            places = [models.index(model) for model in rows["model"]]
            errors = np.array([rows["share"] - rows["low"], rows["high"] - rows["share"]])
            axes.errorbar(rows["share"], places, xerr=errors, ls="", marker=mark, ms=5.5, color=colour, capsize=2, label=name)
            words = [
                f"{row['model']}, {row['weights']}, {scope}: {percent(row['share'])}, "
                f"95 % interval {100 * row['low']:.1f} to {100 * row['high']:.1f} %"
                for row in rows.to_dict("records")
            ]
            tell(
                axes, rows["share"], places, words, label=name, low=rows["low"], high=rows["high"], across=True, color=colour,
                marker=mark, ls="",
            )  # fmt: skip
        axes.axvline(random_share, color="black", lw=0.8, ls=":", label="random matrices")
        axes.set(title=scope, xlim=(0, 1.03), ylim=(len(models) - 0.5, -0.5))
        axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        axes.xaxis.set_major_locator(MultipleLocator(0.25))
    panels[0].set_yticks(range(len(models)), labels=models)
    panels[1].set_xlabel("share that satisfies the condition")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)
