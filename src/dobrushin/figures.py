"""The book's figures: one function a figure, each takes what a result or a matrix says and returns a figure.

Colours are those of seaborn's colour-blind palette; where two classes are told apart, their marks differ as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from jaxtyping import Float
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, NullLocator, PercentFormatter

from dobrushin.compare import baseline_shares, paper, share_by_layer
from dobrushin.equality import equality
from dobrushin.points import show_points_in_notebooks, tell, tell_shares
from dobrushin.random import gaussian_share
from dobrushin.rollout import layer_bound, rollout

__all__ = ["baseline", "depth", "heat_map", "layers", "loosening", "margins", "simplex", "square", "stability", "use_style"]

BLUE, ORANGE, GREEN, RED, PURPLE, _, PINK, GREY, *_ = sns.color_palette("colorblind")
_LAWS = {
    "dirichlet": ("uniform on the simplex", BLUE, "o"),
    "uniform": ("normalised uniform entries", ORANGE, "s"),
    "softmax": ("softmax of Gaussian scores", GREEN, "^"),
    "sparse": ("sparse", PURPLE, "D"),
}
_SCOPES = {
    "content": ("content tokens", BLUE, "o"),
    "all": ("all tokens", ORANGE, "s"),
    "head": ("heads, content tokens", GREEN, "^"),
}


def use_style() -> None:
    """Set the look of all figures; in a notebook, draw them as vectors."""
    sns.set_theme(style="whitegrid", palette="colorblind", font_scale=0.95)
    mpl.rcParams |= {
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "dobrushin",  # the same figure gives the same bytes
        "axes.titleweight": "bold",
        "axes.titlesize": "medium",
    }
    from IPython.core.getipython import get_ipython

    if (shell := get_ipython()) is not None:
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})  # type: ignore[no-untyped-call]
        show_points_in_notebooks(shell)


def finished(figure: Figure) -> Figure:
    """Close the figure, so that a notebook shows it once: as the cell's value."""
    plt.close(figure)
    return figure


