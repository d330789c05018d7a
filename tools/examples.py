"""Make the site's small examples again: attention of a named model on freely usable inputs, into ``data/examples``.

python tools/examples.py
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from dobrushin import results
from dobrushin.inputs import Text, lines
from dobrushin.measure import provenance
from dobrushin.models import content_mask, load
from dobrushin.show import head_means
from dobrushin.stochastic import restrict

FOLDER = results.PAPER.parent / "examples"
SENTENCE = "Time flies like an arrow"
"""Few enough words for the explorer, which takes matrices of up to eight tokens."""


def sentence() -> None:
    """Attention of all-MiniLM-L6-v2 on one sentence, averaged over heads, restricted to its words: one row an entry."""
    started = results.now()
    model = load("minilm")
    inputs = lines(model.tokenizer, Text("one sentence", SENTENCE), 1, 16)
    keep = np.flatnonzero(content_mask(inputs.roles(0)))
    words = model.tokenizer.convert_ids_to_tokens(inputs.token_ids[0][keep])
    weights = restrict(head_means(model, inputs, 0), keep)
    layer, row, column = (axis.ravel() for axis in np.indices(weights.shape))
    table = pd.DataFrame({"layer": layer + 1, "row": row, "column": column, "weight": weights.ravel()})
    how = provenance(model, inputs, started=started, command="python tools/examples.py")
    results.write(table, how | {"kind": "matrices", "sentence": SENTENCE, "words": words}, "sentence", FOLDER)


if __name__ == "__main__":
    sentence()
