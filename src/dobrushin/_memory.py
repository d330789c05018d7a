"""Memory outside the C library's heap.

What is freed in the heap lies in pieces between what stays, and a model's next matrices often do not fit there, so that
the peak would grow with depth.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any

import numpy as np

__all__ = ["Memory", "mapped", "trim_heap"]


def mapped(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """An array of zeros in pages of its own, which go back to the system with its last view."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), dtype=np.uint8)[:size].view(dtype).reshape(shape)


def trim_heap() -> None:
    """Give what lies free in the heap back to the system, where the C library can do that (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """Arrays by name, in pages that are taken again: new ones would be cleared first."""

    def __init__(self) -> None:
        self._bytes: dict[str, np.ndarray] = {}

    def array(self, name: str, *shape: int, dtype: Any = np.float64) -> np.ndarray:
        """An array with any contents, valid until the name is asked for again."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if name not in self._bytes or self._bytes[name].size < size:
            self._bytes.pop(name, None)
            self._bytes[name] = mapped(size, dtype=np.uint8)
        return self._bytes[name][:size].view(dtype).reshape(shape)
