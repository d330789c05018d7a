"""The tables FT-Transformer learns from: California Housing and Higgs, checked, split and prepared as its authors do.

===================  ===============================================================================
name                 rows
===================  ===============================================================================
``california``       California Housing (StatLib, as scikit-learn derives it): 20,640 rows, 8 features
``higgs``            OpenML "higgs" (id 23512, CC BY 4.0): 98,050 rows, 28 features
``higgs-partial``    its validation rows and further HIGGS rows for training, its true test rows
===================  ===============================================================================

A table comes from its official source, or from a folder that holds it as ``.npz``.  Either way its values must have
the SHA-256 noted here, taken over the float32 values that the authors store.

Source: Gorishniy et al. (2021), sections 4.2 and 4.3; their split is scikit-learn's ``train_test_split``, a fifth for
testing and a fifth of the rest for validation, ``random_state=0`` both times.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

__all__ = ["DATA_VARIABLE", "TABLES", "Prepared", "Table", "load", "prepare"]

DATA_VARIABLE = "DOBRUSHIN_DATA"
"""Environment variable that names the folder with the tables."""

PARTS = ("train", "val", "test")

_CALIFORNIA = "34fc72e53a6329a89a9ae792e92f37853cea98adfbc6feea28cc08dc06f68ca1"
_HIGGS_VALIDATION = "f4c7a6844d8f352dc860d375662751f93ee68f014773f2fdc8d99341670b5269"
_HIGGS_TEST = "7c6199baed53385f91e4b9655739f5ddf91b86d809de06333f662dff255184c5"
_HIGGS_EXTRA = "fce47d88af864e3674078dd4def50eb1ca0fabd870aa2b0828a77c4410b8d2d7"


@dataclass(frozen=True)
class Table:
    """A table split into ``train``, ``val`` and ``test``."""

    name: str
    title: str
    task: str
    """"regression" or "classification" (0 or 1)."""
    features: tuple[str, ...]
    X: dict[str, Float[np.ndarray, "_ features"]]
    y: dict[str, Float[np.ndarray, " _"]]
    source: str
    partial: bool = False
    """Whether these are not the rows that the paper's networks learned from."""
    split_sha256: str = field(init=False)
    """Over all values of all parts, in order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "split_sha256", _digest(*(a[part] for part in PARTS for a in (self.X, self.y))))


def _digest(*arrays: Any) -> str:
    """SHA-256 of the arrays' float32 values, little-endian, in C order."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return total.hexdigest()


