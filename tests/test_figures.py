"""Figures show the numbers they are given: what is drawn is compared with what the package computes."""

from __future__ import annotations

import io
import json

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dobrushin import LAWS, coefficient, equality, figures, layer_bound, lazy, random_stochastic, rollout
from dobrushin.compare import baseline_shares, paper, share_by_layer
from dobrushin.points import points_of

mpl.use("Agg")


@pytest.fixture(autouse=True)
def style():
    with mpl.rc_context():
        figures.use_style()
        yield


def stacks() -> dict[str, np.ndarray]:
    return {law: random_stochastic(5, 4, law, np.random.default_rng(0)) for law in ("dirichlet", "softmax")}


def random_table() -> pd.DataFrame:
    rows = [(law, n, 1000, 1000 // (k + 2), 0) for law in LAWS for k, n in enumerate((2, 8, 256))]
    return pd.DataFrame(rows, columns=["law", "n", "draws", "holds", "fragile"])


def verdicts(seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = [(scope, layer, k) for scope in ("content", "all", "head") for layer in (1, 2, 3) for k in range(20)]
    table = pd.DataFrame(rows, columns=["scope", "layer", "input"])
    margin = rng.normal(size=len(table)) * 10.0 ** rng.integers(-6, 0, len(table))
    return table.assign(margin=margin, holds=margin >= 0).replace({"margin": {margin[0]: np.inf}})


def stable() -> pd.DataFrame:
    return pd.DataFrame({"holds": [True, False, True], "radius": [0.1, 0.02, 0.3], "distance": [0.1, 0.04, 0.5]})


def mixed() -> pd.DataFrame:
    return pd.DataFrame({"mixed": [0.0, 0.0, 0.5, 0.5], "ratio": [1.0, 0.9, 0.4, 0.3], "factors": [1.0, 1.0, 0.9, 0.8]})


DRAWN = {
    "square": lambda: figures.square(11),
    "simplex": lambda: figures.simplex((0.6, 0.3, 0.1), (0.2, 0.3, 0.5), 24),
    "depth": lambda: figures.depth(stacks()),
    "baseline": lambda: figures.baseline(random_table()),
    "layers": lambda: figures.layers({"one": verdicts(0), "two": verdicts(1)}),
    "heat_map": lambda: figures.heat_map(stacks()["softmax"][0], ["a", "b", "c", "d", "e"]),
    "stability": lambda: figures.stability(stable()),
    "margins": lambda: figures.margins({"one": verdicts(0), "two": verdicts(1), "three": verdicts(2)}, 1e-4),
    "loosening": lambda: figures.loosening(mixed()),
}


def svg(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def series(figure: Figure) -> list[dict]:
    """All series of points that a figure tells, with the panel they stand in."""
    return [one | {"panel": k} for k, panel in enumerate(points_of(figure)["panels"]) for one in panel["series"]]


# --- all figures ------------------------------------------------------------------------------------------------


def test_every_figure_of_the_module_is_tested():
    assert set(DRAWN) == set(figures.__all__) - {"use_style"}


@pytest.mark.parametrize("name", list(DRAWN))
def test_a_figure_is_closed_labelled_and_the_same_every_time(name):
    figure = DRAWN[name]()
    assert isinstance(figure, Figure)
    assert plt.get_fignums() == []
    for axes in figure.axes:
        if axes.axison and axes.get_visible() and axes.has_data() and not hasattr(axes, "_colorbar"):
            assert axes.get_xlabel() or axes.get_ylabel() or axes.get_title()
    first = svg(figure)  # which warns, and so fails, of signs that the font lacks
    assert svg(DRAWN[name]()) == first
    json.dumps(points_of(figure), allow_nan=False)


def test_classes_differ_in_more_than_colour():
    for figure in (DRAWN["baseline"](), DRAWN["layers"](), DRAWN["depth"]()):
        for panel in {one["panel"] for one in series(figure)}:
            shown = [one for one in series(figure) if one["panel"] == panel]
            assert len({one["marker"] for one in shown}) == len({one["color"] for one in shown}) == len(shown)


# --- each figure ------------------------------------------------------------------------------------------------


def test_the_square_shows_the_gap_of_two_tokens():
    axes = DRAWN["square"]().axes[0]
    (image,) = axes.images
    shown, entries = np.asarray(image.get_array()), np.linspace(0, 1, 11)
    assert image.origin == "lower"
    assert tuple(image.get_extent()) == (0, 1, 0, 1)
    for row, b in enumerate(entries):
        for column, a in enumerate(entries):
            assert shown[row, column] == pytest.approx(max(1 - a - b, 0), abs=1e-15)
    assert image.get_clim() == (0, 1)


def test_the_simplex_shows_verdict_and_gap_of_the_third_row():
    first, second, resolution = (0.6, 0.3, 0.1), (0.2, 0.3, 0.5), 24
    holds, gap = (np.asarray(axes.images[0].get_array(), float) for axes in DRAWN["simplex"]().axes[:2])
    height, seen = np.sqrt(3) / 2, 0
    for (row, column), value in np.ndenumerate(holds):
        x, y = column / (resolution - 1), height * row / (holds.shape[0] - 1)
        third = np.array([1 - x - y / (2 * height), x - y / (2 * height), y / height])
        if third.min() > 1e-9:
            third /= third.sum()
            verdict = equality(np.array([first, second, third]))
            assert gap[row, column] == pytest.approx(verdict.gap, abs=1e-14)
            if abs(verdict.margin) > 1e-9:  # nearer than that the rounding of the third row decides
                assert bool(value) == verdict.holds
                seen += 1
        elif third.min() < -1e-9:
            assert np.isnan(value)
    assert seen > 150


def test_depth_shows_the_bound_the_factors_and_the_truth():
    figure = DRAWN["depth"]()
    for axes, As in zip(figure.axes, stacks().values(), strict=True):
        bound, factors, true = (line.get_ydata() for line in axes.lines)
        for k in range(1, len(As) + 1):
            assert bound[k - 1] == layer_bound(As[:k])
            assert factors[k - 1] == pytest.approx(np.prod([coefficient(lazy(A)) for A in As[:k]]), rel=1e-14)
            assert true[k - 1] == coefficient(rollout(As[:k]))
        assert axes.get_yscale() == "log"
    told = [[point["y"] for point in one["points"]] for one in series(figure)]
    assert told == [list(line.get_ydata()) for axes in figure.axes for line in axes.lines]


def test_the_baseline_shows_shares_intervals_and_the_papers_band():
    figure, shares = DRAWN["baseline"](), baseline_shares(random_table())
    row = paper("baseline").iloc[0]
    for panel in points_of(figure)["panels"]:
        (band,) = panel["bands"]
        assert (band["low"], band["high"]) == pytest.approx((row["low_percent"] / 100, row["high_percent"] / 100))
        assert {0.25, 0.5} <= {guide["at"] for guide in panel["guides"]}
    for panel in (0, 1):
        shown = [one for one in series(figure) if one["panel"] == panel]
        assert len(shown) == len(LAWS)
        for one, law in zip(shown, LAWS, strict=True):
            expected = shares[shares["law"] == law]
            assert [p["x"] for p in one["points"]] == expected["n"].tolist()
            assert [p["y"] for p in one["points"]] == expected["share"].tolist()
            assert [p["interval"] for p in one["points"]] == expected[["low", "high"]].to_numpy().tolist()


def test_layers_shows_each_scope_beside_the_others():
    figure = DRAWN["layers"]()
    shown = series(figure)
    assert [panel["title"] for panel in points_of(figure)["panels"]] == ["one", "two"]
    for panel, seed in enumerate((0, 1)):
        shares = share_by_layer(verdicts(seed))
        for one, scope in zip([one for one in shown if one["panel"] == panel], ("content", "all", "head"), strict=True):
            expected = shares[shares["scope"] == scope]
            assert [p["y"] for p in one["points"]] == expected["share"].tolist()
            assert np.round([p["x"] for p in one["points"]]).tolist() == expected["layer"].tolist()


@pytest.mark.parametrize("words", [None, ["a", "b", "c", "d", "e"]])
def test_a_heat_map_marks_the_pair_that_attains_kappa(words):
    A = stacks()["softmax"][0]
    i, j = equality(A).pair
    whole, corner = figures.heat_map(A, words).axes[:2]
    assert f"{coefficient(A):.3f}" in whole.get_title()
    assert np.array_equal(whole.images[0].get_array(), A)
    circles, squares = (marks.get_offsets().tolist() for marks in whole.collections[:2])
    assert circles == [[i + 1, i + 1], [j + 1, j + 1]]
    assert squares == [[j + 1, i + 1], [i + 1, j + 1]]  # column, row
    assert np.array_equal(np.reshape(corner.collections[0].get_array(), (2, 2)), A[np.ix_([i, j], [i, j])])
    assert corner.get_title() == ("self-dominant" if equality(A).holds else "not self-dominant")
    labels = [label.get_text() for label in corner.get_xticklabels()]
    assert labels == [str(k + 1) if words is None else f"{words[k]} ({k + 1})" for k in (i, j)]


def test_a_heat_map_of_zeros_and_ones_can_be_drawn():
    svg(figures.heat_map(np.eye(3)[[1, 2, 0]]))
    svg(figures.heat_map(np.full((3, 3), 1 / 3)))


def test_stability_shows_radius_against_distance():
    axes = DRAWN["stability"]().axes[0]
    table = stable()
    for marks, holds in zip(axes.collections, (True, False), strict=True):
        assert marks.get_offsets().tolist() == table.loc[table["holds"] == holds, ["distance", "radius"]].to_numpy().tolist()


def test_margins_are_cumulative_shares_of_the_finite_ones():
    figure = DRAWN["margins"]()
    for axes, seed in zip(figure.axes, (0, 1, 2), strict=False):
        table = verdicts(seed)
        for line, scope in zip(axes.lines, ("content", "all", "head"), strict=False):
            sizes = np.sort(table.loc[table["scope"] == scope, "margin"].abs())
            sizes = sizes[np.isfinite(sizes)]
            assert line.get_xdata().tolist() == sizes.tolist()
            assert line.get_ydata().tolist() == [(k + 1) / len(sizes) for k in range(len(sizes))]
        assert axes.lines[3].get_xdata() == [1e-4, 1e-4]
    assert not figure.axes[3].axison


def test_loosening_shows_medians():
    axes = DRAWN["loosening"]().axes[0]
    factors, ratio = (line.get_ydata().tolist() for line in axes.lines)
    assert factors == pytest.approx([1.0, 0.85])
    assert ratio == pytest.approx([0.95, 0.35])
