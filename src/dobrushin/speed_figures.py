"""What verdicts cost: the figures of the chapter on speed, from the benchmark's tables in ``data/bench``."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from dobrushin.figures import BLUE, GREEN, GREY, ORANGE, PINK, PURPLE, finished
from dobrushin.results import RESULTS

__all__ = ["BENCH", "cost", "ratios"]

BENCH: Path = RESULTS.parent / "bench"
"""Where the benchmark's tables lie, in a checkout of the project."""

_LOOKS = {
    "torch.cdist": (ORANGE, "s", "-"),
    "scipy pdist": (GREEN, "^", "-"),
    "NumPy broadcast": (PURPLE, "D", "-"),
    "numba loop": (PINK, "v", "-"),
    "arithmetic limit": (GREY, "", "--"),
    "equality": (BLUE, "o", "-"),
}
"""Colour, mark and line of every contender, in the order of the tables."""


def ratios(kernels: pd.DataFrame) -> pd.DataFrame:
    """Times of all contenders on one core as multiples of the verdict's, by kind of matrix, element type and size."""
    one = kernels.pivot(index=["matrices", "dtype", "n"], columns="contender", values="seconds")
    return one.div(one["equality"], axis=0)[list(_LOOKS)]


def cost(kernels: pd.DataFrame) -> Figure:
    """Time a float32 matrix on one core against the number of tokens, one panel a kind of matrix."""
    one = kernels[kernels["dtype"] == "float32"]
    kinds = list(one["matrices"].unique())
    figure, panels = plt.subplots(1, len(kinds), figsize=(8.4, 3.8), sharex=True, sharey=True, squeeze=False)
    for axes, kind in zip(panels[0], kinds, strict=True):
        for name, (colour, mark, line) in _LOOKS.items():
            rows = one[(one["matrices"] == kind) & (one["contender"] == name)].sort_values("n")
            axes.plot(rows["n"], 1e3 * rows["seconds"], color=colour, marker=mark, ls=line, label=name)
        axes.set(title=kind, xlabel="tokens N", xscale="log", yscale="log")
        axes.set_xticks(sorted(one["n"].unique()), labels=sorted(one["n"].unique()))
        axes.minorticks_off()
    panels[0, 0].set_ylabel("milliseconds a matrix")
    panels[0, 0].legend(fontsize=8)
    return finished(figure)