def square(resolution: int = 201) -> Figure:
    r"""The gap of every 2 × 2 stochastic matrix, over the square of its diagonal entries :math:`(a_{11}, a_{22})`."""
    entries = np.linspace(0, 1, resolution)
    a, b = np.meshgrid(entries, entries)
    matrices = np.stack([np.stack([a, 1 - a], axis=-1), np.stack([1 - b, b], axis=-1)], axis=-2)
    gap = np.asarray(equality(matrices).gap)
    figure, axes = plt.subplots(figsize=(5.2, 4.2))
    image = axes.imshow(gap, origin="lower", extent=(0, 1, 0, 1), cmap="mako_r", vmin=0, vmax=1)
    axes.plot([0, 1], [1, 0], color=RED, lw=2, ls="--")
    axes.text(0.69, 0.73, "equality", ha="center", va="center")
    axes.text(0.22, 0.26, "bound is\nnot attained", ha="center", va="center", color="white")
    axes.plot(*zip((1, 1), (0, 0), (0.5, 0.5), strict=True), ls="", marker="o", color="black", ms=5, clip_on=False)
    for x, y, name, dx, dy in ((1, 1, "identity", -6, -10), (0, 0, "swap", 6, 6), (0.5, 0.5, "equal rows", 8, 4)):
        right = "right" if dx < 0 else "left"
        colour = "white" if name == "swap" else "black"
        axes.annotate(name, (x, y), (dx, dy), textcoords="offset points", ha=right, va="center", fontsize=9, color=colour)
    axes.set(xlabel="$a_{11}$", ylabel="$a_{22}$", xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.grid(visible=False)
    figure.colorbar(image, ax=axes, label=r"gap $\frac{1}{2}(1+\kappa(A))-\kappa(\frac{1}{2}(I+A))$")
    return finished(figure)


def simplex(first: Sequence[float], second: Sequence[float], resolution: int = 320) -> Figure:
    """Where equality holds for 3 × 3 matrices with the first two rows given, over all third rows (barycentric)."""
    height = np.sqrt(3) / 2
    x, y = np.meshgrid(np.linspace(0, 1, resolution), np.linspace(0, height, round(resolution * height)))
    third = np.stack([1 - x - y / (2 * height), x - y / (2 * height), y / height], axis=-1)
    inside = (third >= 0).all(axis=-1)
    rows = third[inside] / third[inside].sum(axis=-1, keepdims=True)
    matrices = np.stack([np.broadcast_to(first, rows.shape), np.broadcast_to(second, rows.shape), rows], axis=-2)
    verdicts = equality(matrices)
    shown = [("holds", np.asarray(verdicts.holds, float)), ("gap", np.asarray(verdicts.gap))]
    figure, panels = plt.subplots(1, 2, figsize=(7.4, 3.5))
    for axes, (name, values) in zip(panels, shown, strict=True):
        picture = np.full(inside.shape, np.nan)
        picture[inside] = values
        colours = ListedColormap([ORANGE, BLUE]) if name == "holds" else "mako_r"
        image = axes.imshow(picture, origin="lower", extent=(0, 1, 0, height), cmap=colours, interpolation="nearest")
        axes.plot([0, 1, 0.5, 0], [0, 0, height, 0], color="black", lw=1)
        for row, label in ((first, "row 1"), (second, "row 2")):
            centre = (row[1] + row[2] / 2, row[2] * height)
            axes.plot(*centre, marker="o", color="white", mec="black", ms=6)
            axes.annotate(
                label, centre, (6, 5), textcoords="offset points", fontsize=9, bbox={"fc": "white", "ec": "none", "pad": 0.8}
            )
        for corner, label, va in (((0, 0), "$e_1$", "top"), ((1, 0), "$e_2$", "top"), ((0.5, height), "$e_3$", "bottom")):
            axes.text(*corner, label, ha="center", va=va)
        axes.set(aspect="equal", xlim=(-0.06, 1.06), ylim=(-0.09, height + 0.09))
        axes.axis("off")
        if name == "gap":
            figure.colorbar(image, ax=axes, label="gap", shrink=0.75)
            axes.set_title("how far the bound is off")
        else:
            axes.legend(
                handles=[mpl.patches.Patch(color=BLUE, label="equality"), mpl.patches.Patch(color=ORANGE, label="strict")],
                loc="upper left", bbox_to_anchor=(-0.06, 1.02), frameon=False, handlelength=1, fontsize=9,
            )  # fmt: skip
            axes.set_title("verdict")
    return finished(figure)


def depth(stacks: dict[str, Any]) -> Figure:
    r"""Depth bound against :math:`\kappa` of the rollout after each layer.

    Args:
        stacks: title to row-stochastic matrices of shape ``(layers, n, n)``, the first layer first.
    """
    figure, panels = plt.subplots(1, len(stacks), figsize=(max(5.2, 3.2 * len(stacks)), 3.3), sharey=True, squeeze=False)
    for axes, (title, layers_of) in zip(panels[0], stacks.items(), strict=True):
        steps = range(1, len(layers_of) + 1)
        bound = [float(layer_bound(layers_of[:k])) for k in steps]
        factors = np.cumprod([float(np.asarray(equality(A).lazy_kappa)) for A in layers_of])
        true = [float(np.asarray(equality(rollout(layers_of[:k])).kappa)) for k in steps]
        axes.plot(steps, bound, marker="s", color=ORANGE, label=r"bound $\prod\frac{1}{2}(1+\kappa(A_\ell))$")
        axes.plot(steps, factors, marker="^", color=GREEN, label=r"$\prod\kappa(\frac{1}{2}(I+A_\ell))$")
        axes.plot(steps, true, marker="o", color=BLUE, label=r"$\kappa$ of the rollout")
        axes.fill_between(steps, true, bound, color=GREY, alpha=0.15, lw=0)
        of_steps = (
            ("bound ∏½(1+κ)", bound, ORANGE, "s"),
            ("∏κ(½(I+A))", factors, GREEN, "^"),
            ("κ of the rollout", true, BLUE, "o"),
        )
        for name, values, colour, mark in of_steps:
            words = [f"{title}, after layer {k}: {name} {value:.4g}" for k, value in zip(steps, values, strict=True)]
            tell(axes, steps, values, words, label=name, color=colour, marker=mark)
        axes.set(title=title, xlabel="layer", yscale="log")
        axes.xaxis.get_major_locator().set_params(integer=True)
    panels[0][0].set_ylabel(r"Dobrushin coefficient")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)


