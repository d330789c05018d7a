"""Row-stochastic matrices: checking them, restricting them to tokens, and the rollout factor.

A post-softmax attention matrix A is row-stochastic: A_ij >= 0 is the weight with which token i attends to
token j, and every row sums to 1.  Every function of the package takes such matrices with any leading batch
shape ``(..., n, n)``, as NumPy arrays or torch tensors, and widens them to float64 without changing a value.
Nothing is clipped or renormalised on the way: a matrix that is not row-stochastic is an error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int

from dobrushin import _kernels

__all__ = ["ROUNDING", "ROW_SUM_TOLERANCE", "check_stochastic", "lazy", "restrict", "widen"]

ROW_SUM_TOLERANCE: dict[str, float] = {"float64": 1e-6, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""How far a row may sum from 1, by element type; float64 leaves room for softmax values computed in float32."""

ROUNDING: dict[str, float] = {"float64": 2.0**-49, "float32": 2.0**-20, "float16": 2.0**-7, "bfloat16": 2.0**-4}
"""Relative error of a weight that was computed in this type, 8 units in the last place."""


def dtype_name(A: Any) -> str:
    """Name of the element type of an array or tensor in any byte order, for example ``"float32"``."""
    return getattr(A.dtype, "name", None) or str(A.dtype).removeprefix("torch.")


def as_array(A: Any, name: str = "A") -> Any:
    """``A`` itself if it is an array or tensor, otherwise (lists, data frames) a NumPy array of it."""
    return A if hasattr(A, "dtype") and hasattr(A, "shape") else _read(A, name)


def _read(A: Any, name: str, **options: Any) -> np.ndarray:
    """``A`` as a NumPy array, or an error that says what it is instead."""
    try:
        return np.asarray(A, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"{name} is a {type(A).__name__} that is no array ({error}); expected one dense NumPy array or torch tensor"
        ) from error


def on_accelerator(A: Any) -> bool:
    """Whether ``A`` is a torch tensor that does not lie in the CPU's memory."""
    return hasattr(A, "detach") and A.device.type != "cpu"


def widen(A: Any, *, name: str = "A") -> Float[np.ndarray, "*shape"]:
    """Return a NumPy float64 array with exactly the values of ``A``.

    Args:
        A: array or tensor of float64, float32, float16 or bfloat16 values.
        name: how error messages call it.

    Raises:
        ValueError: for any other element type, for what is not one dense array, and for masked arrays, whose mask
            would be lost.
    """
    if isinstance(A, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array; expected a plain array (use restrict() to leave tokens out)")
    A = as_array(A, name)
    if dtype_name(A) not in ROW_SUM_TOLERANCE:
        raise ValueError(
            f"{name} has element type {dtype_name(A)}; expected one of {', '.join(ROW_SUM_TOLERANCE)}: "
            "real floating-point attention weights"
        )
    if hasattr(A, "detach"):  # a torch tensor, recognised without importing torch
        A = A.detach()
        if str(A.layout) != "torch.strided" or A.device.type == "meta":
            raise ValueError(f"{name} is a {A.layout} tensor on {A.device}; expected a dense one that holds values")
        A = A.cpu().double().numpy()
    return _read(A, name, dtype=np.float64, order="C")


def describe(batch_index: tuple[int, ...]) -> str:
    """``"matrix [1, 4]"``, or ``"the matrix"`` for a single one."""
    return f"matrix [{', '.join(map(str, batch_index))}]" if batch_index else "the matrix"


def check_stochastic(A: Any, *, substochastic: bool = False) -> Float[np.ndarray, "*batch n n"]:
    """Check that every matrix is row-stochastic and return it in float64, its values unchanged.

    Args:
        A: matrices of shape ``(..., n, n)`` with n >= 2, in float64, float32, float16 or bfloat16.
        substochastic: allow rows that sum to less than 1, as ``restrict(..., renormalize=False)`` leaves them.

    Returns:
        A contiguous float64 array of the same shape.

    Raises:
        ValueError: not square, n < 2, NaN or infinite, an entry outside [0, 1], or a row whose sum differs from
            1 by more than :data:`ROW_SUM_TOLERANCE` of the element type (1e-6 for float64, 1e-5 for float32,
            4e-3 for float16, 3e-2 for bfloat16).  The message names the matrix, the row and the value.
    """
    A = as_array(A)
    matrices = widen(A)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise ValueError(f"A has shape {matrices.shape}; expected (..., n, n): square matrices, query rows first")
    n = matrices.shape[-1]
    if n < 2:
        raise ValueError(f"A has shape {matrices.shape}, n = {n}; expected n >= 2: kappa compares two rows")
    refuse_faults(matrices, dtype_name(A), substochastic=substochastic)
    return matrices


def refuse_faults(matrices: Float[np.ndarray, "*batch n n"], dtype: str, *, substochastic: bool = False) -> None:
    """Raise what :func:`check_stochastic` does for entries and row sums of float64 matrices that were widened from `dtype`."""
    n, tolerance = matrices.shape[-1], ROW_SUM_TOLERANCE[dtype]
    flat = matrices.reshape(-1, n, n)
    faults = np.empty((len(flat), 2), dtype=np.int64)
    _kernels.run(_kernels.first_fault, flat, tolerance, substochastic, out=faults)
    faulty = np.flatnonzero(faults[:, 0] >= 0)
    if not len(faulty):
        return
    index = int(faulty[0])
    row, column = faults[index].tolist()
    where = f"{describe(_unravel(index, matrices.shape[:-2]))}, row {row}"
    if column >= 0:
        raise ValueError(f"{where}: entry in column {column} is {flat[index, row, column]}; expected a finite weight in [0, 1]")
    raise ValueError(
        f"{where} sums to {flat[index, row].sum()}; expected {'at most ' if substochastic else ''}1 within {tolerance:g} "
        f"({dtype}): pass attention after the softmax, in evaluation mode (dropout breaks the sums) and in the type "
        "in which the model computed it"
    )


def _unravel(index: int, batch_shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(k) for k in np.unravel_index(index, batch_shape)) if batch_shape else ()


def lazy(A: Any) -> Float[np.ndarray, "*batch n n"]:
    r"""The rollout factor :math:`\tfrac12(I+A)`: the residual connection keeps half of a token's weight.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.

    Returns:
        float64 array of the same shape, again row-stochastic.

    Raises:
        ValueError: as :func:`check_stochastic`.

    Source: attention rollout, Abnar and Zuidema (2020).
    """
    matrices = check_stochastic(A)
    return 0.5 * (np.eye(matrices.shape[-1]) + matrices)


def token_indices(keep: Any, n: int) -> Int[np.ndarray, " m"]:
    """Indices of the kept tokens, from indices or from a Boolean mask of length n, checked."""
    if isinstance(keep, np.ma.MaskedArray):
        raise ValueError("keep is a masked array; expected plain token indices or a plain Boolean mask")
    chosen = np.asarray(keep.detach().cpu() if hasattr(keep, "detach") else keep)
    if chosen.ndim != 1:
        raise ValueError(f"keep has shape {chosen.shape}; expected one list of token indices or one mask for all matrices")
    if chosen.dtype == np.bool_:
        if len(chosen) != n:
            raise ValueError(f"keep is a mask of length {len(chosen)}; expected {n}, the number of tokens")
        chosen = np.flatnonzero(chosen)
    if len(chosen) == 0:
        raise ValueError("keep selects no token; expected at least 2")
    if not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"keep has element type {chosen.dtype}; expected integer token indices or a Boolean mask")
    outside = chosen[(chosen < 0) | (chosen >= n)]
    if len(outside):
        raise ValueError(f"keep names token {outside[0]}; expected indices from 0 to {n - 1}")
    tokens, counts = np.unique(chosen, return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"keep names token {tokens[counts.argmax()]} {counts.max()} times; expected each at most once")
    if len(chosen) < 2:
        raise ValueError(f"keep selects only token {chosen[0]}; expected at least 2: kappa compares two rows")
    return chosen.astype(np.intp)


