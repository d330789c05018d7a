"""What a figure shows, as numbers: the site draws it again from them, so that it can be asked questions.

A figure function tells its points where it draws them.  In a notebook they then travel beside the picture, as a
second representation of the same output; the picture itself is what is printed, and what is shown without JavaScript.
"""

from __future__ import annotations

import math
import re
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dobrushin.compare import count_text

__all__ = ["MIME", "points_of", "tell", "tell_shares"]

MIME = "application/vnd.dobrushin.points+json"
"""Type of the representation that :func:`points_of` gives."""

_TOLD: weakref.WeakKeyDictionary[Axes, list[dict[str, Any]]] = weakref.WeakKeyDictionary()
_FEWEST_TICKS = 3
_PLAIN = {r"\frac{1}{2}": "½", r"\kappa": "κ", r"\ell": "ℓ", r"\Delta": "Δ", r"\prod": "∏"}


def tell(
    axes: Axes, x: Iterable[Any], y: Iterable[Any], words: Sequence[str], *, label: str,
    low: Iterable[Any] | None = None, high: Iterable[Any] | None = None, across: bool = False, **look: Any,
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
        across: the intervals are of x, not of y.
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
            "hollow": look.get("mfc") == "white", "across": across, "points": points,
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
    return re.sub(r"[${}\\]", "", text)


def _ticks(axis: Any, limits: tuple[float, float]) -> list[list[Any]]:
    places = axis.get_majorticklocs()
    labels = axis.get_major_formatter().format_ticks(places)
    low, high = sorted(limits)
    shown = [(float(p), f"{p:g}" if "mathdefault" in text else _plain(text)) for p, text in zip(places, labels, strict=True)]
    inside = [[p, text] for p, text in shown if low <= p <= high]
    if axis.get_scale() == "log" and len(inside) < _FEWEST_TICKS:
        steps = [m * 10.0**k for k in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
        inside = [[p, f"{p:g}"] for p in steps if low <= p <= high]
    return inside


def _panel(axes: Axes) -> dict[str, Any]:
    guides = [guide for line in axes.lines if (guide := _guide(line)) is not None]
    bands = [
        {"low": patch.get_y(), "high": patch.get_y() + patch.get_height(), "label": str(patch.get_label())}
        for patch in axes.patches if isinstance(patch, Rectangle)
    ]  # fmt: skip
    told = {series["label"] for series in _TOLD[axes]} | {guide["label"] for guide in guides}
    named = {_plain(str(line.get_label())): line for line in axes.lines if line.get_marker() == "None"}
    curves = [
        {"label": label, "points": np.column_stack([line.get_xdata(), line.get_ydata()]).astype(float).tolist()}
        for label, line in named.items() if label not in told and not str(line.get_label()).startswith("_")
    ]  # fmt: skip
    areas = [
        np.asarray(outline.vertices).tolist()
        for drawn in axes.collections if isinstance(drawn, PolyCollection) for outline in drawn.get_paths()
    ]  # fmt: skip
    return {
        "title": _plain(axes.get_title()), "xlabel": _plain(axes.get_xlabel()), "ylabel": _plain(axes.get_ylabel()),
        "xscale": axes.get_xscale(), "yscale": axes.get_yscale(), "xlim": list(axes.get_xlim()), "ylim": list(axes.get_ylim()),
        "xticks": _ticks(axes.xaxis, axes.get_xlim()), "yticks": _ticks(axes.yaxis, axes.get_ylim()),
        "guides": guides, "bands": bands, "areas": areas, "curves": curves, "series": _TOLD[axes],
    }  # fmt: skip


def _guide(line: Any) -> dict[str, Any] | None:
    """A straight line across the whole panel, along x or y, and where it lies; None for any other line."""
    x, y = np.ravel(line.get_xdata()), np.ravel(line.get_ydata())
    name = str(line.get_label())
    label = "" if name.startswith("_") else _plain(name)
    for along, whole, place in (("x", x, y), ("y", y, x)):
        if np.array_equal(whole, [0, 1]) and len(place) == 2 and place[0] == place[1]:
            return {"along": along, "at": float(place[0]), "label": label}
    return None


def show_points_in_notebooks(shell: Any) -> None:
    """Let an IPython shell send a figure's points beside its picture."""

    def bundle(figure: Figure, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        points = points_of(figure)
        return {} if points is None else {MIME: points}

    shell.display_formatter.mimebundle_formatter.for_type(Figure, bundle)
