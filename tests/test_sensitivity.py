"""What stands beside the paper's columns, against counts by hand and laws of probability."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dobrushin import results, sensitivity
from dobrushin.results import Measurement
from dobrushin.tables import depth

FULL = {"content", "content_raw", "all", "head", "rollout_content"}
COMMITTED = [m for m in results.measurements() if set(m.table["scope"]) >= FULL]
each = pytest.mark.parametrize("one", COMMITTED, ids=lambda one: one.name)


def result(holds: np.ndarray, scope: str = "content") -> Measurement:
    """A result with these verdicts, of shape (layers, inputs)."""
    layer, which = np.indices(holds.shape)
    table = pd.DataFrame({"scope": scope, "layer": layer.ravel() + 1, "input": which.ravel(), "holds": holds.ravel()})
    return Measurement("generated", table, {"model": {"title": "generated", "status": "untrained"}, "inputs": {}})


@each
def test_the_restriction_is_counted_as_verdict_by_verdict(one):
    row = sensitivity.restriction([one]).iloc[0]
    normal = one.table[one.table["scope"] == "content"].set_index(["input", "layer"])["holds"].to_dict()
    raw = one.table[one.table["scope"] == "content_raw"].set_index(["input", "layer"])["holds"].to_dict()
    assert normal.keys() == raw.keys()
    assert row["Verdicts that differ"] == sum(normal[key] != raw[key] for key in normal)
    assert row["Renormalised"].startswith(f"{sum(normal.values())}/{len(normal)} ")
    assert row["As it is"].startswith(f"{sum(raw.values())}/{len(raw)} ")


@each
def test_failures_are_mended_or_stay(one):
    row = sensitivity.failures_with_special([one]).iloc[0]
    failing, total = map(int, row["Failures on all tokens"].split(" of "))
    both = one.table[one.table["scope"].isin(["content", "all"])].pivot(index=["layer", "input"], columns="scope", values="holds")
    assert (failing, total) == ((~both["all"]).sum(), len(both))
    assert row["Mended by the restriction"] == (~both["all"] & both["content"]).sum()
    assert row["through another pair"] <= row["Mended by the restriction"] <= failing
    assert row["Special token in the pair"] <= failing
    assert row["Failures on content tokens"] >= failing - row["Mended by the restriction"]


def test_pairs_and_mending_by_hand():
    # tokens: cls, three words; inputs 0 to 3 fail on all tokens except the last
    roles = [["cls", 1], ["content", 3]]
    rows = [("all", 0, False, 0, 2), ("all", 1, False, 1, 2), ("all", 2, False, 1, 3), ("all", 3, True, 0, 1)]
    # on words alone (numbered from 0): mended through another pair, through the same, not mended, worse
    rows += [("content", 0, True, 0, 1), ("content", 1, True, 0, 1), ("content", 2, False, 0, 2), ("content", 3, False, 0, 1)]
    table = pd.DataFrame(rows, columns=["scope", "input", "holds", "i", "j"]).assign(layer=1)
    how = {
        "model": {"title": "by hand", "status": "another model"},
        "inputs": {"number": 4, "tokens": 4, "text": "t", "roles": roles},
    }
    row = sensitivity.failures_with_special([Measurement("by hand", table, how)]).iloc[0]
    assert row["Special tokens"] == "1 of 4"
    assert row["Special token in the pair"] == 1
    assert row["Mended by the restriction"] == 2
    assert row["through another pair"] == 1
    assert row["Failures on content tokens"] == 2


@each
def test_the_depth_bound_is_the_median_of_what_single_inputs_give(one):
    rows = sensitivity.depth_bound([one]).set_index("Tokens")
    per_input = depth(one.table)
    for scope, of_scope in per_input.groupby("scope"):
        assert rows.loc[scope, "Depth bound"] == f"{np.median(of_scope['bound']):.3g}"
        assert rows.loc[scope, "κ of the rollout"] == f"{np.median(of_scope['kappa']):.3g}"
        lost = float(rows.loc[scope, "Lost in the layers"].removesuffix(" %")) / 100
        expected = ((of_scope["bound"] - of_scope["factors"]) / (of_scope["bound"] - of_scope["kappa"])).mean()
        assert lost == pytest.approx(expected, abs=6e-4)  # printed in tenths of a percent
        assert 0 <= lost <= 1


@given(st.integers(2, 20), st.integers(1, 40), st.integers(0, 2**32 - 1))
def test_independent_verdicts_have_dispersion_near_one_and_unanimous_ones_that_of_the_inputs(layers, inputs, seed):
    rng = np.random.default_rng(seed)
    independent = [result(rng.random((200, inputs)) < 0.3) for _ in range(3)]
    # chi-squared over 3 × 199 degrees of freedom: standard deviation sqrt(2 / 597) = 0.058
    assert sensitivity.dispersion(independent) == pytest.approx(1, abs=6 * 0.058)
    verdicts = np.repeat(rng.permutation([True, *[False] * (layers - 1)])[:, None], inputs, axis=1)
    assert sensitivity.dispersion([result(verdicts)]) == pytest.approx(inputs * layers / (layers - 1))


def test_networks_with_one_verdict_throughout_have_no_dispersion():
    with pytest.raises(ValueError, match="all 2 networks have one verdict throughout in scope 'content'"):
        sensitivity.dispersion([result(np.ones((3, 4), dtype=bool)), result(np.zeros((3, 4), dtype=bool))])
