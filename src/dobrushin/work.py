"""A long run's finished batches, in a folder beside its result, so that a run that was stopped goes on.

Every batch leaves one table; the sums over inputs that the averages need are rewritten with every batch, layer by
layer, so that memory does not grow with depth.  A file appears under its name only when it is whole, and a batch
counts as finished when its table is there: a run may be killed at any moment.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from jaxtyping import Float

from dobrushin.results import now

__all__ = ["Work"]


class Work:
    """The work folder of one run.

    Args:
        folder: made where it is missing.
        run: what makes the run: a folder with finished batches of another run is refused.

    Raises:
        ValueError: the folder holds batches of a run with other choices, or another process works in it.
    """

    def __init__(self, folder: Path, run: dict[str, Any]) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(folder)
        self._staged: tuple[BinaryIO, BinaryIO | None] | None = None
        self.done = 0
        while self._table(self.done).exists():
            self.done += 1
        try:
            self.started = self._described(json.loads(json.dumps(run)))
        except BaseException:
            self.close()
            raise

    def _described(self, run: dict[str, Any]) -> str:
        """When the run was started; the folder says which run it is of, and another run is refused."""
        described = self.folder / "run.json"
        before = json.loads(described.read_text()) if described.exists() else {}
        if not self.done and (not before or run != {k: v for k, v in before.items() if k != "started"}):  # nothing is lost
            started = now()
            unfinished = described.with_suffix(".new")
            unfinished.write_text(json.dumps(run | {"started": started}, indent=2))
            unfinished.replace(described)
            return started
        started = str(before.pop("started", ""))
        for key in sorted({*before, *run}):
            if before.get(key) != run.get(key):
                raise ValueError(
                    f"{self.folder} holds an unfinished run with another {key} ({before.get(key)!r}; now {run.get(key)!r}); "
                    "delete that folder to start again, or give this run another --name"
                )
        return started

    def close(self) -> None:
        """Let another process work in the folder."""
        self._lock.close()

    def delete(self) -> None:
        """Remove the folder, once the result is written."""
        shutil.rmtree(self.folder)
        self.close()

    def add(self, sums: Float[np.ndarray, "n n"]) -> None:
        """Add a layer's sum over the inputs of this batch to its total; call once a layer, the first layer first."""
        if self._staged is None:
            before: BinaryIO | None = self._totals(self.done).open("rb") if self.done else None
            self._staged = (self._totals(self.done + 1).with_suffix(".new").open("wb"), before)
        out, before = self._staged
        if before is not None:
            sums = np.frombuffer(before.read(sums.nbytes), dtype=np.float64).reshape(sums.shape) + sums
        out.write(np.ascontiguousarray(sums).data)

    def finish(self, table: pd.DataFrame) -> None:
        """Store the batch's table, and with it the totals."""
        if self._staged is not None:
            self.abandon()
            totals = self._totals(self.done + 1)
            totals.with_suffix(".new").replace(totals)
        unfinished = self._table(self.done).with_suffix(".new")
        table.to_parquet(unfinished, index=False)
        unfinished.replace(self._table(self.done))
        self._totals(self.done).unlink(missing_ok=True)
        self.done += 1

    def abandon(self) -> None:
        """Stop adding; what was added since the last finished batch does not count."""
        for file in self._staged or ():
            if file is not None:
                file.close()
        self._staged = None

    def tables(self) -> list[pd.DataFrame]:
        """The tables of all finished batches, in order."""
        return [pd.read_parquet(self._table(k)) for k in range(self.done)]

    def totals(self, n: int) -> Iterator[Float[np.ndarray, "n n"]]:
        """The sums over all inputs, layer by layer; nothing if none were added."""
        path = self._totals(self.done)
        if not path.exists():
            return
        with path.open("rb") as file:
            while chunk := file.read(n * n * 8):
                yield np.frombuffer(chunk, dtype=np.float64).reshape(n, n)

    def _table(self, k: int) -> Path:
        return self.folder / f"batch-{k:06}.parquet"

    def _totals(self, k: int) -> Path:
        return self.folder / f"totals-{k:06}.f64"


def _locked(folder: Path) -> Any:
    """An open file that no other process has locked; the lock goes when the process ends, however it ends."""
    file = (folder / "lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(f"another process measures in {folder}; wait for it, or give this run another --name") from None
    return file
