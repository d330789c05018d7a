"""Tables of runs: one row a notebook or result, with the numbers of its record."""

from __future__ import annotations

import json

import execute
import site_runs


def record(seconds: float, memory: int) -> dict:
    return {
        "started": "2026-12-03T05:49:59+00:00", "seconds": seconds, "memory_mb": memory, "parameters": {"seed": 3},
        "commit": "0123456789abcdef", "key": "fedcba9876543210", "versions": {"python": "3.11"},
        "machine": {"processor": "a processor"},
    }  # fmt: skip


def test_a_row_a_chapter(tmp_path, monkeypatch):
    notebooks, executed = tmp_path / "notebooks", tmp_path / "executed"
    monkeypatch.setattr(execute, "NOTEBOOKS", notebooks)
    monkeypatch.setattr(execute, "EXECUTED", executed)
    notebooks.mkdir()
    executed.mkdir()
    assert site_runs.chapters() == site_runs.runs() == "No notebook has been executed."
    runs = {"01_one": (4.4, 449), "02_two": (61.6, 1050)}
    for name, (seconds, memory) in runs.items():
        (notebooks / f"{name}.ipynb").write_text("{}")
        (executed / f"{name}.ipynb").write_text(json.dumps({"metadata": {"dobrushin": record(seconds, memory)}}))
    assert [row.split("|")[1:4] for row in site_runs.chapters().splitlines()[2:]] == [
        [" {doc}`../notebooks/01_one` ", " 4 s ", " 0.4 GB "],
        [" {doc}`../notebooks/02_two` ", " 62 s ", " 1.1 GB "],
    ]
    assert "| 2026-12-03 05:49 | 61.6 s | 1050 MB | `seed=3` | `0123456789ab` | `fedcba987654` |" in site_runs.runs()
    box = site_runs.run_this("02_two", record(*runs["02_two"]))["source"]
    assert "papermill notebooks/02_two.ipynb" in box
    assert "It took 62 s and 1.1 GB of memory" in box