def _read(path: Path, shapes: dict[str, tuple[int, ...]], sha256: str | None) -> list[np.ndarray]:
    """Arrays of an .npz file, in float32, checked; without a digest, their shapes only."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}; put the table there, or name no folder to use the official source")
    advice = "replace it by a whole copy, or name no folder to use the official source"
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = [file[name] for name in shapes]
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as the table ({error}); {advice}") from error
    for (name, shape), array in zip(shapes.items(), arrays, strict=True):
        if array.shape != shape:
            raise ValueError(f"{path}: {name} has shape {array.shape}; expected {shape}; {advice}")
    found = _digest(*arrays)
    if sha256 is not None and found != sha256:
        raise ValueError(f"{path} holds other values than expected (SHA-256 {found}, expected {sha256}); {advice}")
    return [array.astype(np.float32) for array in arrays]


def _official(what: str, fetch: Any) -> Any:
    """Call a scikit-learn fetcher, which checks what it downloads, and give one message if it fails."""
    try:
        return fetch()
    except (OSError, ValueError) as error:  # no network, a server's error, a wrong checksum
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise OSError(
            f"{what} could not be downloaded ({reason}); connect to the internet, or name a folder that holds it "
            f"(--data FOLDER, or the environment variable {DATA_VARIABLE})"
        ) from error


def _split(rows: int) -> list[Int[np.ndarray, " _"]]:
    from sklearn.model_selection import train_test_split

    rest, test = train_test_split(np.arange(rows), test_size=0.2, random_state=0)
    train, validation = train_test_split(rest, test_size=0.2, random_state=0)
    return [train, validation, test]


def _california(folder: Path | None) -> Table:
    from sklearn.datasets import fetch_california_housing

    if folder:
        path = folder / "california" / "california_housing.npz"
        X, y = _read(path, {"X": (20640, 8), "y": (20640,)}, _CALIFORNIA)
        source = "folder named by the user"
    else:
        X, y = _official("California Housing", lambda: fetch_california_housing(return_X_y=True, n_retries=1))
        X, y = X.astype(np.float32), y.astype(np.float32)
        source = "sklearn.datasets.fetch_california_housing"
        if _digest(X, y) != _CALIFORNIA:
            raise ValueError(f"{source} gave other values than expected (SHA-256 {_digest(X, y)}, expected {_CALIFORNIA})")
    features = ("MedInc", "HouseAge", "AveRooms", "AveBedrms", "Population", "AveOccup", "Latitude", "Longitude")
    parts = dict(zip(PARTS, _split(len(X)), strict=True))
    return Table(
        "california", "California Housing", "regression", features,
        {part: X[rows] for part, rows in parts.items()}, {part: y[rows] for part, rows in parts.items()}, source,
    )  # fmt: skip


_HIGGS_FEATURES = (
    "lepton_pT lepton_eta lepton_phi missing_energy_magnitude missing_energy_phi "
    + " ".join(f"jet_{k}_{what}" for k in (1, 2, 3, 4) for what in ("pt", "eta", "phi", "btag"))
    + " m_jj m_jjj m_lv m_jlv m_bb m_wbb m_wwbb"
)


def _higgs(folder: Path | None) -> Table:
    from sklearn.datasets import fetch_openml

    path = folder / "higgs" / "higgs.npz" if folder else None
    if path and path.exists():
        X, y = _read(path, {"X": (98050, 28), "y": (98050,)}, None)
        source = "folder named by the user"
    else:  # scikit-learn checks OpenML's checksum and keeps a copy
        X, y = _official(
            "Higgs (OpenML 23512)",
            lambda: fetch_openml(data_id=23512, return_X_y=True, as_frame=False, parser="liac-arff", n_retries=1),
        )
        source = "OpenML 23512"
    X, y = X.astype(np.float32), y.astype(np.float32)
    if X.shape != (98050, 28):
        raise ValueError(f"{source} gave a table of shape {X.shape}; expected (98050, 28)")
    train, validation, test = _split(len(X))
    X = np.where(np.isnan(X), np.nanmean(X[train], axis=0, dtype=np.float64).astype(np.float32), X)
    parts = dict(zip(PARTS, (train, validation, test), strict=True))
    authors = _digest(X[test], y[test]) == _HIGGS_TEST
    return Table(
        "higgs", "Higgs", "classification", tuple(_HIGGS_FEATURES.split()),
        {part: X[rows] for part, rows in parts.items()}, {part: y[rows] for part, rows in parts.items()},
        f"{source}; its test part {'is' if authors else 'is not'} the one of the authors' split",
    )  # fmt: skip


def _higgs_partial(folder: Path | None) -> Table:
    if not folder:
        raise FileNotFoundError(
            "the partial Higgs rows lie in a folder only; name it (--data FOLDER, or the environment variable "
            f"{DATA_VARIABLE}), or train higgs-3 on the whole table from OpenML"
        )
    path = folder / "higgs" / "higgs_small_val_test.npz"
    shapes = {"X_val": (15688, 28), "y_val": (15688,), "X_test": (19610, 28), "y_test": (19610,)}
    X_val, y_val, X_test, y_test = _read(path, shapes, _HIGGS_VALIDATION)
    X_more, y_more = _read(folder / "higgs" / "higgs_extra_train.npz", {"X": (15721, 28), "y": (15721,)}, _HIGGS_EXTRA)
    X, y = np.concatenate([X_val, X_more]), np.concatenate([y_val, y_more])

    from sklearn.model_selection import train_test_split

    train, validation = train_test_split(np.arange(len(X)), test_size=0.2, random_state=0)
    return Table(
        "higgs-partial", "Higgs, partial", "classification", tuple(_HIGGS_FEATURES.split()),
        {"train": X[train], "val": X[validation], "test": X_test}, {"train": y[train], "val": y[validation], "test": y_test},
        "folder named by the user", partial=True,
    )  # fmt: skip


TABLES = {"california": _california, "higgs": _higgs, "higgs-partial": _higgs_partial}


def load(name: str, folder: str | Path | None = None) -> Table:
    """Load a table, checked and split.

    Args:
        name: a key of :data:`TABLES`.
        folder: where its files lie, as ``california/california_housing.npz``, ``higgs/higgs_small_val_test.npz`` and
            ``higgs/higgs_extra_train.npz``; by default what :data:`DATA_VARIABLE` names, else the official source.

    Raises:
        ValueError: unknown name, or a file that is truncated or holds other values.
        OSError: no file, or no network.
    """
    if name not in TABLES:
        raise ValueError(f"table is {name!r}; expected one of {', '.join(TABLES)}")
    chosen = folder or os.environ.get(DATA_VARIABLE)
    if chosen and not Path(chosen).is_dir():
        raise FileNotFoundError(f"there is no data folder {chosen}; name another one, or none to use the official source")
    return TABLES[name](Path(chosen) if chosen else None)


@dataclass(frozen=True)
class Prepared:
    """What a network learns from: features near a standard normal law, the target standardised (regression)."""

    table: Table
    X: dict[str, Float[np.ndarray, "_ features"]]
    y: dict[str, Float[np.ndarray, " _"]]
    unit: float
    """Standard deviation of the training target; 1 for classes."""


def prepare(table: Table, seed: int, *, noise: float = 1e-3) -> Prepared:
    r"""Prepare features and target as the authors do.

    Every feature goes through a quantile transform to a normal law, fitted on training rows to which Gaussian noise of
    standard deviation :math:`10^{-3} / \max(\sigma_f, 10^{-3})` was added (it breaks ties); a regression target
    is standardised.

    Args:
        table: from :func:`load`.
        seed: of the noise, the run's.
        noise: the 10^-3 of the formula; 0 adds none.

    Raises:
        ValueError: features that are not finite.
    """
    from sklearn.preprocessing import QuantileTransformer

    for part, X in table.X.items():
        if not np.isfinite(X).all():
            raise ValueError(f"the {part} features of {table.title} hold NaN or infinite values; expected finite numbers")
    X_fit = table.X["train"]
    if noise > 0:
        deviation = noise / np.maximum(np.std(X_fit, axis=0, keepdims=True), noise)
        X_fit = X_fit + deviation * np.random.default_rng(seed).standard_normal(X_fit.shape)
    transform = QuantileTransformer(
        output_distribution="normal", n_quantiles=max(min(len(X_fit) // 30, 1000), 10), subsample=10**9, random_state=seed
    ).fit(X_fit)
    mean, unit = 0.0, 1.0
    if table.task == "regression":
        mean, unit = float(np.mean(table.y["train"], dtype=np.float64)), float(np.std(table.y["train"], dtype=np.float64))
    return Prepared(
        table,
        {part: transform.transform(X).astype(np.float32) for part, X in table.X.items()},
        {part: ((y - mean) / unit).astype(np.float32) for part, y in table.y.items()},
        unit,
    )