def baseline(table: pd.DataFrame) -> Figure:
    """Share of random stochastic matrices that satisfy the condition against their size, with Wilson intervals."""
    shares = baseline_shares(table)
    band = paper("baseline").iloc[0]
    figure, (whole, close) = plt.subplots(1, 2, figsize=(8.2, 3.9), width_ratios=(1, 1.3))
    sizes = np.unique(shares["n"])
    for axes in (whole, close):
        axes.axhspan(
            band["low_percent"] / 100, band["high_percent"] / 100, color=GREY, alpha=0.25, lw=0, label="the paper's range"
        )
        for level, name in ((0.5, "½"), (0.25, "¼")):
            axes.axhline(level, color="black", lw=0.8, ls=":")
            axes.annotate(name, (1, level), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center")
        axes.plot(sizes, [gaussian_share(int(n)) for n in sizes], color="black", lw=1, label="Gaussian sign rule")
        for law, (name, colour, mark) in _LAWS.items():
            one = shares[shares["law"] == law]
            errors = np.array([one["share"] - one["low"], one["high"] - one["share"]])
            axes.errorbar(
                one["n"], one["share"], yerr=errors, label=name, color=colour, marker=mark, ms=4.5, ls="", capsize=2, lw=1
            )
            rows = one.assign(total=one["draws"])
            tell_shares(axes, one["n"], rows, [f"N = {n}" for n in one["n"]], label=name, color=colour, marker=mark, ls="")
        axes.set(xscale="log", xlabel="number of tokens $N$")
        axes.set_xticks([2, 4, 8, 16, 32, 64, 128, 256], labels=["2", "4", "8", "16", "32", "64", "128", "256"])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_minor_formatter(NullFormatter())
    whole.set(ylabel="share that satisfies the condition", ylim=(0, 1.03), title="all laws")
    close.set(ylim=(0.23, 0.52), title="enlarged")
    for axes in (whole, close):
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    handles, labels = close.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)


def layers(results: dict[str, pd.DataFrame]) -> Figure:
    """Share of matrices that satisfy the condition by layer and scope, with Wilson intervals: a panel a result."""
    figure, panels = plt.subplots(1, len(results), figsize=(4.1 * len(results), 3.4), sharey=True, squeeze=False)
    for axes, (title, table) in zip(panels[0], results.items(), strict=True):
        shares = share_by_layer(table)
        for place, (scope, (name, colour, mark)) in enumerate(_SCOPES.items()):
            one = shares[shares["scope"] == scope]
            errors = np.array([one["share"] - one["low"], one["high"] - one["share"]])
            axes.errorbar(
                one["layer"] + 0.06 * (place - 1), one["share"], yerr=errors, label=name, color=colour, marker=mark, ms=5,
                lw=1.5, capsize=2,
            )  # fmt: skip
            x = one["layer"] + 0.06 * (place - 1)
            tell_shares(axes, x, one, [f"layer {k}" for k in one["layer"]], label=name, color=colour, marker=mark)
        axes.axhline(0.25, color="black", lw=0.8, ls=":")
        axes.set(title=title, xlabel="layer", ylim=(0, 1.03))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panels[0][0].set_ylabel("share that satisfies the condition")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=3, frameon=False, fontsize=9)
    return finished(figure)