def restrict(A: Any, keep: Any, *, renormalize: bool = True) -> Float[np.ndarray, "*batch m m"]:
    r"""Restrict attention to the tokens in ``keep`` (the content tokens): their rows and their columns.

    .. math:: B_{ij} = A_{ij} \Big/ \sum_{k\in\mathrm{keep}} A_{ik}, \qquad i, j \in \mathrm{keep}.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.
        keep: token indices, in the order wanted, or a Boolean mask of length n, as a sequence, array or tensor; the same
            for all matrices.
        renormalize: divide each kept row by its sum (our reading of the paper's "patch subchain").  ``False``
            leaves the rows substochastic: the sensitivity check.

    Returns:
        float64 array of shape ``(..., m, m)``.

    Raises:
        ValueError: as :func:`check_stochastic`; for an empty selection or a single token, a token kept twice,
            an index out of range; and for a kept row whose whole mass lies on removed tokens.
    """
    matrices = check_stochastic(A)
    tokens = token_indices(keep, matrices.shape[-1])
    return restricted(matrices, tokens, np.empty((*matrices.shape[:-2], len(tokens), len(tokens))), renormalize=renormalize)


def restricted(
    matrices: Float[np.ndarray, "*batch n n"],
    tokens: Int[np.ndarray, " m"],
    out: Float[np.ndarray, "*batch m m"],
    *,
    renormalize: bool = True,
) -> Float[np.ndarray, "*batch m m"]:
    """:func:`restrict` of matrices and tokens that were checked before, into `out`."""
    if (np.diff(tokens) == 1).all():  # neighbours: much quicker as a slice
        content = matrices[..., tokens[0] : tokens[-1] + 1, tokens[0] : tokens[-1] + 1]
    else:
        content = matrices[..., tokens[:, None], tokens]
    mass = content.sum(axis=-1, keepdims=True)
    empty = np.argwhere(mass[..., 0] == 0)
    if len(empty):
        *batch_index, row = (int(k) for k in empty[0])
        raise ValueError(
            f"{describe(tuple(batch_index))}, row {tokens[row]}: its whole mass lies on removed tokens (kept mass 0); "
            "expected some attention to a kept token"
        )
    if renormalize:
        return np.divide(content, mass, out=out)
    out[...] = content
    return out
