"""The tables are the right ones or refused, and prepared as the authors prepare them."""

import os
import urllib.error
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.preprocessing import QuantileTransformer

from dobrushin import tabular_data
from dobrushin.tabular_data import DATA_VARIABLE, Table, load, prepare

FOLDER = os.environ.get(DATA_VARIABLE)
needs_data = pytest.mark.skipif(
    not FOLDER, reason=f"needs the tables: set {DATA_VARIABLE} to a folder with california/california_housing.npz and higgs/*.npz"
)


def housing(folder, rng, **changes):
    """A file of the right form with random values; returns X and y."""
    X, y = rng.normal(size=(20640, 8)), rng.random(20640)
    path = folder / "california" / "california_housing.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **({"X": X, "y": y} | changes))
    return X, y, path


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_a_folder_gives_the_table_and_its_values_are_checked(tmp_path, rng, monkeypatch):
    X, y, _ = housing(tmp_path, rng)
    with pytest.raises(ValueError, match=r"other values than expected \(SHA-256 .*expected 34fc72e5.*whole copy"):
        load("california", tmp_path)
    monkeypatch.setattr(tabular_data, "_CALIFORNIA", tabular_data._digest(X, y))
    table = load("california", tmp_path)
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert load("california").split_sha256 == table.split_sha256
    assert {part: len(X) for part, X in table.X.items()} == {"train": 13209, "val": 3303, "test": 4128}
    rows = np.concatenate([table.X[part] for part in ("train", "val", "test")])
    assert np.array_equal(np.unique(rows, axis=0), np.unique(X.astype(np.float32), axis=0))  # a partition


@pytest.mark.parametrize("kept", [0, 1, 1000, 500_000])
def test_a_truncated_file_is_refused(tmp_path, rng, kept):
    *_, path = housing(tmp_path, rng)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"california_housing\.npz cannot be read as the table.*whole copy"):
        load("california", tmp_path)