def heat_map(A: Float[np.ndarray, "n n"], words: Sequence[str] | None = None) -> Figure:
    """An attention matrix, and beside it the four entries that decide for the pair that attains its coefficient.

    Args:
        A: one row-stochastic matrix.
        words: names of the tokens, for the pair.
    """
    verdict = equality(A)
    i, j = verdict.pair
    n = len(A)
    names = [f"{t + 1}" if words is None else f"{words[t]} ({t + 1})" for t in (i, j)]
    figure, (whole, pair) = plt.subplots(1, 2, figsize=(8.2, 4.0), width_ratios=(2.1, 1))
    floor = max(float(A[A > 0].min()), float(A.max()) / 1e5)
    image = whole.imshow(
        np.maximum(A, floor), cmap="rocket_r", norm=LogNorm(floor, float(A.max())), extent=(0.5, n + 0.5, n + 0.5, 0.5)
    )
    whole.grid(visible=False)
    for token in (i + 1, j + 1):
        whole.axhline(token, color=BLUE, lw=0.8, alpha=0.8)
    whole.scatter([i + 1, j + 1], [i + 1, j + 1], s=55, fc="none", ec=BLUE, lw=1.8, label="diagonal entries of the pair")
    whole.scatter(
        [j + 1, i + 1], [i + 1, j + 1], s=45, marker="s", fc="none", ec=GREEN, lw=1.8, label="the entries they must reach"
    )
    whole.set(xlabel="attended token (key)", ylabel="attending token (query)", title=f"$\\kappa$ = {verdict.kappa:.3f}")
    figure.colorbar(image, ax=whole, label="attention weight (log scale)", shrink=0.85)
    corner = A[np.ix_([i, j], [i, j])]
    sns.heatmap(
        corner, ax=pair, annot=True, fmt=".2g", cbar=False, square=True, cmap="rocket_r",
        norm=LogNorm(floor, float(A.max())), xticklabels=names, yticklabels=names, linewidths=2,
    )  # fmt: skip
    pair.tick_params(axis="y", rotation=0)
    pair.set_title("self-dominant" if verdict.holds else "not self-dominant")
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=2, frameon=False, fontsize=9)
    return finished(figure)


def stability(table: pd.DataFrame) -> Figure:
    """Radius within which a verdict cannot change against the distance at which it does.

    Args:
        table: one row a matrix, columns ``holds``, ``radius`` and ``distance``.
    """
    figure, axes = plt.subplots(figsize=(5.0, 4.2))
    for holds, name, colour, mark in ((True, "condition holds", BLUE, "o"), (False, "condition fails", ORANGE, "s")):
        one = table[table["holds"] == holds]
        axes.scatter(one["distance"], one["radius"], color=colour, marker=mark, s=28, label=name)
    ends = np.array([table[["distance", "radius"]].min().min(), table["distance"].max()])
    axes.plot(ends, ends, color="black", lw=1, label="radius = distance")
    axes.plot(ends, ends / 2, color="black", lw=0.8, ls=":", label="half of it")
    axes.set(xscale="log", yscale="log", xlabel="row distance to the nearest other verdict", ylabel="radius of the theorem")
    axes.legend(frameon=False, fontsize=9)
    return finished(figure)


