"""The committed networks are what their provenance says, and the tables made of them add up."""

import dataclasses
import json
import os
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from dobrushin import networks, results, tabular_data
from dobrushin.compare import paper
from dobrushin.networks import COLUMNS, compare_networks, count_interval, expectations, interval
from dobrushin.tabular import CONFIGS, MEASURED_ROWS, TRACE_ROWS

COMMITTED = networks.networks()
VARIANTS = sorted(path.stem for path in results.RESULTS.glob("ftt_*_variants.json"))
each = pytest.mark.parametrize("one", COMMITTED, ids=lambda one: f"{one.config}-{one.seed}")


def test_the_papers_configurations_on_california_have_three_seeds_and_one_has_ten():
    seeds = {config: [one.seed for one in COMMITTED if one.config == config] for config in CONFIGS}
    assert seeds["california-3"][:3] == seeds["california-6"][:3] == [0, 1, 2]
    assert not seeds["higgs-3"]  # its training rows were not at hand: the page must not show a number there


@each
def test_counts_are_those_of_the_stored_verdicts(one):
    table, counts = one.table, pd.DataFrame(one.how["counts"])
    assert one.how["config"] == asdict(CONFIGS[one.config])
    blocks = list(range(1, CONFIGS[one.config].blocks))
    assert one.how["measured"]["blocks"] == blocks
    for (scope, layer), rows in table.groupby(["scope", "layer"], observed=True):
        counted = counts[(counts["scope"] == scope) & (counts["layer"] == layer)].iloc[0]
        assert (counted["matrices"], counted["holds"], counted["fragile"]) == (
            len(rows), rows["holds"].sum(), rows["fragile"].sum(),
        )  # fmt: skip
        assert counted["matrices"] == (1 if scope == "averaged" else MEASURED_ROWS)
        assert counted["median_kappa"] == pytest.approx(rows["kappa"].median(), rel=1e-6)  # stored in float32
        gaps = rows.loc[~rows["holds"], "gap"]
        assert np.isnan(counted["median_gap"]) if gaps.empty else counted["median_gap"] == pytest.approx(gaps.median(), rel=1e-6)
    assert set(counts["scope"]) == {"content", "content_raw", "all", "head", "averaged"}
    assert sorted(set(counts["layer"])) == blocks  # never the last block


@each
def test_verdicts_obey_the_theorem(one):
    table = one.table
    assert ((table["gap"] == 0) == table["holds"]).all()
    assert table["kappa"].between(0, 1).all()
    assert (table["gap"] <= table["kappa"] * (1 + 1e-6)).all()  # no deficit exceeds its pair's distance; stored in float32
    tokens = np.where(table["scope"] == "all", one.how["measured"]["tokens"], one.how["measured"]["content_tokens"])
    assert ((table["i"] >= 0) & (table["i"] < table["j"]) & (table["j"] < tokens)).all()


@each
def test_training_stopped_by_the_rule_and_the_score_is_of_the_best_epoch(one):
    validation = one.learned[one.learned["quantity"] == "validation"].set_index("epoch")["value"]
    best = validation.idxmin() if one.how["metric"] == "RMSE" else validation.idxmax()
    assert one.how["best_epoch"] == best
    assert one.how["epochs"] == len(validation) == best + CONFIGS[one.config].patience + 1
    assert one.how["score"]["val"] == pytest.approx(validation[best], rel=1e-12)
    traced = one.learned[one.learned["matrices"] > 1]
    assert traced["epoch"].min() == 0  # the untrained network
    assert set(traced.loc[traced["quantity"] == "content", "matrices"]) == {TRACE_ROWS}
    assert (traced["value"] <= traced["matrices"]).all()


