"""The paper's tables against plain loops over the rows of generated measurements."""

from __future__ import annotations

import math
import statistics
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dobrushin import tables

ROLES = ("[CLS]", "content", "[SEP]", "register")
AVERAGED = ("averaged", "averaged_all")


@st.composite
def measurements(draw):
    """A table of verdicts as `measure` makes it, in any order of its rows, with any scopes."""
    layers, inputs, heads = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scopes = draw(st.sets(st.sampled_from(["content", "content_raw", "all", "head", *AVERAGED]), min_size=1))
    rows = []
    for scope in scopes:
        places = [(-1, 0)] if scope in AVERAGED else [(k, h) for k in range(inputs) for h in range(heads)]
        for layer in range(1, layers + 1):
            for one, head in places:
                if scope in ("content", "content_raw", "all") and head:
                    continue
                holds, kappa = bool(rng.random() < 0.5), rng.uniform(0.1, 1)
                rows.append(
                    {"scope": scope, "layer": layer, "input": one, "head": head + 1 if scope == "head" else 0, "kappa": kappa,
                     "gap": 0.0 if holds else kappa * rng.uniform(0.01, 0.4), "holds": holds, "fragile": bool(rng.random() < 0.2),
                     "n": 8, "entrywise": rng.random(), "columnwise": rng.random(), "carrier": int(rng.integers(8)),
                     "role": str(rng.choice(ROLES)), "score": rng.random()}
                )  # fmt: skip
    for scope in scopes & {"content", "all"}:
        if rng.random() < 0.8:
            for one in range(inputs):
                rows.append(
                    rows[0] | {"scope": f"rollout_{scope}", "layer": layers, "input": one, "head": 0, "kappa": rng.random()}
                )
    table = pd.DataFrame(rows)
    table["role"] = table["role"].astype("category")
    return table.sample(frac=1, random_state=int(rng.integers(2**31))).reset_index(drop=True)


def of(table, scope) -> list[dict]:
    return [row for row in table.to_dict("records") if row["scope"] == scope]


@settings(max_examples=60)
@given(table=measurements())
def test_shares_count_the_rows_that_hold(table):
    row, verdicts = tables.shares(table), 0
    for scope in ("content", "content_raw", "all", "head", *AVERAGED):
        held = [r["holds"] for r in of(table, scope)]
        verdicts += sum(r["fragile"] for r in of(table, scope))
        if not held:
            assert scope not in row
        elif scope in AVERAGED:
            assert row[scope] == f"{sum(held)}/{len(held)}"
        else:
            assert row[scope] == pytest.approx(sum(held) / len(held), rel=1e-15)
    assert row["fragile"] == verdicts


@settings(max_examples=60)
@given(table=measurements(), scope=st.sampled_from(["content", "all", "head"]))
def test_failing_rows_are_counted_by_layer(table, scope):
    failing = Counter({r["layer"]: 0 for r in of(table, scope)})
    failing.update(r["layer"] for r in of(table, scope) if not r["holds"])
    assert tables.failing_by_layer(table, scope).to_dict() == dict(failing)


@settings(max_examples=60)
@given(table=measurements())
def test_carriers_are_those_of_the_mean_over_all_tokens(table):
    rows = of(table, "averaged_all")
    if not rows:
        if not of(table, "averaged"):
            with pytest.raises(ValueError, match="no averages"):
                tables.carriers(table)
        return
    row, special = tables.carriers(table), [r["role"] for r in rows if r["role"] != "content"]
    own = [r["score"] for r in rows if r["role"] == "content"]
    assert (row["layers"], row["special carrier"]) == (len(rows), len(special))
    assert row["max score"] == max(r["score"] for r in rows)
    median = row["median score, content carrier"]
    assert median == pytest.approx(statistics.median(own), rel=1e-15) if own else math.isnan(median)
    if special:
        name, count = row["modal special carrier"].rsplit(" ", 1)
        assert count == f"({max(Counter(special).values())}/{len(special)})"
        assert Counter(special)[name] == max(Counter(special).values())
    else:
        assert row["modal special carrier"] == "–"


@settings(max_examples=60)
@given(table=measurements())
def test_depth_multiplies_the_layers_of_each_input(table):
    expected = {}
    for scope in ("content", "all"):
        rolled = {r["input"]: r["kappa"] for r in of(table, f"rollout_{scope}")}
        for one in rolled:
            layers = [r for r in of(table, scope) if r["input"] == one]
            bound = math.prod((1 + r["kappa"]) / 2 for r in layers)
            expected[scope, one] = (bound, math.prod((1 + r["kappa"]) / 2 - r["gap"] for r in layers), rolled[one])
    if not expected:
        with pytest.raises(ValueError, match="no rollouts"):
            tables.depth(table)
        return
    found = {(r["scope"], r["input"]): (r["bound"], r["factors"], r["kappa"]) for r in tables.depth(table).to_dict("records")}
    assert found.keys() == expected.keys()
    for place, values in expected.items():
        assert found[place] == pytest.approx(values, rel=1e-14)


@settings(max_examples=60)
@given(table=measurements(), scope=st.sampled_from(["content", "all", "head"]))
def test_the_relative_gap_is_the_median_over_what_fails(table, scope):
    gaps = [r["gap"] / (r["kappa"] / 2) for r in of(table, scope) if not r["holds"]]
    found = tables.relative_gap(table, scope)
    assert found == pytest.approx(statistics.median(gaps), rel=1e-14) if gaps else math.isnan(found)
