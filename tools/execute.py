"""Execute the book's notebooks: what the site shows is what ran.

Every notebook runs from a fresh kernel, top to bottom, by papermill, and its executed copy goes to
``_build/executed``.  A copy is kept as long as its key is: a hash of the notebook, its parameters, the package's
source, the lock file, the data and the version of Python.

    python tools/execute.py [-p NAME=VALUE ...]
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from dobrushin import results

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
EXECUTED = ROOT / "_build" / "executed"
TIMEOUT = 1200
"""Seconds that one cell may take."""


def notebooks() -> list[Path]:
    """The notebooks, in the order of their names, which is that of the book."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def parameters_of(notebook: Path) -> dict[str, Any]:
    """Names and default values in the cell tagged ``parameters``."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    tagged = [cell for cell in cells if "parameters" in cell.get("metadata", {}).get("tags", [])]
    if len(tagged) != 1:
        raise ValueError(f"{notebook.name} has {len(tagged)} cells tagged 'parameters'; expected one")
    found = {}
    for statement in ast.parse("".join(tagged[0]["source"])).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            raise ValueError(f"{notebook.name}: the parameters cell may hold assignments of plain values only")
        found[statement.targets[0].id] = ast.literal_eval(statement.value)
    return found


def _common() -> hashlib._Hash:
    """Hash of what every notebook depends on."""
    sources = [
        p for folder in ("src", "data") for p in (ROOT / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ]
    total = hashlib.sha256(platform.python_version().encode())
    for path in [ROOT / "requirements.lock", *sorted(sources)]:
        total.update(f"\0{path.relative_to(ROOT).as_posix()}\0".encode() + path.read_bytes())
    return total


def key(notebook: Path, parameters: dict[str, Any]) -> str:
    """What the executed copy depends on, as one hash."""
    total = _common()
    total.update(notebook.read_bytes() + json.dumps(parameters, sort_keys=True).encode())
    return total.hexdigest()


def record(copy: Path) -> dict[str, Any] | None:
    """What an executed copy says of its run; None where there is no such copy."""
    try:
        return json.loads(copy.read_text(encoding="utf-8"))["metadata"]["dobrushin"]
    except (OSError, ValueError, KeyError):
        return None


def fault(copy: Path) -> str | None:
    """Why an executed copy cannot be shown; None where it can."""
    notebook = NOTEBOOKS / copy.name
    how = record(copy)
    if how is None:
        return f"{notebook.name} has not been executed; run: make book"
    if how["key"] != key(notebook, how["parameters"]):
        return f"{notebook.name} was executed before its sources changed; run: make book"
    return None


def execute(notebook: Path, parameters: dict[str, Any]) -> str | None:
    """Execute one notebook into ``_build/executed``; returns the end of its log where a cell failed."""
    with tempfile.TemporaryDirectory(dir=EXECUTED, prefix=".running-") as folder:
        unfinished = Path(folder) / notebook.name
        command = [
            sys.executable, "-m", "papermill", str(notebook), str(unfinished), "-k", "python3",
            "--cwd", str(NOTEBOOKS), "--execution-timeout", str(TIMEOUT), "--no-progress-bar",
        ]  # fmt: skip
        if parameters != parameters_of(notebook):  # papermill shows a cell of its own for what it is given
            chosen = Path(folder) / "parameters.yml"
            chosen.write_text(json.dumps(parameters))  # JSON is YAML
            command += ["-f", str(chosen)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYDEVD_DISABLE_FILE_VALIDATION": "1"}
        started, key_before = results.now(), key(notebook, parameters)
        status, memory, log = _run(command, environment, Path(folder) / "log")
        if status:
            return log[-3000:]
        document = json.loads(unfinished.read_text(encoding="utf-8"))
        document["metadata"]["dobrushin"] = {
            "key": key_before,
            "parameters": parameters,
            "started": started,
            "seconds": round(document["metadata"]["papermill"]["duration"], 1),
            "memory_mb": memory,
            "commit": results.git_commit(),
            "versions": results.versions(),
            "machine": results.machine(),
        }
        unfinished.write_text(json.dumps(document, indent=1))
        unfinished.replace(EXECUTED / notebook.name)
    return None


def _run(command: list[str], environment: dict[str, str], log: Path) -> tuple[int, int, str]:
    """Run a command; its exit status, the memory of its largest process in MB, and what it printed."""
    with log.open("wb") as file:
        process = subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    unit = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes
    return process.returncode, round(usage.ru_maxrss * unit / 1e6), log.read_text(errors="replace")


def _given(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r}; expected NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def main(arguments: list[str] | None = None) -> int:
    """Execute every notebook whose copy is missing or outdated, two at a time."""
    parser = argparse.ArgumentParser(description="Execute the notebooks that changed, or whose sources did.")
    parser.add_argument(
        "-p", dest="given", action="append", type=_given, default=[], metavar="NAME=VALUE",
        help="a parameter of the notebooks, for example inputs=64",
    )  # fmt: skip
    given = dict(parser.parse_args(arguments).given)
    known = {notebook: parameters_of(notebook) for notebook in notebooks()}
    names = sorted(set().union(*known.values()))
    if unknown := sorted(set(given) - set(names)):
        print(f"no notebook has a parameter {', '.join(unknown)}; there are: {', '.join(names)}", file=sys.stderr)
        return 2

    EXECUTED.mkdir(parents=True, exist_ok=True)
    for stale in EXECUTED.glob("*.ipynb"):
        if NOTEBOOKS / stale.name not in known:
            stale.unlink()
    jobs = {}
    for notebook, parameters in known.items():
        chosen = parameters | {name: value for name, value in given.items() if name in parameters}
        how = record(EXECUTED / notebook.name)
        if how is not None and how["key"] == key(notebook, chosen):
            print(f"{notebook.stem}: nothing changed", flush=True)
        else:
            jobs[notebook] = chosen

    failed = False
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        start = time.monotonic()
        running = {pool.submit(execute, notebook, chosen): notebook for notebook, chosen in jobs.items()}
        if running:
            print(f"executing {', '.join(n.stem for n in jobs)}", flush=True)
        for done, future in enumerate(concurrent.futures.as_completed(running), start=1):
            log = future.result()
            state = "done" if log is None else "FAILED"
            print(f"[{done}/{len(jobs)}] {running[future].stem}: {state} after {time.monotonic() - start:.0f} s", flush=True)
            if log is not None:
                failed = True
                print(log, file=sys.stderr, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
