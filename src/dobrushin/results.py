"""Results on disk: one Parquet table a run, and beside it one JSON file that says how it was made.

The table and its provenance are written whole or not at all: each goes to a temporary file first, the table is
renamed before the provenance, and the provenance names the table's hash, which is checked when it is read.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

__all__ = [
    "PAPER",
    "RESULTS",
    "Measurement",
    "git_commit",
    "measurements",
    "now",
    "read",
    "refuse_another_run",
    "versions",
    "write",
]

_ROOT = Path(__file__).resolve().parents[2]
RESULTS = _ROOT / "data" / "results"
"""Where the committed results lie, in a checkout of the project."""
PAPER = _ROOT / "data" / "paper"
"""Where the paper's numbers lie, in a checkout of the project."""

_PACKAGES = ("dobrushin", "numpy", "numba", "scipy", "torch", "transformers", "timm")


def now() -> str:
    """The time in UTC, to the second, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in _PACKAGES}


def machine() -> dict[str, Any]:
    """System, processor and number of cores."""
    processor = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        processor = names[0] if names else processor
    return {"system": f"{platform.system()} {platform.machine()}", "processor": processor, "cores": os.cpu_count()}


def git_commit() -> str:
    """The commit of this checkout, with "+changes" where tracked source differs from it; "unknown" outside it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != _ROOT.resolve():  # installed within another project's checkout
            return "unknown"
        changed = git("status", "--porcelain", "--untracked-files=no", "--", "src", "requirements.lock")
        return git("rev-parse", "HEAD") + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(table: pd.DataFrame, provenance: dict[str, Any], name: str, folder: Path = RESULTS) -> Path:
    """Write ``name.parquet`` and ``name.json`` into the folder.

    The provenance is completed with versions, machine, commit, the time and the table's hash.

    Returns:
        The path of the table.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, beside = folder / f"{name}.parquet", folder / f"{name}.json"
    unfinished = [path.with_suffix(f".parquet.{os.getpid()}"), beside.with_suffix(f".json.{os.getpid()}")]
    try:
        floats = [column for column in table.columns if table[column].dtype.kind == "f"]
        table.to_parquet(
            unfinished[0], index=False, compression="zstd", use_dictionary=[c for c in table.columns if c not in floats],
            use_byte_stream_split=floats,
        )  # fmt: skip
        complete = provenance | {
            "commit": git_commit(),
            "versions": versions(),
            "machine": machine(),
            "finished": now(),
            "table": {"file": path.name, "rows": len(table), "sha256": _sha256(unfinished[0])},
        }
        unfinished[1].write_text(json.dumps(complete, indent=2) + "\n")
        unfinished[0].replace(path)
        unfinished[1].replace(beside)
    finally:
        for left in unfinished:
            left.unlink(missing_ok=True)
    return path


def refuse_another_run(how: dict[str, Any], name: str, folder: Path) -> None:
    """Refuse a name under which the folder holds the result of another run, before it would be replaced.

    A run is the same where its command, its weights and its inputs or table of data are; versions, commit and time
    may differ.

    Args:
        how: provenance of the run that is about to start; of it, "command", "model", "inputs" and "data" count.
        name: of the result.
        folder: where it is to go.

    Raises:
        ValueError: there is a result of another run, and in what it differs, or a table without its provenance.
    """
    path, beside = folder / f"{name}.parquet", folder / f"{name}.json"
    ours = _choices(how)
    elsewhere = "give this run another --name or --output" if "--name" in ours else "give this run another --output"
    if not beside.exists():
        if path.exists():
            raise ValueError(f"{path} has no {beside.name} beside it that says what it is; move it away, or {elsewhere}")
        return
    before = _choices(_provenance(beside))

    def said(choices: dict[str, str], key: str) -> str:
        return (choices[key] or "given") if key in choices else "not given"

    differences = [
        f"{key} ({said(before, key)}; now {said(ours, key)})" for key in {**before, **ours} if before.get(key) != ours.get(key)
    ]
    if differences:
        raise ValueError(
            f"{path} is the result of another run, which differs in {', '.join(differences)}; "
            f"{elsewhere}, or move {path.name} and {beside.name} away"
        )


def _choices(how: dict[str, Any]) -> dict[str, str]:
    """What makes a run: the command's options, and the weights, inputs and data behind the names that it gives."""
    chosen: dict[str, str] = {}
    key = "command"
    for word in shlex.split(how.get("command", "")):
        if word.startswith("--"):
            key, chosen[word] = word, ""
        else:
            chosen[key] = f"{chosen.get(key, '')} {word}".lstrip()
    model, inputs, data = (how.get(part, {}) for part in ("model", "inputs", "data"))
    behind = {
        "weights' SHA-256": model.get("weights_sha256"),
        "preprocessing": model.get("preprocessing"),
        "inputs' SHA-256": inputs.get("sha256"),
        "inputs' tokens": inputs.get("tokens"),
        "data's SHA-256": data.get("split_sha256"),
    }
    return chosen | {name: json.dumps(value) for name, value in behind.items() if value is not None}


def _provenance(path: Path) -> dict[str, Any]:
    try:
        provenance: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        provenance["table"]["sha256"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not the provenance of a result ({error!r}); take it out of the folder") from error
    return provenance


def read(name: str, folder: Path = RESULTS) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read a result and its provenance.

    Raises:
        FileNotFoundError: there is no such result; the message lists those there are.
        ValueError: the table is not the one that the provenance describes, or that is no provenance.
    """
    path, beside = folder / f"{name}.parquet", folder / f"{name}.json"
    if not path.exists() or not beside.exists():
        there = ", ".join(sorted(p.stem for p in folder.glob("*.json") if p.with_name(f"{p.stem}.parquet").exists())) or "none"
        raise FileNotFoundError(f"no result {name!r} in {folder}; there are: {there}")
    provenance = _provenance(beside)
    if provenance["table"]["sha256"] != _sha256(path):
        raise ValueError(f"{path} is not the table that {beside.name} describes (its SHA-256 differs); measure it again")
    return pd.read_parquet(path), provenance


@dataclass(frozen=True, eq=False)
class Measurement:
    """A model's result: verdicts about its attention, and how they were made."""

    name: str
    table: pd.DataFrame
    how: dict[str, Any]

    @property
    def status(self) -> str:
        """One of "paper's checkpoint", "derivative", "another model" or "untrained"."""
        return str(self.how["model"]["status"])

    @property
    def training(self) -> str:
        """What the model learned from, in a word or two."""
        return str(self.how["model"]["training"])

    @property
    def label(self) -> str:
        """The model's title, with a word on its weights where they were not learned."""
        return str(self.how["model"]["title"]) + (", untrained" if self.status == "untrained" else "")

    @property
    def inputs(self) -> str:
        """How many inputs, of how many tokens, and from where."""
        given = self.how["inputs"]
        tokens = given["tokens"] if isinstance(given["tokens"], int) else "{} to {}".format(*given["tokens"])
        return f"{given['number']} inputs of {tokens} tokens ({given.get('text') or given.get('images')})"


def measurements(folder: Path = RESULTS) -> list[Measurement]:
    """All measured models in a folder, ordered by name."""
    kinds = {path.stem: json.loads(path.read_text()).get("kind") for path in sorted(folder.glob("*.json"))}
    return [Measurement(name, *read(name, folder)) for name, kind in kinds.items() if kind == "measurement"]
