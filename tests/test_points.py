"""Figures carry the numbers that they draw."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import figures, model_figures, network_figures, networks, results
from dobrushin.compare import baseline_shares, share_by_layer
from dobrushin.points import points_of


@st.composite
def verdicts(draw):
    """Verdicts of a small made-up result, of three scopes and some layers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    layers, inputs = draw(st.integers(1, 4)), draw(st.integers(1, 30))
    index = pd.MultiIndex.from_product(
        [["content", "all", "head"], range(1, layers + 1), range(inputs)], names=["scope", "layer", "input"]
    )
    return pd.DataFrame({"holds": rng.random(len(index)) < rng.random()}, index=index).reset_index()


@settings(max_examples=8)
@given(verdicts())
def test_points_are_the_shares(table):
    points = points_of(figures.layers({"one": table, "two": table}))
    assert json.loads(json.dumps(points)) == points
    shares = share_by_layer(table)
    assert [panel["title"] for panel in points["panels"]] == ["one", "two"]
    for panel in points["panels"]:
        found = [point for series in panel["series"] for point in series["points"]]
        assert sorted(point["y"] for point in found) == sorted(shares["share"])
        assert sorted(tuple(p["interval"]) for p in found) == sorted(zip(shares["low"], shares["high"], strict=True))
        for row in shares.itertuples():
            assert any(f"layer {row.layer}: {row.holds}/{row.total} " in point["words"] for point in found)


def test_baseline_has_every_law_and_size():
    table, _ = results.read("random_baseline")
    points = points_of(figures.baseline(table))
    shares = baseline_shares(table)
    for panel in points["panels"]:
        assert sum(len(series["points"]) for series in panel["series"]) == len(shares)
        assert [curve["label"] for curve in panel["curves"]] == ["Gaussian sign rule"]
        assert [band["label"] for band in panel["bands"]] == ["the paper's range"]
        assert sorted(guide["at"] for guide in panel["guides"]) == [0.25, 0.5]


@pytest.mark.parametrize("figure", [figures.square(11), figures.heat_map(np.eye(3))])
def test_a_picture_without_points_has_none(figure):
    assert points_of(figure) is None


@pytest.fixture(scope="module")
def trained():
    baseline, _ = results.read("random_baseline")
    return [one for one in networks.networks() if one.config == "california-3"], baseline


def test_learning_has_every_epoch_with_the_spread_of_the_seeds(trained):
    ours, baseline = trained
    (panel,) = points_of(network_figures.training(ours, baseline))["panels"]
    table = networks.learning(ours)
    assert [series["label"] for series in panel["series"]] == [f"block {k}" for k in sorted(table["block"].unique())]
    assert [(guide["along"], guide["label"]) for guide in panel["guides"]] == [("x", "random matrices")]
    for block, series in enumerate(panel["series"], start=1):
        for point in series["points"]:
            shares = table.loc[(table["block"] == block) & (table["epoch"] == point["x"]), "share"]
            assert point["interval"] == [shares.min(), shares.max()]
            assert point["y"] == pytest.approx(shares.mean())
            assert f"epoch {point['x']:.0f}: " in point["words"]


def test_spread_has_every_seed_once_a_scope(trained):
    ours, baseline = trained
    shares, scores = points_of(network_figures.spread(ours, baseline))["panels"]
    here = [p["y"] for series in shares["series"] if series["label"] == "a seed, here" for p in series["points"]]
    assert sorted(here) == sorted(one.share(scope) for one in ours for scope in ("content", "all"))
    found = [p["x"] for series in scores["series"] if series["label"] == "a seed, here" for p in series["points"]]
    assert sorted(found) == sorted(one.score for one in ours)


@settings(max_examples=5)
@given(st.integers(0, 2**32))
def test_intervals_along_x(seed):
    rng = np.random.default_rng(seed)
    pairs = pd.DataFrame(
        [
            {"model": model, "weights": weights, "scope": scope, "share": x, "low": x / 2, "high": (1 + x) / 2}
            for model in ("one", "two") for weights in ("untrained", "derivative")
            for scope in ("content tokens", "all tokens", "heads") for x in [rng.random()]
        ]
    )  # fmt: skip
    panels = points_of(model_figures.training(pairs, 0.25))["panels"]
    for panel, (_, rows) in zip(panels, pairs.groupby("scope", sort=False), strict=True):
        assert all(series["across"] for series in panel["series"])
        points = [p for series in panel["series"] for p in series["points"]]
        assert sorted(p["x"] for p in points) == sorted(rows["share"])
        assert all(p["interval"] == [p["x"] / 2, (1 + p["x"]) / 2] for p in points)
        assert panel["guides"] == [{"along": "y", "at": 0.25, "label": "random matrices"}]


def test_depth_has_a_point_a_layer():
    stack = np.random.default_rng(0).dirichlet(np.ones(5), (3, 5))
    (panel,) = points_of(figures.depth({"one": stack}))["panels"]
    assert [[p["x"] for p in series["points"]] for series in panel["series"]] == [[1, 2, 3]] * 3
    assert panel["curves"] == []
    rollout, bound = panel["series"][2]["points"], panel["series"][0]["points"]
    assert all(low["y"] <= high["y"] + 1e-12 for low, high in zip(rollout, bound, strict=True))


def test_shading_is_told_and_a_logarithmic_axis_has_ticks():
    stack = np.random.default_rng(1).dirichlet(np.ones(4), (2, 4))
    (panel,) = points_of(figures.depth({"one": stack}))["panels"]
    (area,) = panel["areas"]
    told = {point["y"] for series in panel["series"] for point in series["points"]}
    assert told <= {y for _, y in area} | {p["y"] for p in panel["series"][1]["points"]}
    assert len(panel["yticks"]) >= 1
    low, high = panel["ylim"]
    assert all(low <= place <= high and float(words) == pytest.approx(place) for place, words in panel["yticks"])
