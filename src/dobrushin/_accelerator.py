"""The scan of pairs of rows on an accelerator, in torch; it finds the pairs that `_scan.scan_pairs` finds.

All distances of some matrices at a time are computed on the device, in float64 or, where it has none, in float32; for
any order of summation they are off by less than `tv_error`.  A matrix is settled if these errors, and those of the
CPU's distances, can change neither its best pairs, nor its verdict, nor its fragility.  All others, such as those with
ties, are scanned again on the CPU.  So no answer depends on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from dobrushin import _kernels, _scan
from dobrushin.equality import tv_error

__all__ = ["CHUNK_ENTRIES", "scan_pairs", "working_type"]

CHUNK_ENTRIES = 2**21
"""Entries of the matrices that are scanned at a time; about a dozen arrays of as many numbers lie on the device."""

_DIFFERENCES = 32 * CHUNK_ENTRIES
"""Differences of entries that lie on the device at a time, or those of one row with all others, if these are more."""

_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}


def working_type(tensor: Any) -> torch.dtype:
    """In which type distances are computed: float64 where the device is known to have it, else float32."""
    return torch.float64 if tensor.dtype == torch.float64 or tensor.device.type == "cuda" else torch.float32


def scan_pairs(
    tensor: Any,
    matrices: np.ndarray,
    rounding: float,
    slack: float,
    *,
    out: np.ndarray,
    dtype: torch.dtype | None = None,
    entries: int = CHUNK_ENTRIES,
) -> int:
    """Fill one SCAN record a matrix; return how many matrices had to be scanned on the CPU.

    Args:
        tensor: matrices of shape (b, n, n), on the device.
        matrices: the same in float64 on the CPU, checked.
        rounding: relative error of the entries, for `fragile`.
        slack: how far such errors may move a difference of two distances.
        out: SCAN records.
        dtype: torch.float64 or torch.float32; that of `working_type` by default.
        entries: of the matrices that are scanned at a time.
    """
    dtype = working_type(tensor) if dtype is None else dtype
    n = matrices.shape[-1]
    error = tv_error(n)
    # Numbers further apart than this, computed on the device, are more than 2 error apart when computed on the CPU:
    # each has an error on the device and one on the CPU.  Entries that were rounded to float32 move a distance by one
    # roundoff; tv_error has room for four.
    window = 2 * tv_error(n, _ROUNDOFF[dtype]) + 6 * error
    step = max(1, entries // n**2)
    settled = np.zeros(len(matrices), dtype=np.bool_)
    for start in range(0, len(matrices), step):
        some = slice(start, start + step)
        settled[some] = _scan_some(tensor[some].detach(), matrices[some], dtype, rounding, slack, window, out[some])
    unsettled = np.flatnonzero(~settled)
    again = np.zeros(len(unsettled), dtype=_scan.SCAN)
    _kernels.run(_scan.scan_pairs, matrices[unsettled], rounding, slack, error, out=again)
    out[unsettled] = again
    return len(unsettled)


def _scan_some(
    tensor: Any, matrices: np.ndarray, dtype: torch.dtype, rounding: float, slack: float, window: float, out: np.ndarray
) -> np.ndarray:
    """Fill the records of these matrices; return which of them are settled."""
    device, n = tensor.device, matrices.shape[-1]
    # Stored numbers are compared in float64, as on the CPU: in float32 a device may take the smallest ones for 0.
    stored = tensor.double() if dtype == torch.float64 else torch.from_numpy(matrices)
    own = _diagonal(stored)
    low, high = 1.0 - rounding, 1.0 + rounding
    good = _both(own >= stored).to(device)
    surely_good = _both(own * low >= stored * high).to(device)
    surely_other = _either(own * high < stored * low).to(device)
    pairs = torch.ones(n, n, dtype=torch.bool, device=device).triu(1)

    A = tensor.to(dtype)
    tv = 0.5 * _l1(A)
    excess = (A - _diagonal(A)).clamp_min(0)
    best, good_pair = _largest_two(tv, pairs & good)
    best_other, other_pair = _largest_two(tv, pairs & ~good)
    loosest, loosest_pair = _largest_two(0.5 * tv - 0.5 * (excess + excess.mT), pairs)  # the least deficit - TV/2, negated
    holds = best[0] >= best_other[0]
    sure = torch.where(torch.from_numpy(holds).to(device)[:, None, None], surely_good, surely_other)
    doubtful = _largest_two(tv, pairs & ~sure)[0][0]
    needed = np.maximum(best[0], best_other[0]) - slack

    def close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # inf - inf where there is no such pair
            return np.abs(a - b) <= window

    out["good"], out["good_second"] = best
    out["other"], out["other_second"] = best_other
    out["good_pair"], out["other_pair"] = good_pair, other_pair
    out["looseness"], out["looseness_second"] = np.where(holds, np.inf, -loosest)
    out["loosest_pair"] = np.where(holds[:, None], -1, loosest_pair)
    out["fragile"] = doubtful >= needed
    tied = close(best[0], best_other[0]) | close(*best) | close(*best_other) | (close(*loosest) & ~holds)
    return ~(tied | close(doubtful, needed))


def _diagonal(A: Any) -> Any:
    """A_kk in place (i, k), for every i."""
    return A.diagonal(dim1=-2, dim2=-1)[..., None, :]


def _both(x: Any) -> Any:
    return x & x.mT


def _either(x: Any) -> Any:
    return x | x.mT


def _l1(A: Any) -> Any:
    """The sums of |A_ik - A_jk| over k."""
    if A.dtype == torch.float64:
        return torch.cdist(A, A, p=1.0)
    # cdist would hold all differences at once on some devices, and there it might raise them to a power with an error
    # of its own.
    count, n = A.shape[:2]
    rows = max(1, _DIFFERENCES // (count * n**2))
    return torch.cat([(A[:, i : i + rows, None] - A[:, None]).abs_().sum(-1) for i in range(0, n, rows)], dim=1)


def _largest_two(scores: Any, members: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two largest scores of members of each matrix, shape (2, b), -inf where there is none; the pair of the first."""
    found, places = scores.masked_fill(~members, -torch.inf).flatten(1).topk(2)
    values = found.cpu().double().numpy()
    pair = np.stack(np.divmod(places[:, 0].cpu().numpy(), scores.shape[-1]), axis=1)
    pair[values[:, 0] == -np.inf] = -1
    return values.T, pair
