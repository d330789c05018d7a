"""The page of single inputs: what its viewer needs, written from the examples in ``data/examples``."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any

from dobrushin import results, show

EXAMPLES = results.PAPER.parent / "examples"
GROUPS = ("sentences", "photographs-112", "photographs-224", "rows-california-3", "rows-california-6", "rows-higgs-3-partial")
"""Results of kind "looks", in the order of the menu."""
OWN = ("viewer.js", "viewer.css")


def _title(name: str, how: dict[str, Any]) -> str:
    if "model" not in how:
        return f"FT-Transformer: {how['config']['title']}"
    return str(how["model"]["title"]) + (f", {how['inputs']['size']} px" if "size" in how["inputs"] else "")


def groups(folder: Path = EXAMPLES) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Name to table and provenance."""
    return {name: results.read(name, folder) for name in GROUPS}


def page(source: str) -> str:
    """Fill the page: how many examples there are and what they weigh."""
    read = groups()
    sizes = [len(text.encode()) for table, how in read.values() for text in _examples(table, how)]
    per = f"{min(sizes) / 1000:,.0f} kB to {max(sizes) / 1e6:.1f} MB"
    return source.replace("{{ number }}", str(len(sizes))).replace("{{ sizes }}", per)


def _examples(table: Any, how: dict[str, Any]) -> list[str]:
    return [show.written(example, table[table["example"] == k]) for k, example in enumerate(how["examples"])]


def write(target: Path) -> None:
    """Write the viewer's script and style, the list of examples, and every example as a script of its own."""
    target.mkdir(parents=True, exist_ok=True)
    for name in OWN:
        (target / name).write_bytes((importlib.resources.files("dobrushin") / "viewer" / name).read_bytes())
    index = []
    for name, (table, how) in groups().items():
        keys = [f"{name}-{k + 1}" for k in range(len(how["examples"]))]
        for key, text in zip(keys, _examples(table, how), strict=True):
            (target / f"{key}.js").write_text(f'(globalThis.DobrushinLooks ??= {{}})["{key}"] = {text};\n', encoding="utf-8")
        labels = [{"key": key, "label": one["label"]} for key, one in zip(keys, how["examples"], strict=True)]
        index.append({"title": _title(name, how), "note": how["note"], "examples": labels})
    (target / "index.js").write_text(
        f"globalThis.DobrushinExamples = {json.dumps(index, ensure_ascii=False)};\n", encoding="utf-8"
    )