@each
def test_a_partial_table_is_marked(one):
    assert one.how["data"]["partial"] == (one.config == "higgs-3-partial")
    assert all(len(commit) == 40 for commit in (one.how["commit"], *one.how["weights"]["commits"]))  # no uncommitted changes
    assert one.how["weights"]["sha256"] != COMMITTED[COMMITTED.index(one) - 1].how["weights"]["sha256"]


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_are_of_the_committed_networks(name):
    table, how = results.read(name)
    config = how["networks"][0]["config"]["name"]
    ours = {one.seed: one for one in COMMITTED if one.config == config}
    assert sorted(ours) == sorted(set(table["seed"])) == sorted(network["seed"] for network in how["networks"])
    for network in how["networks"]:
        assert network["weights"] == ours[network["seed"]].how["weights"]
    base = table[table["variant"] == "base"].set_index(["column", "seed", "layer"])["holds"]
    for seed, one in ours.items():
        for layer in one.how["measured"]["blocks"]:
            for column, scope in (("features", "content"), ("all", "all"), ("averaged", "averaged")):
                assert base[column, seed, layer] == one.count(scope, layer)[0]
    shares = networks.dominance(config).set_index("block")
    sums = table[(table["variant"] == "base") & (table["column"] == "pairs")].groupby("layer")[["holds", "matrices"]].sum()
    n, most = next(iter(ours.values())).how["measured"]["content_tokens"], sums["matrices"].iloc[0]
    assert most == len(ours) * MEASURED_ROWS * n * (n - 1) / 2
    assert list(shares["pairs"] * most) == pytest.approx(list(sums["holds"]))
    assert (2 * shares["directions"] - 1 <= shares["pairs"] + 1e-12).all()  # a mutual pair has both directions
    assert (shares["pairs"] <= shares["directions"] + 1e-12).all()
    shown = networks.variants(config)
    assert list(shown["Variant"]) == list(how["variants"].values())


@pytest.mark.skipif(
    not os.environ.get(tabular_data.DATA_VARIABLE),
    reason=f"needs the tables: set {tabular_data.DATA_VARIABLE} to a folder with california/*.npz and higgs/*.npz",
)
@pytest.mark.parametrize("name", ["california", "higgs-partial"])
def test_committed_networks_learned_from_the_tables_of_today(name):
    table = tabular_data.load(name)
    for one in COMMITTED:
        if one.how["config"]["table"] == name:
            assert one.how["data"]["split_sha256"] == table.split_sha256
            assert one.how["data"]["features"] == list(table.features)


def invented(config, seed, features, score):
    """A network with one block in which the given share of 1,000 rows satisfies the condition."""
    like = next(one for one in COMMITTED if one.config == "california-3")
    counts = [
        {"scope": scope, "layer": 1, "head": 0, "matrices": 1000, "holds": round(1000 * features)} for scope in ("content", "all")
    ]
    counts.append({"scope": "averaged", "layer": 1, "head": 0, "matrices": 1, "holds": 0})
    how = like.how | {"seed": seed, "config": like.how["config"] | {"name": config}, "counts": counts, "score": {"test": score}}
    return dataclasses.replace(like, how=how)


def test_the_verdict_follows_the_numbers():
    row = paper("table3").set_index("configuration").loc["california-3"]
    near = [
        invented("california-3", s, row["features_percent"] / 100 + d, 0.474 + d / 10) for s, d in enumerate((-0.01, 0, 0.01))
    ]
    found = expectations(near).set_index("quantity")
    assert found.loc["features", "verdict"] == "reproduced"
    assert found.loc["test RMSE, lowest of three", "verdict"] == "reproduced"
    assert found.loc["all", "verdict"] == "reproduced"
    assert found.loc["averaged, of 6", "verdict"] == "reproduced"  # none of 3: too few to contradict the paper's 2 of 6
    more = expectations([invented("california-3", s, 0.2, 0.474) for s in range(30)]).set_index("quantity")
    assert more.loc["averaged, of 6", "verdict"] == "differs"  # none of 30
    far = [invented("california-3", s, 0.9 + s / 1000, 0.6 + s / 1000) for s in range(30)]
    assert set(expectations(far)["verdict"]) == {"differs"}
    assert expectations(far[:1]).empty  # one seed says nothing of the spread


