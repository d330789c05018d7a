"""What the executed notebooks and the committed results say of how they were made, as tables for the site."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import execute


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _short(commit: str) -> str:
    return f"`{commit[:12]}`" + (" and changes" if commit.endswith("+changes") else "")


def _when(how: dict[str, Any]) -> str:
    return how["started"][:16].replace("T", " ")


def _records() -> dict[str, dict[str, Any]]:
    return {n.stem: how for n in execute.notebooks() if (how := execute.record(execute.EXECUTED / n.name))}


def run_this(name: str, how: dict[str, Any]) -> dict[str, Any]:
    """The box that ends a chapter: how to run it, and what that cost when the page was made."""
    memory = f" and {_gigabytes(how)} of memory" if "memory_mb" in how else ""
    text = f"""```{{admonition}} Run this chapter
:class: note run-this

`make lab` opens it in JupyterLab. From the shell:

    .venv/bin/papermill notebooks/{name}.ipynb {name}.ipynb --cwd notebooks --kernel python3

It took {how["seconds"]:.0f} s{memory} when this page was made ({how["machine"]["processor"]}, one thread).
{{doc}}`../book/rerun` says how to get there.
```"""
    return {"cell_type": "markdown", "id": "run-this-chapter", "metadata": {}, "source": text}


def _gigabytes(how: dict[str, Any]) -> str:
    return f"{how['memory_mb'] / 1000:.1f} GB" if "memory_mb" in how else "–"


def chapters() -> str:
    """One row a chapter: what running it took when the site was made."""
    rows = [[f"{{doc}}`../notebooks/{name}`", f"{how['seconds']:.0f} s", _gigabytes(how)] for name, how in _records().items()]
    return _table(["Chapter", "Time", "Memory"], rows) if rows else "No notebook has been executed."


def runs() -> str:
    """One row for every notebook, then the versions and machines they ran with."""
    records = _records()
    if not records:
        return "No notebook has been executed."
    rows = [
        [
            f"[{name}](../notebooks/{name}.ipynb)", _when(how), f"{how['seconds']} s", f"{how.get('memory_mb', '–')} MB",
            ", ".join(f"`{k}={v}`" for k, v in how["parameters"].items()) or "–", _short(how["commit"]), f"`{how['key'][:12]}`",
        ]
        for name, how in records.items()
    ]  # fmt: skip
    text = _table(["Notebook", "Started (UTC)", "Time", "Memory", "Parameters", "Commit", "Cache key"], rows)
    for title, part in (("Versions", "versions"), ("Machine", "machine")):
        different = {json.dumps(how[part]): how[part] for how in records.values()}
        for values in different.values():
            where = ", ".join(name for name, how in records.items() if how[part] == values)
            text += f"\n\n**{title}** ({where})\n\n" + _table([title, ""], [[k, f"{v}"] for k, v in values.items()])
    return text


def listed(folder: Path) -> str:
    """One row for every committed result in the folder."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        how = json.loads(path.read_text(encoding="utf-8"))
        file = f"{{download}}`{path.stem} <../data/{folder.name}/{how['table']['file']}>`"
        rows.append(
            [
                f'<span id="result-{path.stem}"></span>{file}', f"`{how['command']}`",
                _when(how), _short(how["commit"]), f"{how['table']['rows']:,}", f"`{how['table']['sha256'][:12]}`",
            ]
        )  # fmt: skip
    return _table(["Result", "Command", "Started (UTC)", "Commit", "Rows", "SHA-256"], rows)
