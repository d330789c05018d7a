"""Make the site's small examples again, into ``data/examples``: attention of named models on freely usable inputs.

python tools/examples.py [sentence | sentences | photographs | rows] [--data FOLDER] [--checkpoints FOLDER]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dobrushin import results, show
from dobrushin.images import default_pictures, images
from dobrushin.inputs import Text, lines
from dobrushin.measure import provenance
from dobrushin.models import content_mask, load
from dobrushin.stochastic import restrict

FOLDER = results.PAPER.parent / "examples"
SENTENCE = "Time flies like an arrow"
"""Few enough words for the explorer, which takes matrices of up to eight tokens."""

SENTENCES = """The old clock in the hall had stopped an hour before midnight.
She gave her brother the letter that he had never asked for.
A matrix is stochastic if each of its rows sums to one.
Rain fell on the roof, and nobody in the house was asleep.
If you heat ice, it melts; if you heat water, it boils.
The bank by the river was steep, but the bank in town was closed.
Two and two make four, whoever counts them.
Not a single ship left the harbour that winter.
My neighbour's dog barks at every cyclist except her own son.
What the committee decided on Monday it forgot on Tuesday.
Light needs eight minutes to reach us from the sun.
The proof is short, the theorem is old, and both are beautiful.
Attention is a weighted average; the weights depend on the input.
He whispered, she shouted, and the door stayed shut.
Apples, pears, plums and cherries lay on the kitchen table.
Does the map agree with the country, or only with the mapmaker?
"""
"""Written for this book."""

CROPS, LARGE = 8, 1
"""How many crops at 112 px a side, and at 224 px, the paper's size."""

ROWS = 6
"""Test rows of a table, the first ones."""

_CC_BY = "https://creativecommons.org/licenses/by/2.0/"
CREDITS = [
    {
        "picture": "china",
        "by": "danielbuechele",
        "at": "https://www.flickr.com/photos/danielbuechele/6061409035/",
        "licence": _CC_BY,
    },
    {"picture": "flower", "by": "vultilion", "at": "https://www.flickr.com/photos/vultilion/6056698931/", "licence": _CC_BY},
]


def sentence(options: argparse.Namespace) -> None:
    """Attention of all-MiniLM-L6-v2 on one sentence, averaged over heads, restricted to its words: one row an entry."""
    started = results.now()
    model = load("minilm")
    inputs = lines(model.tokenizer, Text("one sentence", SENTENCE), 1, 16)
    keep = np.flatnonzero(content_mask(inputs.roles(0)))
    words = model.tokenizer.convert_ids_to_tokens(inputs.token_ids[0][keep])
    weights = restrict(show.head_means(model, inputs, 0), keep)
    layer, row, column = (axis.ravel() for axis in np.indices(weights.shape))
    table = pd.DataFrame({"layer": layer + 1, "row": row, "column": column, "weight": weights.ravel()})
    how = provenance(model, inputs, started=started, command="python tools/examples.py sentence")
    results.write(table, how | {"kind": "matrices", "sentence": SENTENCE, "words": words}, "sentence", FOLDER)


def _write(name: str, how: dict[str, Any], shown: list[tuple[dict[str, Any], pd.DataFrame]], note: str) -> None:
    table = show.looks(one for _, one in shown)
    results.write(table, how | {"kind": "looks", "note": note, "examples": [example for example, _ in shown]}, name, FOLDER)


def sentences(options: argparse.Namespace) -> None:
    """All-MiniLM-L6-v2 on sentences of our own."""
    started, model = results.now(), load("minilm")
    number = len(SENTENCES.splitlines())
    inputs = lines(model.tokenizer, Text("sentences written for this book", SENTENCES), number, 64)
    how = provenance(model, inputs, started=started, command="python tools/examples.py sentences")
    shown = [show.describe(model, inputs, k) for k in range(number)]
    shown = [(example | {"label": line}, table) for (example, table), line in zip(shown, SENTENCES.splitlines(), strict=True)]
    _write("sentences", how, shown, "Sentences written for this book; the tokens are the model's word pieces.")


def photographs(options: argparse.Namespace) -> None:
    """The derivative of DINOv2-S on crops of scikit-learn's photographs, at two sizes."""
    for number, size, seed in ((CROPS, 112, 0), (LARGE, 224, 1)):
        started, model = results.now(), load("dinov2-s-saliency", size=size)
        inputs = images(model, default_pictures(number, seed))
        how = provenance(model, inputs, started=started, command="python tools/examples.py photographs")
        shown = [show.describe(model, inputs, k) for k in range(number)]
        for k, (example, _) in enumerate(shown):
            example["label"] = f"crop {k + 1} of “{CREDITS[k % len(CREDITS)]['picture']}”"
        patches = shown[0][1]["n"].iloc[0]
        note = f"{size} px a side, {patches} patches. "
        note += "Photographs: “china” by danielbuechele, “flower” by vultilion, CC BY 2.0, cropped."
        _write(f"photographs-{size}", how | {"credits": CREDITS}, shown, note)


def rows(options: argparse.Namespace) -> None:
    """FT-Transformers that were trained here, on the first rows of the test part."""
    import torch

    from dobrushin import tabular, tabular_data, tabular_results
    from dobrushin.fttransformer import catching_blocks
    from dobrushin.measure import head_mean

    for name in ("california-3", "california-6", "higgs-3-partial"):
        started, config = results.now(), tabular.CONFIGS[name]
        path = tabular.checkpoint_path(options.checkpoints, config, 0)
        if not path.exists() or not tabular.is_finished(path):
            raise ValueError(f"{path} holds no finished run; train first: dobrushin train {name} --seed 0")
        prepared = tabular_data.prepare(tabular_data.load(config.table, options.data), 0)
        run = tabular.train(config, 0, prepared, options.checkpoints, progress=False)
        run.module.eval()
        caught: list[np.ndarray] = []
        with torch.inference_mode(), catching_blocks(run.module, lambda _, a: caught.append(head_mean(a))):  # noqa: B023
            run.module(torch.from_numpy(prepared.X["test"][:ROWS]))
        features = list(prepared.table.features)
        matrices = restrict(np.stack(caught, axis=1), np.arange(1, len(features) + 1))
        shown = [
            ({"kind": "features", "label": f"test row {k + 1}", "tokens": features}, show.look(matrices[k])) for k in range(ROWS)
        ]
        words = {"command": "python tools/examples.py rows", "device": "cpu", "started": started}
        note = f"Trained here, seed 0; the first {ROWS} rows of the test part; the last block has no square attention."
        _write(f"rows-{name}", tabular_results.describe(run) | words, shown, note)


MAKERS: dict[str, Callable[[argparse.Namespace], None]] = {
    maker.__name__: maker for maker in (sentence, sentences, photographs, rows)
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make the site's small examples again.")
    parser.add_argument("which", nargs="*", choices=MAKERS, metavar="WHICH", help=f"{', '.join(MAKERS)} (default: all)")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where the tables' files lie (default: official source)")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), metavar="FOLDER", help="of dobrushin train")
    given = parser.parse_args()
    for which in given.which or MAKERS:
        MAKERS[which](given)