def test_table_3_shows_no_number_where_none_was_measured():
    table = compare_networks(COMMITTED)
    higgs = table[table["Configuration"] == "Higgs, 3 blocks"]
    assert list(higgs["From"]) == ["paper (Table 3)", "here"]
    assert higgs.iloc[1]["Verdict"] == "not measured yet: dobrushin train higgs-3 --seed 0"
    assert (higgs.iloc[1][["Test score", *COLUMNS.values()]] == "").all()
    partial = table[table["Configuration"].str.contains("partial")]
    assert set(partial["Verdict"]) <= {"not the paper's training rows"}
    first = table[table["From"] == "here, seeds 0–2"].iloc[0]
    three = [one for one in COMMITTED if one.config == "california-3"][:3]
    content, averaged = (
        pd.concat([one.table.loc[one.table["scope"] == scope, "holds"] for one in three]) for scope in ("content", "averaged")
    )
    assert first["Features"] == f"{100 * content.mean():.1f} %"
    assert (first["Averaged"], len(averaged)) == (f"{averaged.sum()}/6", 6)


def test_baselines_stand_beside_the_papers_and_say_what_is_missing():
    table = networks.compare_baselines().set_index(["Table", "Model"])
    for (name, model), row in table.iterrows():
        scored = [cell for cell in row["Here"].split(", ") if cell]
        if row["Verdict"] in ("reproduced", "differs"):
            assert (row["Verdict"] == "reproduced") == (row["Paper"] in scored), (name, model)
        elif row["Verdict"].startswith("not measured yet: dobrushin train"):
            assert row["Paper"]
            assert not scored
        else:
            assert (row["Verdict"], row["Paper"]) == ("partial training data", "")
    assert table.loc[("Higgs", "gradient boosting"), "Verdict"] == "not measured yet: dobrushin train higgs-baselines"
    scores, _ = results.read("ftt_california-baselines")
    ours = [f"{score:.3f}" for score in scores.loc[scores["model"] == "boosting", "score"]]
    assert table.loc[("California Housing", "gradient boosting"), "Here"] == ", ".join(ours)


def test_an_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(2000):
        low, high = interval(rng.normal(3, 2, 5).tolist(), of=3)
        covered += low <= rng.normal(3, 2, 3).mean() <= high
    assert covered / 2000 == pytest.approx(0.95, abs=0.02)  # four standard errors
    with pytest.raises(ValueError, match="1 value; expected at least 2"):
        interval([1.0])


@pytest.mark.parametrize(("p", "of", "further"), [(0.05, 15, 15), (0.3, 16, 6), (0.6, 40, 10)])
def test_an_interval_of_counts_covers_at_least_as_often_as_it_says(p, of, further):
    """The probability that it covers, exactly, from the two binomial laws."""
    law = binom.pmf(np.arange(further + 1), further, p)
    covered = sum(
        binom.pmf(holds, of, p) * law[low : high + 1].sum()
        for holds in range(of + 1)
        for low, high in [count_interval(holds, of, further)]
    )
    assert 0.95 <= covered <= 1


@settings(max_examples=50)
@given(st.sets(st.integers(0, 30), min_size=1, max_size=12))
def test_seeds_in_words_name_each_seed_once(seeds):
    near = [invented("california-3", seed, 0.5, 0.5) for seed in seeds]
    text = networks._seeds(near).split(" ", 1)[1]
    named = set()
    for part in text.split(", "):
        low, _, high = part.partition("–")
        named |= set(range(int(low), int(high or low) + 1))
    assert named == seeds


def test_results_of_different_weights_are_refused(tmp_path):
    one = COMMITTED[0]
    name = f"ftt_{one.config}_seed{one.seed}"
    for suffix in ("", "_training"):
        for ending in (".json", ".parquet"):
            (tmp_path / f"{name}{suffix}{ending}").write_bytes((results.RESULTS / f"{name}{suffix}{ending}").read_bytes())
    assert len(networks.networks(tmp_path)) == 1
    path = tmp_path / f"{name}_training.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"weights": {"sha256": "0"}}))
    with pytest.raises(ValueError, match="of different weights; measure the network again"):
        networks.networks(tmp_path)
