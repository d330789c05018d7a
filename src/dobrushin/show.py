"""Single inputs to look at: their content matrices layer by layer, what is judged of them, and a page that shows both.

A *look* at an input is one row a layer: the verdict of :func:`dobrushin.equality.equality` about the attention averaged
over heads and restricted to content tokens, the four entries that decide it, and the matrix itself in 16-bit levels,
weight = ``largest`` × level / 65535, for drawing.  The verdict is about the matrix before it was rounded to levels.
"""

from __future__ import annotations

import base64
import html
import importlib.resources
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from dobrushin.attention import catching_attention
from dobrushin.equality import equality
from dobrushin.measure import MODEL_ROUNDING, head_mean
from dobrushin.models import Model, content_mask
from dobrushin.stochastic import restrict

__all__ = ["LEVELS", "describe", "head_means", "look", "looks", "page", "weights", "written"]

LEVELS = 65535
"""The level of a matrix's largest weight."""


def head_means(model: Model, inputs: Any, index: int) -> Float[np.ndarray, "layers n n"]:
    """Attention of one input, averaged over heads, of all layers and all tokens.

    Args:
        model: from :func:`dobrushin.models.load`.
        inputs: as for :func:`dobrushin.measure.measure`.
        index: which of the inputs, from 0.

    Raises:
        ValueError: as :func:`dobrushin.attention.catching_attention`.
    """
    import torch

    layers: list[np.ndarray] = []
    tokens = len(inputs.roles(index))
    with torch.inference_mode(), catching_attention(model.module, lambda _, a: layers.append(head_mean(a)[0]), tokens=tokens):
        model(inputs.batch(index, index + 1))
    return np.stack(layers)


def look(matrices: Float[np.ndarray, "layers n n"]) -> pd.DataFrame:
    """One row a layer: verdict, deciding entries, and the matrix in levels.

    Columns are layer (from 1), n, kappa, lazy_kappa, gap, margin, holds, fragile, i and j (the pair of the verdict), A_ii,
    A_ji, A_jj and A_ij, largest, and levels (little-endian 16-bit integers, row by row).

    Args:
        matrices: row-stochastic, of one input.

    Raises:
        ValueError: as :func:`dobrushin.equality.equality`.
    """
    verdicts = equality(matrices, rounding=MODEL_ROUNDING)
    table = pd.DataFrame({name: getattr(verdicts, name) for name in ("kappa", "lazy_kappa", "gap", "margin", "holds", "fragile")})
    table.insert(0, "layer", np.arange(1, len(table) + 1))
    table.insert(1, "n", matrices.shape[-1])
    i, j = np.asarray(verdicts.pair).T
    layers = np.arange(len(table))
    largest = matrices.max(axis=(1, 2))
    levels = np.rint(matrices / largest[:, None, None] * LEVELS).astype("<u2")
    return table.assign(
        i=i, j=j, A_ii=matrices[layers, i, i], A_ji=matrices[layers, j, i], A_jj=matrices[layers, j, j],
        A_ij=matrices[layers, i, j], largest=largest, levels=[one.tobytes() for one in levels],
    )  # fmt: skip


def looks(tables: Iterable[pd.DataFrame]) -> pd.DataFrame:
    """Looks at several inputs as one table, with the column example, from 0."""
    parts = [table.assign(example=k) for k, table in enumerate(tables)]
    table = pd.concat(parts, ignore_index=True)
    return table[["example", *parts[0].columns.drop("example")]]


def weights(row: Mapping[Any, Any]) -> Float[np.ndarray, "n n"]:
    """The matrix of one row of a look, off by at most largest / 131070 from the one that was judged."""
    return np.frombuffer(row["levels"], dtype="<u2").reshape(row["n"], row["n"]) * (row["largest"] / LEVELS)


def describe(model: Model, inputs: Any, index: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """An input's tokens as the viewer names them, with its picture if it is an image, and the look at it."""
    keep = np.flatnonzero(content_mask(inputs.roles(index)))
    table = look(restrict(head_means(model, inputs, index), keep))
    if model.takes == "images":
        side = math.isqrt(len(keep))
        names = [f"row {k // side + 1}, column {k % side + 1}" for k in range(len(keep))]
        seen = inputs.batch(index, index + 1)["pixel_values"][0]
        return {"kind": "patches", "label": f"image {index + 1}", "tokens": names, "picture": _picture(model, seen)}, table
    ids = inputs.token_ids[index][keep]
    words = [
        model.tokenizer.decode([int(k)]).strip() or token
        for k, token in zip(ids, model.tokenizer.convert_ids_to_tokens(ids), strict=True)
    ]
    return {"kind": "words", "label": model.tokenizer.decode(ids.tolist()), "tokens": words}, table


def _picture(model: Model, pixels: Any) -> str:
    """What the model saw, as the address of a JPEG."""
    from PIL import Image

    mean, std = (np.asarray(model.preprocessing[name])[:, None, None] for name in ("mean", "std"))
    colours = np.clip(np.asarray(pixels) * std + mean, 0, 1).transpose(1, 2, 0)
    file = io.BytesIO()
    Image.fromarray(np.rint(255 * colours).astype(np.uint8)).save(file, "JPEG", quality=88)
    return "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()


def written(example: Mapping[str, Any], table: pd.DataFrame) -> str:
    """An example and its look as JSON, as the viewer's script reads it: infinite margins are null, levels base64."""
    layers = []
    for row in table.drop(columns="example", errors="ignore").to_dict("records"):
        row["levels"] = base64.b64encode(row["levels"]).decode()
        row["margin"] = row["margin"] if math.isfinite(row["margin"]) else None
        layers.append(row)
    return _json({**example, "layers": layers})


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda x: x.item()).replace("<", "\\u003c")


def page(title: str, note: str, examples: Sequence[tuple[Mapping[str, Any], pd.DataFrame]]) -> str:
    """A page in one file that shows examples of one model, without anything from elsewhere.

    Args:
        title: of the page, and the model's name in its menu.
        note: what the model and the inputs are, in a sentence.
        examples: from :func:`describe`.
    """
    own = importlib.resources.files("dobrushin") / "viewer"
    parts = {name: (own / name).read_text(encoding="utf-8") for name in ("page.html", "viewer.css", "viewer.js")}
    keys = [f"example-{k}" for k in range(len(examples))]
    index = [{"title": title, "note": note, "examples": [
        {"key": key, "label": example["label"]} for key, (example, _) in zip(keys, examples, strict=True)
    ]}]  # fmt: skip
    data = [f"globalThis.DobrushinExamples = {_json(index)};"]
    data += [
        f"(globalThis.DobrushinLooks ??= {{}})[{_json(key)}] = {written(*one)};" for key, one in zip(keys, examples, strict=True)
    ]
    filled = parts["page.html"].replace("{{ title }}", html.escape(title)).replace("{{ css }}", parts["viewer.css"])
    return filled.replace("{{ data }}", "\n".join(data)).replace("{{ js }}", parts["viewer.js"])
