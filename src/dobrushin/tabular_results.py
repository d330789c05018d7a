"""What a finished FT-Transformer run leaves behind: its scores, its verdicts, how it learned, and the baselines."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import torch

from dobrushin.fttransformer import measurable_blocks
from dobrushin.tabular import MEASURED_ROWS, TRACE_ROWS, Run, counts, judge, predict, score
from dobrushin.tabular_data import Prepared

__all__ = [
    "baselines",
    "baselines_provenance",
    "describe",
    "result",
    "training_provenance",
    "training_table",
    "weights_sha256",
]

KEPT = ["content", "all", "averaged"]
"""Scopes whose single verdicts are stored; heads and the variant without renormalising are only counted."""


def weights_sha256(weights: dict[str, torch.Tensor]) -> str:
    """SHA-256 over the weights' float32 values, little-endian, in the order of their names."""
    total = hashlib.sha256()
    for name in sorted(weights):
        total.update(np.ascontiguousarray(weights[name].numpy(), dtype="<f4").tobytes())
    return total.hexdigest()


def _data(prepared: Prepared) -> dict[str, Any]:
    table = prepared.table
    return {
        "table": table.title, "source": table.source, "split_sha256": table.split_sha256, "task": table.task,
        "partial": table.partial, "rows": {part: len(X) for part, X in table.X.items()}, "features": list(table.features),
        "prepared_with": f"scikit-learn {version('scikit-learn')}",
    }  # fmt: skip


def _metric(prepared: Prepared) -> str:
    return "RMSE" if prepared.table.task == "regression" else "accuracy"


def describe(run: Run) -> dict[str, Any]:
    """What every result of a run says of it."""
    return {
        "config": asdict(run.config), "seed": run.seed, "data": _data(run.prepared),
        "weights": {"sha256": weights_sha256(run.best), "trained": run.started, "commits": run.commits},
    }  # fmt: skip


def result(run: Run, *, started: str, command: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Score a finished run on the test part, measure it, and say how it was made.

    The table keeps single verdicts of the scopes in :data:`KEPT`, kappa and gap in float32; the provenance counts all.
    """
    prepared, last, X = run.prepared, run.config.blocks, run.prepared.X["test"][:MEASURED_ROWS]
    verdicts = judge(run.module, X)
    kept = verdicts.loc[verdicts["scope"].isin(KEPT)].drop(columns=["head", "margin", "n"]).reset_index(drop=True)
    kept["scope"] = kept["scope"].cat.remove_unused_categories()
    kept = kept.astype({"kappa": "float32", "gap": "float32", "i": "int8", "j": "int8"})
    return kept, {
        "kind": "tabular",
        "command": command,
        **describe(run),
        "metric": _metric(prepared),
        "score": {part: score(prepared, part, predict(run.module, prepared.X[part])) for part in ("val", "test")},
        "epochs": run.epoch,
        "best_epoch": run.best_epoch,
        "training_seconds": round(run.seconds, 1),
        "threads": 1,
        "measured": {
            "rows": len(X), "choice": "the first rows of the test part", "tokens": X.shape[1] + 1, "content_tokens": X.shape[1],
            "blocks": list(measurable_blocks(run.module)),
            "left out": {str(last): f"only the cls token asks in the last block: its attention is 1 x {X.shape[1] + 1}"},
        },
        "counts": counts(verdicts),
        "device": "cpu",
        "started": started,
    }  # fmt: skip


def training_table(run: Run) -> pd.DataFrame:
    """How a network learned, in long form: epoch, quantity, layer, value, matrices.

    Quantities are ``loss`` and ``validation`` (layer 0, no matrices) and the scopes of the verdicts along training,
    whose value counts the matrices that hold.
    """
    rows = [
        {"epoch": epoch, "quantity": name, "layer": 0, "value": value, "matrices": 0}
        for epoch, history in enumerate(run.history, start=1)
        for name, value in history.items()
    ]
    rows += [
        {"epoch": t["epoch"], "quantity": t["scope"], "layer": t["layer"], "value": float(t["holds"]), "matrices": t["matrices"]}
        for t in run.trace
    ]
    return pd.DataFrame(rows).astype({"epoch": "int16", "layer": "int16", "matrices": "int32"})


def training_provenance(run: Run, *, started: str, command: str) -> dict[str, Any]:
    """What a result of :func:`training_table` must say of how it was made."""
    return {
        "kind": "tabular-training", "command": command, **describe(run),
        "measured": {"rows": min(TRACE_ROWS, len(run.prepared.X["val"])), "choice": "the first rows of the validation part"},
        "device": "cpu", "started": started,
    }  # fmt: skip


def baselines_provenance(prepared: Prepared, seed: int) -> dict[str, Any]:
    """What a result of :func:`baselines` must say of how it was made."""
    return {"kind": "tabular-baselines", "data": _data(prepared), "metric": _metric(prepared), "seed": seed, "device": "cpu"}


def baselines(prepared: Prepared, seeds: tuple[int, ...] = (0, 1, 2)) -> pd.DataFrame:
    """Test scores of gradient boosting and of a linear model, by scikit-learn with its default settings.

    Boosting sees the raw features, the linear model standardised ones (``linear``) and those that FT-Transformer
    sees (``linear_quantile``).
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression, LogisticRegression
    from sklearn.preprocessing import StandardScaler

    regression = prepared.table.task == "regression"
    boosting = HistGradientBoostingRegressor if regression else HistGradientBoostingClassifier
    raw, prepared_X, y = prepared.table.X, prepared.X, prepared.y
    scaled = StandardScaler().fit(raw["train"])

    def scored(model: Any, seed: int, fit: Any, train: Any, test: Any) -> dict[str, Any]:
        predicted = fit.fit(train, y["train"]).predict(test)
        return {"model": model, "seed": seed, "score": score(prepared, "test", predicted if regression else predicted - 0.5)}

    def linear() -> Any:
        return LinearRegression() if regression else LogisticRegression(max_iter=1000)

    rows = [scored("boosting", seed, boosting(random_state=seed), raw["train"], raw["test"]) for seed in seeds]
    rows.append(scored("linear", 0, linear(), scaled.transform(raw["train"]), scaled.transform(raw["test"])))
    rows.append(scored("linear_quantile", 0, linear(), prepared_X["train"], prepared_X["test"]))
    return pd.DataFrame(rows)
