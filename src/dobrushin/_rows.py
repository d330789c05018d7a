"""The rows of a measurement's table, as verdicts come."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from dobrushin._memory import Memory
from dobrushin.equality import Equality

__all__ = ["Rows"]

_ROW = np.dtype(
    [("scope", "i1"), ("layer", "i2"), ("input", "i4"), ("head", "i2"), ("kappa", "f8"), ("gap", "f8"), ("margin", "f8"),
     ("holds", "?"), ("fragile", "?"), ("i", "i2"), ("j", "i2"), ("n", "i2")]
)  # fmt: skip


class Rows:
    """Verdicts, row by row, in memory that another table may take after this one."""

    def __init__(self, memory: Memory) -> None:
        self._memory, self._count, self._rows = memory, 0, memory.array("rows", 1024, dtype=_ROW)
        self._scopes: list[str] = []

    def add(self, scope: str, layer: int, inputs: Any, heads: Any, verdicts: Equality, n: int) -> None:
        """Add a row for every verdict; numbers of inputs and heads are broadcast to the shape of the verdicts."""
        shape = np.shape(verdicts.kappa)
        stop = self._count + math.prod(shape)
        if stop > len(self._rows):
            before = self._rows[: self._count].copy()
            self._rows = self._memory.array("rows", 2 * stop, dtype=_ROW)
            self._rows[: self._count] = before
        if scope not in self._scopes:
            self._scopes.append(scope)
        rows = self._rows[self._count : stop].reshape(shape)
        rows["scope"], rows["layer"], rows["input"], rows["head"] = self._scopes.index(scope), layer, inputs, heads
        for name in ("kappa", "gap", "margin", "holds", "fragile"):
            rows[name] = getattr(verdicts, name)
        rows["i"], rows["j"] = np.moveaxis(np.asarray(verdicts.pair), -1, 0)
        rows["n"] = n
        self._count = stop

    def table(self) -> pd.DataFrame:
        """All rows."""
        rows = self._rows[: self._count]
        columns = {name: rows[name].copy() for name in _ROW.names or ()}
        return pd.DataFrame(columns | {"scope": np.array(self._scopes, dtype=str)[rows["scope"]]})
