"""Draw the README's picture from the committed results.

python tools/emblem.py
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dobrushin import figures, networks, results

EMBLEM = Path(__file__).resolve().parents[1] / "book" / "_static" / "emblem.svg"


def draw(path: Path = EMBLEM) -> Path:
    """Write the picture; the same results give the same bytes."""
    figures.use_style()
    measured = {one.name: one for one in results.measurements()}
    trained = {
        "image patches: DINOv2-S/14, fine-tuned": measured["dinov2-s-saliency"].table,
        "words: all-MiniLM-L6-v2": measured["minilm"].table,
    }
    of_tables = networks.networks()
    for config in ("california-3", "california-6"):
        ours = [one for one in of_tables if one.config == config]
        trained[f"table features: FT-Transformer,\n{ours[0].title}"] = pd.concat(
            [one.table for one in ours[: networks.PAPERS_SEEDS]]
        )
    picture = figures.emblem(results.read("random_baseline")[0], trained)
    picture.savefig(path, metadata={"Date": None})
    return path


if __name__ == "__main__":
    print(draw())
