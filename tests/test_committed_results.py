"""The numbers that are committed: each result says how it was made, obeys the mathematics, and is whole."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shlex
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dobrushin import LAWS, cli, results
from dobrushin.measure import SCOPES, VERDICTS
from dobrushin.models import REGISTRY

NAMES = sorted({path.stem for path in results.RESULTS.iterdir() if path.name != "README.md"})

EVERY = {"kind", "command", "started", "finished", "commit", "versions", "machine", "table"}
KEYS = {
    "measurement": {"model", "inputs", "device", "seed"},
    "baseline": {"seed"},
    "tabular": {"config", "data", "seed", "device", "metric", "score", "epochs", "best_epoch", "measured", "counts"},
    "tabular-training": {"config", "data", "seed", "device", "measured"},
    "tabular-baselines": {"data", "seed", "device", "metric"},
    "tabular-variants": {"networks", "device", "variants"},
    "tabular-matrices": {"networks", "device"},
}
MODEL = {"name", "title", "training", "checkpoint", "revision", "package", "weights_sha256", "status", "dtype", "parameters"}
INPUTS = {"number", "tokens", "content_tokens", "choice", "roles", "sha256"}
ROUNDING = 1e-9
"""More than what the rounding of attention rows moves a coefficient beyond 1, less than any digit that is shown."""


@functools.cache
def result(name: str) -> tuple[pd.DataFrame, dict]:
    return results.read(name)


def of_kind(*kinds: str) -> list[str]:
    return [name for name in NAMES if json.loads((results.RESULTS / f"{name}.json").read_text()).get("kind") in kinds]


def refuse(constant: str):
    raise ValueError(f"{constant} is no JSON")


# --- how it was made --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_result_is_a_table_and_its_provenance(name):
    table, how = result(name)  # which compares the hash
    json.loads((results.RESULTS / f"{name}.json").read_text(), parse_constant=refuse)
    assert EVERY | KEYS[how["kind"]] <= set(how)
    assert how["table"]["file"] == f"{name}.parquet"
    assert how["table"]["rows"] == len(table) > 0
    assert re.fullmatch("[0-9a-f]{40}", how["commit"]), "measure from a clean commit"
    started, finished = (datetime.fromisoformat(how[key]) for key in ("started", "finished"))
    assert started.utcoffset() == finished.utcoffset() == timedelta(0)
    assert started <= finished
    assert {"python", "dobrushin", "numpy", "torch"} <= set(how["versions"])
    assert {"system", "processor", "cores"} <= set(how["machine"])


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_a_result_is_understood(name):
    program, *words = shlex.split(result(name)[1]["command"])
    assert program == "dobrushin"
    cli._parser().parse_args(words)


@pytest.mark.parametrize("name", NAMES)
def test_no_result_names_a_place_on_the_machine_that_made_it(name):
    text = (results.RESULTS / f"{name}.json").read_text()
    assert not re.findall(r'"(?:/|~|[A-Za-z]:\\)[^"]*"', text)
    assert not re.findall(r"/(?:home|root|tmp|Users|work)/", text)


def test_the_commits_are_in_the_history():
    root = Path(__file__).parents[1]
    known = subprocess.run(["git", "rev-list", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    if known.returncode or (root / ".git" / "shallow").exists():
        pytest.skip("this is no clone with its whole history: git clone (or git fetch --unshallow)")
    commits = {result(name)[1]["commit"]: name for name in NAMES}
    assert not {name for commit, name in commits.items() if commit not in known.stdout.split()}


@pytest.mark.parametrize("name", of_kind("measurement"))
def test_a_measurement_says_of_which_weights_and_inputs(name):
    _, how = result(name)
    model, given = how["model"], how["inputs"]
    assert set(model) >= MODEL
    assert set(given) >= INPUTS
    assert bool(given.get("text")) != bool(given.get("images"))
    assert re.fullmatch("[0-9a-f]{64}", model["weights_sha256"])
    assert re.fullmatch("[0-9a-f]{64}", given["sha256"])
    assert model["status"] in ("paper's checkpoint", "derivative", "another model", "untrained")
    assert (how["seed"] is not None) == (model["status"] == "untrained"), "a seed draws the weights of an untrained model only"
    assert (model["status"] == "untrained") == name.endswith("untrained")
    assert model["dtype"] == "float32"
    assert sum(count for _, count in given["roles"]) == given["tokens"]
    assert sum(count for role, count in given["roles"] if role == "content") == given["content_tokens"]


def test_the_papers_checkpoints_alone_are_called_so():
    """By the registry, whose checkpoints are named by their hub, and not by what a result claims."""
    for name in of_kind("measurement"):
        model = result(name)[1]["model"]
        if model["status"] == "paper's checkpoint":
            assert REGISTRY[model["name"]].status == "paper's checkpoint"
            assert model["checkpoint"] == REGISTRY[model["name"]].checkpoint
            assert model["revision"] or model["package"]


# --- what it says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", of_kind("measurement", "tabular"))
def test_verdicts_obey_the_theorem(name):
    table, _ = result(name)
    assert table["kappa"].between(0, 1 + ROUNDING).all()
    assert (table["gap"] >= 0).all()
    assert ((table["gap"] == 0) == table["holds"]).all()
    assert (table["gap"] <= table["kappa"] + ROUNDING).all()  # a deficit is at most its pair's distance
    if "margin" in table:
        assert ((table["margin"] >= 0) == table["holds"]).all()
        finite = table[np.isfinite(table["margin"])]
        assert (finite["margin"].abs() <= finite["kappa"] + ROUNDING).all()
    assert (table["i"] >= 0).all()
    assert (table["i"] < table["j"]).all()


@pytest.mark.parametrize("name", of_kind("measurement"))
def test_a_measurement_has_every_input_layer_and_head_once(name):
    table, how = result(name)
    number, given = how["inputs"]["number"], how["inputs"]
    layers, heads = sorted(set(table["layer"])), table["head"].max()
    assert layers == list(range(1, len(layers) + 1))
    every = range(number)
    asked = cli._parser().parse_args(shlex.split(how["command"])[1:]).scopes
    assert set(table["scope"]) == set(asked or SCOPES)
    for scope in set(table["scope"]):
        rows = table[table["scope"] == scope]
        if scope.startswith("averaged"):
            expected = itertools.product([-1], layers, [0])
        elif scope.startswith("rollout"):
            expected = itertools.product(every, layers[-1:], [0])
        else:
            expected = itertools.product(every, layers, range(1, heads + 1) if scope == "head" else [0])
        assert sorted(zip(rows["input"], rows["layer"], rows["head"], strict=True)) == sorted(expected)
        tokens = given["tokens"] if scope in ("all", "averaged_all", "rollout_all") else given["content_tokens"]
        assert set(rows["n"]) == {tokens}
        assert (rows["j"] < tokens).all()


@pytest.mark.parametrize("name", of_kind("measurement"))
def test_bounds_and_scores_of_averages(name):
    table, _ = result(name)
    means = table[table["scope"].isin(["averaged", "averaged_all"])]
    assert (means["columnwise"] <= means["entrywise"] + ROUNDING).all()
    assert (means["kappa"] <= means["columnwise"] + 1e-6).all()  # rows of float32 attention sum to 1 within 1e-6
    assert means["score"].between(0, means["kappa"]).all()
    assert (means["carrier"] >= 0).all()
    assert (means["carrier"] < means["n"]).all()
    assert (means.loc[means["scope"] == "averaged", "role"] == "content").all()
    tops = means["score"] > 0  # then the carrier is one of the pair that attains kappa
    assert ((means["carrier"] == means["i"]) | (means["carrier"] == means["j"]) | ~tops).all()


@pytest.mark.parametrize("name", of_kind("measurement"))
def test_the_rollout_lies_below_its_factors_and_these_below_the_bound(name):
    table, _ = result(name)
    for scope in ("content", "all"):
        if f"rollout_{scope}" not in set(table["scope"]):
            continue
        rows = table[table["scope"] == scope]
        half = 0.5 * (1 + rows["kappa"])
        products = pd.DataFrame({"input": rows["input"], "bound": half, "factors": half - rows["gap"]}).groupby("input").prod()
        rolled = table[table["scope"] == f"rollout_{scope}"].set_index("input")["kappa"]
        assert (rolled <= products["factors"] + 1e-5).all()  # the layers' row sums add up
        assert (products["factors"] <= products["bound"] + ROUNDING).all()


@pytest.mark.parametrize("name", of_kind("tabular"))
def test_counts_beside_a_table_are_its_counts(name):
    table, how = result(name)
    for count in how["counts"]:
        rows = table[(table["scope"] == count["scope"]) & (table["layer"] == count["layer"])]
        if len(rows) and count["head"] == 0:
            assert (count["matrices"], count["holds"]) == (len(rows), int(rows["holds"].sum()))
            assert count["fragile"] == int(rows["fragile"].sum())
    assert {count["scope"] for count in how["counts"]} <= set(VERDICTS)
    assert all(0 <= count["holds"] <= count["matrices"] for count in how["counts"])


@pytest.mark.parametrize("name", of_kind("baseline"))
def test_the_baseline_has_enough_draws_of_every_law_and_size(name):
    table, _ = result(name)
    assert not table.duplicated(["law", "n"]).any()
    for law in LAWS:
        sizes = sorted(table.loc[table["law"] == law, "n"])
        assert (sizes[0], sizes[-1]) == (2, 256)
        assert sizes == sorted(table.loc[table["law"] == "dirichlet", "n"])
    assert (table["draws"] >= 10_000).all()
    assert table["holds"].between(0, table["draws"]).all()
    assert set(table["law"]) == set(LAWS)


# --- the paper's numbers ----------------------------------------------------------------------------------------


def printed(name: str) -> pd.DataFrame:
    return pd.read_csv(results.PAPER / f"{name}.csv", dtype=str)


def test_failing_inputs_add_up_to_what_table_1_leaves():
    content = printed("table1").query("scope == 'content'").dropna(subset=["holds"]).set_index("model")
    failing = printed("table4")
    sums = failing["failing"].astype(int).groupby(failing["model"]).sum()
    for model, cell in content.iterrows():
        assert int(cell["total"]) - int(cell["holds"]) == sums.get(model, 0)
        layers = printed("table1").query("scope == 'averaged'").set_index("model")["total"]
        assert int(cell["total"]) == 512 * int(layers[model])
    assert set(sums.index) <= set(content.index)
    assert set(failing["inputs"]) == {"512"}
    assert (failing["failing"].astype(int) <= 512).all()


def test_percentages_of_table_1_are_those_of_its_counts():
    both = printed("table1").dropna(subset=["holds", "percent"])
    assert len(both)
    for cell in both.to_dict("records"):
        digits = len(cell["percent"].partition(".")[2])
        assert round(100 * int(cell["holds"]) / int(cell["total"]), digits) == float(cell["percent"])


def test_tables_1_and_2_agree_on_the_layers():
    layers = printed("table1").query("scope == 'averaged'").set_index("model")["total"]
    for cell in printed("table2").to_dict("records"):
        assert cell["layers"] == layers[cell["model"]]
        assert int(cell["modal_layers"]) <= int(cell["special_carrier_layers"]) <= int(cell["layers"])


def test_table_3_is_ordered_and_its_last_block_is_left_out():
    for cell in printed("table3").to_dict("records"):
        assert float(cell["score_low"]) <= float(cell["score_high"])
        blocks = int(cell["configuration"].rpartition("-")[2])
        assert int(cell["averaged_total"]) == 3 * (blocks - 1)  # three seeds
        assert 0 <= int(cell["averaged_holds"]) <= int(cell["averaged_total"])


def test_every_table_of_the_paper_is_described_beside_it():
    described = (results.PAPER / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in results.PAPER.glob("*.csv")]
    assert sorted(re.findall(r"^\| `(\S+\.csv)` \|", described, flags=re.MULTILINE)) == sorted(files)
