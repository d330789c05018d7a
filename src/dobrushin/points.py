"""What a figure shows, as numbers: the site draws it again from them, so that it can be asked questions.

A figure function tells its points where it draws them.  In a notebook they then travel beside the picture, as a
second representation of the same output; the picture itself is what is printed, and what is shown without JavaScript.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dobrushin.compare import count_text

__all__ = ["MIME", "points_of", "tell", "tell_shares"]

MIME = "application/vnd.dobrushin.points+json"
"""Type of the representation that :func:`points_of` gives."""

_TOLD: weakref.WeakKeyDictionary[Axes, list[dict[str, Any]]] = weakref.WeakKeyDictionary()
_PLAIN = {r"\frac{1}{2}": "½", r"\kappa": "κ", r"\ell": "ℓ", r"\Delta": "Δ", r"\prod": "∏"}


def tell(
    axes: Axes, x: Iterable[Any], y: Iterable[Any], words: Sequence[str], *, label: str,
    low: Iterable[Any] | None = None, high: Iterable[Any] | None = None, **look: Any,
) -> None:  # fmt: skip
    """Note a series of points that has just been drawn.

    Args:
        axes: where.
        x: their places.
        y: their heights.
        words: what each says when it is asked.
        label: name of the series in the legend.
        low: lower ends of the intervals.
        high: upper ends of the intervals.
        look: color, marker and ls as matplotlib takes them, and mfc for hollow marks.
    """
    xs, ys = [float(v) for v in x], [float(v) for v in y]
    ends: list[list[float] | None] = [None] * len(xs)
    if low is not None and high is not None:
        ends = [[float(a), float(b)] for a, b in zip(low, high, strict=True)]
    points = [
        {"x": a, "y": b, "interval": end, "words": word}
        for a, b, end, word in zip(xs, ys, ends, words, strict=True) if np.isfinite(b)
    ]  # fmt: skip
    _TOLD.setdefault(axes, []).append(
        {
            "label": label, "color": to_hex(look["color"]), "marker": look.get("marker", "o"), "line": look.get("ls", "-"),
            "hollow": look.get("mfc") == "white", "points": points,
        }
    )  # fmt: skip


def tell_shares(axes: Axes, x: Iterable[Any], rows: pd.DataFrame, places: Sequence[str], *, label: str, **look: Any) -> None:
    """Note shares of matrices that satisfy the condition: columns holds, total, share, low and high."""
    words = []
    for place, holds, total, low, high in zip(places, rows["holds"], rows["total"], rows["low"], rows["high"], strict=True):
        interval = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %"
        words.append(f"{label}, {place}: {count_text(int(holds), int(total))}, {interval}")
    tell(axes, x, rows["share"], words, label=label, low=rows["low"], high=rows["high"], **look)


def points_of(figure: Figure) -> dict[str, Any] | None:
    """The panels of a figure with their axes, guides and points; None where none was told."""
    panels = [_panel(axes) for axes in figure.axes if axes in _TOLD]
    columns = [spec.get_gridspec().ncols for axes in figure.axes if (spec := axes.get_subplotspec()) is not None]
    return {"columns": max(columns), "panels": panels} if panels else None


def _plain(text: str) -> str:
    for command, sign in _PLAIN.items():
        text = text.replace(command, sign)
    return re.sub(r"[${}\\]", "", text).replace("\n", " ")


def _ticks(axis: Any, limits: tuple[float, float]) -> list[list[Any]]:
    places = axis.get_majorticklocs()
    labels = axis.get_major_formatter().format_ticks(places)
    low, high = sorted(limits)
    shown = [(float(p), f"{p:g}" if "mathdefault" in text else _plain(text)) for p, text in zip(places, labels, strict=True)]
    return [[p, text] for p, text in shown if low <= p <= high]


def _panel(axes: Axes) -> dict[str, Any]:
    guides = [height for line in axes.lines if (height := _guide(line)) is not None]
    bands = [
        {"low": patch.get_y(), "high": patch.get_y() + patch.get_height(), "label": str(patch.get_label())}
        for patch in axes.patches if isinstance(patch, Rectangle)
    ]  # fmt: skip
    curves = [
        {"label": str(line.get_label()), "points": np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float).tolist()}
        for line in axes.lines if not str(line.get_label()).startswith("_") and line.get_marker() == "None"
    ]  # fmt: skip
    return {
        "title": _plain(axes.get_title()), "xlabel": _plain(axes.get_xlabel()), "ylabel": _plain(axes.get_ylabel()),
        "xscale": axes.get_xscale(), "yscale": axes.get_yscale(), "xlim": list(axes.get_xlim()), "ylim": list(axes.get_ylim()),
        "xticks": _ticks(axes.xaxis, axes.get_xlim()), "yticks": _ticks(axes.yaxis, axes.get_ylim()),
        "guides": guides, "bands": bands, "curves": curves, "series": _TOLD[axes],
    }  # fmt: skip


def _guide(line: Any) -> float | None:
    """The height of a line across the whole panel; None for any other."""
    heights = np.ravel(line.get_ydata())
    across = np.array_equal(np.ravel(line.get_xdata()), [0, 1]) and len(heights) == 2 and heights[0] == heights[1]
    return float(heights[0]) if across else None


def show_points_in_notebooks(shell: Any) -> None:
    """Let an IPython shell send a figure's points beside its picture."""

    def bundle(figure: Figure, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        points = points_of(figure)
        return {} if points is None else {MIME: points}

    shell.display_formatter.mimebundle_formatter.for_type(Figure, bundle)
