"""The table of every share: nothing lost, nothing added, and every row of ours can be traced."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pandas as pd
import pytest

from dobrushin import results
from dobrushin.catalogue import COLUMNS, catalogue
from dobrushin.compare import paper
from dobrushin.measure import VERDICTS
from dobrushin.random import wilson_interval


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return catalogue()


def test_our_shares_are_those_of_the_results(table):
    for name, rows in table[table["result"].notna()].groupby("result"):
        stored, how = results.read(name)
        assert (rows["command"] == how["command"]).all()
        assert (rows["commit"] == how["commit"]).all()
        if "scope" in stored:
            counts = stored[stored["scope"].isin(VERDICTS)].groupby("scope", observed=True)["holds"].agg(["sum", "size"])
            assert rows.set_index("scope")[["holds", "total"]].to_dict("index") == {
                scope: {"holds": row["sum"], "total": row["size"]} for scope, row in counts.iterrows()
            }
        else:
            assert sorted(rows["holds"]) == sorted(stored["holds"])


def test_every_result_with_verdicts_is_there(table):
    kinds = {path.stem: json.loads(path.read_text())["kind"] for path in results.RESULTS.glob("*.json")}
    expected = {name for name, kind in kinds.items() if kind in ("measurement", "tabular", "baseline")}
    assert set(table["result"].dropna()) == expected


def test_the_papers_rows_are_those_of_its_tables(table):
    said = table[table["source"].str.startswith("paper")]
    assert said["result"].isna().all()
    first = said[said["source"].str.contains("Table 1|abstract") & (said["scope"] != "random")]
    assert len(first) == len(paper("table1"))
    given = paper("table1")["percent"].dropna()
    assert np.isin(given.round(6), (100 * first["share"].dropna()).round(6)).all()
    assert len(said[said["source"] == "paper, Table 3"]) == 3 * len(paper("table3"))


def test_a_paper_model_is_measured_with_its_checkpoint_or_said_not_to_be(table):
    missing = table[table["words"] == "not measured yet"]
    assert missing["share"].isna().all()
    assert all(shlex.split(command)[:2] == ["dobrushin", "measure"] for command in missing["command"])
    done = {
        how["model"]["name"]
        for path in results.RESULTS.glob("*.json")
        if (how := json.loads(path.read_text()))["kind"] == "measurement" and how["model"]["status"] == "paper's checkpoint"
    }
    named = {shlex.split(command)[2] for command in missing["command"]}
    assert named | done >= set(paper("table1")["model"])
    assert not named & done


def test_intervals_hold_the_share_and_columns_are_described(table):
    assert list(table.columns) == list(COLUMNS)
    ours = table[table["total"].notna() & (table["source"] == "here")]
    for row in ours.itertuples():
        assert (row.low, row.high) == wilson_interval(int(row.holds), int(row.total))
        assert row.low <= row.share == row.holds / row.total <= row.high


def test_a_folder_without_results_gives_the_papers_rows(tmp_path):
    assert catalogue(tmp_path)["result"].isna().all()


def test_it_survives_csv_and_parquet(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    assert len(pd.read_parquet(tmp_path / "t.parquet")) == len(pd.read_csv(tmp_path / "t.csv")) == len(table)
