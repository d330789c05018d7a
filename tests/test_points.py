"""Figures carry the numbers that they draw."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import figures, results
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
        assert sorted(panel["guides"]) == [0.25, 0.5]


@pytest.mark.parametrize("figure", [figures.square(11), figures.heat_map(np.eye(3))])
def test_a_picture_without_points_has_none(figure):
    assert points_of(figure) is None