def test_files_of_another_form_are_refused(tmp_path, rng):
    housing(tmp_path, rng, X=np.zeros((20640, 7)))
    with pytest.raises(ValueError, match=r"X has shape \(20640, 7\); expected \(20640, 8\)"):
        load("california", tmp_path)
    housing(tmp_path, rng, X=np.array([{}], dtype=object))  # a pickle, which may run code
    with pytest.raises(ValueError, match="cannot be read as the table"):
        load("california", tmp_path)
    *_, path = housing(tmp_path, rng)
    np.savez(path, X=np.zeros((20640, 8)))
    with pytest.raises(ValueError, match="y is not a file in the archive"):
        load("california", tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*california_housing\.npz"):
        load("california", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"there is no data folder .*nowhere; name another"):
        load("california", tmp_path / "nowhere")
    with pytest.raises(ValueError, match="table is 'adult'; expected one of california, higgs, higgs-partial"):
        load("adult")


def fail(*_, **__):
    raise urllib.error.URLError("no network")


@pytest.mark.parametrize(("name", "fetcher"), [("california", "fetch_california_housing"), ("higgs", "fetch_openml")])
def test_without_network_there_is_one_message_and_nothing_written(tmp_path, monkeypatch, capsys, name, fetcher):
    from dobrushin.cli import main

    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr(f"sklearn.datasets.{fetcher}", fail)
    monkeypatch.chdir(tmp_path)
    assert main(["train", f"{name}-3"]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert "could not be downloaded" in said[0]
    assert "--data FOLDER" in said[0]
    assert list(tmp_path.iterdir()) == []


def test_the_partial_table_says_that_it_needs_a_folder(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(FileNotFoundError, match="lie in a folder only"):
        load("higgs-partial")


def test_the_whole_higgs_table_on_random_rows(rng, monkeypatch, tmp_path):
    X = rng.normal(size=(98050, 28)).astype(np.float32)
    y = rng.integers(0, 2, 98050)
    X[5, 3] = np.nan  # the real table has a row with missing values
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: (X, y.astype(str).astype(object)))
    table = load("higgs")
    assert {part: len(X) for part, X in table.X.items()} == {"train": 62752, "val": 15688, "test": 19610}
    assert all(np.isfinite(X).all() for X in table.X.values())
    assert "is not the one of the authors' split" in table.source
    (tmp_path / "higgs").mkdir()
    np.savez(tmp_path / "higgs" / "higgs.npz", X=X, y=y)
    assert load("higgs", tmp_path).split_sha256 == table.split_sha256
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **_: (X[:-1], y[:-1]))
    with pytest.raises(ValueError, match=r"shape \(98049, 28\); expected \(98050, 28\)"):
        load("higgs")


@needs_data
def test_the_split_is_the_authors():
    with np.load(Path(FOLDER) / "california" / "california_housing.npz") as file:
        for part, rows in zip(("train", "val", "test"), tabular_data._split(20640), strict=True):
            assert np.array_equal(rows, file[part])
    table = load("higgs-partial", FOLDER)
    assert table.partial
    assert {part: len(X) for part, X in table.X.items()} == {"train": 25127, "val": 6282, "test": 19610}


def small(X, y, task="regression"):
    parts = {"train": slice(0, None, 2), "val": slice(1, None, 4), "test": slice(3, None, 4)}
    return Table(
        "small", "Small", task, tuple(map(str, range(X.shape[1]))),
        {part: X[rows] for part, rows in parts.items()}, {part: y[rows] for part, rows in parts.items()}, "random",
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(arrays(np.float32, (80, 3), elements=st.floats(-1000, 1000, width=32)), st.integers(0, 9))
def test_preparing_keeps_the_order_of_every_feature(X, seed):
    table = small(X, np.linspace(0, 1, 80, dtype=np.float32))
    prepared = prepare(table, seed)
    for part, raw in table.X.items():
        assert np.isfinite(prepared.X[part]).all()
        for before, after in zip(raw.T, prepared.X[part].T, strict=True):
            assert (np.diff(after[np.argsort(before, kind="stable")]) >= -1e-6).all()  # float32 of an increasing map
    assert np.array_equal(prepare(table, seed).X["test"], prepared.X["test"])


@pytest.mark.parametrize(("rows", "quantiles"), [(80, 10), (1200, 40), (70_000, 1000)])
def test_the_transform_is_fitted_as_the_authors_say(rows, quantiles, rng, monkeypatch):
    """On training rows with noise of standard deviation 1e-3 / max(sigma, 1e-3), with max(min(n / 30, 1000), 10) quantiles."""
    fit, seen = QuantileTransformer.fit, []

    def watched(self, X):
        seen.append((X, self.get_params()))
        return fit(self, X)

    monkeypatch.setattr(QuantileTransformer, "fit", watched)
    scale = np.array([1e-4, 0.5, 30])  # the first is below the least deviation
    X = (scale * rng.normal(size=(2 * rows, 3))).astype(np.float32)
    table = small(X, np.zeros(2 * rows, dtype=np.float32), "classification")
    prepare(table, 3)
    ((fitted, parameters),) = seen
    assert (parameters["n_quantiles"], parameters["output_distribution"], parameters["random_state"]) == (quantiles, "normal", 3)
    assert parameters["subsample"] >= rows  # every row counts
    noise = (fitted - table.X["train"].astype(np.float64)).std(axis=0)
    expected = 1e-3 / np.maximum(table.X["train"].astype(np.float64).std(axis=0), 1e-3)
    assert noise == pytest.approx(expected, rel=5 / np.sqrt(2 * rows))  # five standard errors


def test_the_target_is_standardised_only_where_it_is_a_number(rng):
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = (5 + 3 * rng.normal(size=400)).astype(np.float32)
    prepared = prepare(small(X, y), 0)
    assert prepared.y["train"].mean() == pytest.approx(0, abs=1e-6)
    assert prepared.y["train"].std() == pytest.approx(1, abs=1e-6)
    assert prepared.unit == pytest.approx(y[::2].std(), rel=1e-6)
    labels = (y > 5).astype(np.float32)
    assert np.array_equal(prepare(small(X, labels, "classification"), 0).y["test"], labels[3::4])
    assert (prepare(small(X, y), 0, noise=0.0).X["train"] != prepare(small(X, y), 0).X["train"]).any()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="test features of Small hold NaN"):
        prepare(small(X, y), 0)
