"""Scripts and style sheets that single pages need, and the data that the build writes for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import execute
import site_cite
import site_results
import site_viewer
from dobrushin import equality, results
from dobrushin.points import MIME

EXAMPLES = site_viewer.EXAMPLES
PAGES = {
    "book/explorer": (["explorer/exact.js", "explorer/sentence.js", "explorer/explorer.js"], ["explorer/explorer.css"]),
    "book/viewer": (["viewer/index.js", "viewer/viewer.js"], ["viewer/viewer.css"]),
    "book/results": (["results/results.js"], ["results/results.css"]),
}
"""Page to its scripts and style sheets, under ``_static``."""


def add_to_page(app: Any, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Load a page's own scripts and style sheets there and nowhere else."""
    scripts, styles = PAGES.get(pagename, ([], []))
    for name in scripts:
        app.add_js_file(name, loading_method="defer")
    for name in styles:
        app.add_css_file(name)
    if points := figure_points(pagename):
        context["body"] += points
        app.add_js_file("figures/points.js", loading_method="defer")
        app.add_css_file("figures/points.css")


def figure_points(pagename: str) -> str:
    """The points of a chapter's figures, as scripts that the page carries for its own figures to read."""
    copy = execute.EXECUTED / f"{Path(pagename).name}.ipynb"
    if not pagename.startswith("notebooks/") or not copy.exists():
        return ""
    scripts = []
    for cell in json.loads(copy.read_text(encoding="utf-8"))["cells"]:
        name = cell["metadata"].get("mystnb", {}).get("figure", {}).get("name")
        for output in cell.get("outputs", []):
            points = output.get("data", {}).get(MIME)
            if name and points:
                data = json.dumps(points, ensure_ascii=False).replace("<", "\\u003c")
                scripts.append(f'<script type="application/json" class="figure-points" data-figure="{name}">{data}</script>\n')
    return "".join(scripts)


def drop_points(notebook: dict[str, Any]) -> None:
    """Take out the points of a notebook's figures, which are for the site's own script and no picture."""
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(MIME, None)


def thousandths(row: np.ndarray) -> list[str]:
    """A row that sums to 1 as decimals with three digits that sum to 1 exactly, by largest remainders."""
    scaled = 1000 * row / row.sum()
    units = np.floor(scaled).astype(int)
    units[np.argsort(units - scaled, kind="stable")[: 1000 - units.sum()]] += 1
    return [f"{unit / 1000:g}" for unit in units]


def sentence_script() -> str:
    """The explorer's real attention matrices, from ``data/examples/sentence``."""
    table, how = results.read("sentence", EXAMPLES)
    layers = []
    for _, entries in table.groupby("layer"):
        matrix = entries.pivot(index="row", columns="column", values="weight").to_numpy()
        layers.append({"weights": [thousandths(row) for row in matrix], "holds": bool(equality(matrix).holds)})
    label = f"{how['model']['title']} on “{how['sentence']}”, mean over heads, restricted to the words"
    return f"globalThis.DobrushinSentence = {json.dumps({'label': label, 'words': how['words'], 'layers': layers})};\n"


def write(outdir: Path) -> None:
    """Write the scripts that hold data into the finished site."""
    target = outdir / "_static" / "explorer" / "sentence.js"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(sentence_script(), encoding="utf-8")
    site_viewer.write(outdir / "_static" / "viewer")
    site_results.write(outdir / "_static" / "results")
    site_cite.write(outdir / "_static" / "cite")
