"""Measuring a model: how often its attention satisfies the equality condition.

One row of the table is a verdict about one matrix, at one layer:

=================  ===================================================================================
scope              the matrix
=================  ===================================================================================
``content``        the input's attention averaged over heads, restricted to content tokens, renormalised
``content_raw``    the same without renormalising (sensitivity check)
``all``            the input's attention averaged over heads, all tokens
``head``           one head's attention, restricted to content tokens, renormalised
``averaged``       the mean over inputs of the head-averaged attention, restricted, renormalised
=================  ===================================================================================

The paper's columns are shares of rows that hold: per input (content, all), over head-input-layer triples (head),
and the number of layers (averaged).
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from tqdm import tqdm

from dobrushin.attention import catching_attention
from dobrushin.equality import Equality, equality
from dobrushin.inputs import Sequences
from dobrushin.models import Model
from dobrushin.stochastic import check_stochastic, restrict

__all__ = ["MODEL_ROUNDING", "SCOPES", "head_mean", "measure", "provenance", "summary"]

SCOPES = ("content", "content_raw", "all", "head", "averaged")

MODEL_ROUNDING = 2.0**-13
"""Relative error assumed of an attention weight computed in float32, for `fragile`.

Rounding adds up over a model's layers: against a run in float64, single weights of MiniLM differ by up to 4e-5
(tests/test_measure.py); renormalising a row doubles that at most."""


def head_mean(attention: Any) -> Float[np.ndarray, "inputs n n"]:
    """Mean over heads, in float64, of attention of shape ``(inputs, heads, n, n)``, checked to be row-stochastic."""
    return check_stochastic(attention).mean(axis=1)


def measure(model: Model, inputs: Sequences, *, batch_size: int = 8, progress: bool = True) -> pd.DataFrame:
    """Judge every attention matrix of a model on all inputs.

    A layer's attention is judged and dropped before the next layer runs.

    Args:
        model: from :func:`dobrushin.models.load`.
        inputs: from :func:`dobrushin.inputs.sequences`.
        batch_size: inputs per call of the model; verdicts are per input.
        progress: show a progress bar.

    Returns:
        A table with the columns scope, input (from 0; -1 for ``averaged``), layer (from 1), head (from 1; 0 where
        heads are averaged), n, kappa, gap, margin, holds, fragile, i and j (the pair).
    """
    import torch

    keep = np.flatnonzero(inputs.content)
    parts: list[pd.DataFrame] = []
    totals: dict[int, Float[np.ndarray, "n n"]] = {}

    def judge(first: int, layer: int, attention: Any) -> None:
        heads = check_stochastic(attention)
        mean = heads.mean(axis=1)
        numbers = np.arange(first, first + len(mean))
        content = restrict(mean, keep)
        for scope, matrices in (("content", content), ("all", mean)):
            parts.append(_rows(scope, layer, numbers, 0, equality(matrices, rounding=MODEL_ROUNDING)))
        raw = equality(restrict(mean, keep, renormalize=False), substochastic=True, rounding=MODEL_ROUNDING)
        parts.append(_rows("content_raw", layer, numbers, 0, raw))
        each = equality(restrict(heads, keep), rounding=MODEL_ROUNDING)
        parts.append(_rows("head", layer, numbers[:, None], np.arange(1, heads.shape[1] + 1), each))
        totals[layer] = totals.get(layer, 0.0) + mean.sum(axis=0)

    bar = tqdm(total=len(inputs), desc=model.spec.title, unit="input", disable=not progress)
    with torch.inference_mode(), bar:
        for first in range(0, len(inputs), batch_size):
            ids = torch.from_numpy(inputs.token_ids[first : first + batch_size])
            with catching_attention(model.module, partial(judge, first)):
                model.module(input_ids=ids, attention_mask=torch.ones_like(ids))
            bar.update(len(ids))

    for layer, total in totals.items():
        verdict = equality(restrict(total / len(inputs), keep)[None], rounding=MODEL_ROUNDING)
        parts.append(_rows("averaged", layer, np.array([-1]), 0, verdict))
    table = pd.concat(parts, ignore_index=True)
    table["n"] = np.where(table["scope"] == "all", len(inputs.content), len(keep)).astype(np.int16)
    table["scope"] = pd.Categorical(table["scope"], SCOPES)
    return table.sort_values(["scope", "layer", "input", "head"], ignore_index=True)


def _rows(scope: str, layer: int, inputs: Any, heads: Any, verdicts: Equality) -> pd.DataFrame:
    shape = np.shape(verdicts.kappa)
    flat: dict[str, np.ndarray] = {
        "input": np.broadcast_to(inputs, shape).astype(np.int32),
        "head": np.broadcast_to(heads, shape).astype(np.int16),
        **{name: np.asarray(getattr(verdicts, name)) for name in ("kappa", "gap", "margin", "holds", "fragile")},
        "i": np.asarray(verdicts.pair)[..., 0].astype(np.int16),
        "j": np.asarray(verdicts.pair)[..., 1].astype(np.int16),
    }
    return pd.DataFrame({"scope": scope, "layer": np.int16(layer), **{k: v.ravel() for k, v in flat.items()}})


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Verdicts per scope: how many matrices, how many satisfy the condition, their share, how many are fragile."""
    grouped = table.groupby("scope", observed=True)["holds"]
    counts = pd.DataFrame({"matrices": grouped.size(), "holds": grouped.sum().astype(int)})
    counts["share"] = counts["holds"] / counts["matrices"]
    counts["fragile"] = table.groupby("scope", observed=True)["fragile"].sum().astype(int)
    return counts


def provenance(model: Model, inputs: Sequences, *, started: str, command: str) -> dict[str, Any]:
    """What a result must say of how it was made; :func:`dobrushin.results.write` adds the rest."""
    parameter = next(model.module.parameters())
    return {
        "kind": "measurement",
        "command": command,
        "model": {
            "name": model.spec.name,
            "title": model.spec.title,
            "checkpoint": model.spec.checkpoint,
            "package": f"{model.spec.package.replace('_', '-')} {version(model.spec.package)}",
            "weights_sha256": model.weights_sha256,
            "status": model.spec.status,
            "dtype": str(parameter.dtype).removeprefix("torch."),
        },
        "inputs": {
            "text": inputs.text.name,
            "sha256": inputs.text.sha256,
            "number": len(inputs),
            "tokens": len(inputs.content),
            "content_tokens": int(inputs.content.sum()),
            "choice": "the first windows of the text, consecutive, without overlap",
        },
        "device": str(parameter.device),
        "seed": None,
        "started": started,
    }