def margins(results: dict[str, pd.DataFrame], rounding: float) -> Figure:
    """Distribution of the margin's size by scope, a panel a result, two in a row; dotted, what rounding can change.

    Args:
        results: title to table.
        rounding: largest change of a margin.
    """
    rows = -(-len(results) // 2)
    figure, panels = plt.subplots(rows, 2, figsize=(8.2, 2.7 * rows + 0.5), sharex=True, sharey=True, squeeze=False)
    for axes, (title, table) in zip(panels.flat, results.items(), strict=False):
        for (scope, (name, colour, _)), style in zip(_SCOPES.items(), ("-", "--", "-."), strict=True):
            sizes = np.sort(table.loc[table["scope"] == scope, "margin"].abs())
            sizes = sizes[np.isfinite(sizes)]
            if len(sizes):
                axes.plot(sizes, np.arange(1, len(sizes) + 1) / len(sizes), color=colour, ls=style, lw=1.8, label=name)
        axes.axvline(rounding, color="black", lw=1, ls=":", label="float32 rounding")
        axes.set(title=title, xscale="log", xlim=(1e-9, 1.5), ylim=(0, 1.03))
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    for axes in panels.flat[len(results) :]:
        axes.axis("off")
    for axes in panels[-1]:
        axes.set_xlabel("|margin|")
    figure.supylabel("share of verdicts with a smaller margin", fontsize="medium")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncol=4, frameon=False, fontsize=9)
    return finished(figure)


def loosening(table: pd.DataFrame) -> Figure:
    r"""How :math:`\kappa` of the rollout falls below the depth bound as layers lose their common direction.

    Args:
        table: one row a stack, columns ``mixed`` (share of the random matrix), ``ratio`` (coefficient over bound) and
            ``factors`` (product of the factors' coefficients over bound).
    """
    figure, axes = plt.subplots(figsize=(5.4, 3.6))
    for column, name, colour, mark in (
        ("factors", r"$\prod\kappa(\frac{1}{2}(I+A_\ell))$ over bound", GREEN, "^"),
        ("ratio", r"$\kappa$ of the rollout over bound", BLUE, "o"),
    ):
        by_share = table.groupby("mixed")[column]
        middle = by_share.median()
        axes.fill_between(middle.index, by_share.quantile(0.05), by_share.quantile(0.95), color=colour, alpha=0.15, lw=0)
        axes.plot(middle.index, middle, color=colour, marker=mark, ms=5, label=name)
    axes.set(xlabel="share of a random matrix in every layer", ylabel="share of the bound", ylim=(0, 1.04))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.legend(frameon=False, fontsize=9)
    return finished(figure)


def emblem(random: pd.DataFrame, trained: dict[str, pd.DataFrame]) -> Figure:
    """The README's picture: random matrices by size, beside trained networks by depth, content tokens.

    Args:
        random: the random baseline.
        trained: title to verdicts with the columns scope, layer and holds; the scope is "content".
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.6), sharey=True, width_ratios=(1, 1.15))
    shares = baseline_shares(random[random["law"] == "dirichlet"])
    errors = np.array([shares["share"] - shares["low"], shares["high"] - shares["share"]])
    left.errorbar(shares["n"], shares["share"], yerr=errors, marker="o", color="black", capsize=2)
    left.set(xscale="log", xlabel="number of tokens $N$", ylabel="share that satisfies\nthe equality condition", ylim=(0, 1.04))
    left.set_title("random stochastic matrices")
    left.set_xticks([2, 8, 32, 128], labels=["2", "8", "32", "128"])
    left.xaxis.set_minor_locator(NullLocator())
    for (title, table), (colour, mark) in zip(
        trained.items(), ((BLUE, "o"), (GREEN, "s"), (ORANGE, "^"), (PURPLE, "D")), strict=False
    ):
        by_layer = share_by_layer(table[table["scope"] == "content"])
        depths = by_layer["layer"] / by_layer["layer"].max()
        right.plot(depths, by_layer["share"], marker=mark, color=colour, label=title)
    right.set(xlabel="depth, share of the layers with a coefficient", xlim=(0, 1.04))
    right.set_title("trained networks, content tokens")
    right.legend(loc="center right", bbox_to_anchor=(1, 0.57), fontsize=9)
    for axes in (left, right):
        axes.axhline(0.25, color="black", lw=0.8, ls=":")
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return finished(figure)
