r"""The Dobrushin coefficient of a stochastic matrix.

.. math:: \kappa(A) = \max_{i \ne j} \mathrm{TV}_{ij}(A), \qquad
          \mathrm{TV}_{ij}(A) = \tfrac12 \sum_k |A_{ik} - A_{jk}|.

It is 0 when all rows agree, 1 when two rows have disjoint supports, and contracts:
:math:`\kappa(AB) \le \kappa(A)\,\kappa(B)`.

Source: Dobrushin (1956); see also Seneta (2006), section 3.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from dobrushin import _kernels
from dobrushin.equality import equality
from dobrushin.stochastic import check_stochastic

__all__ = ["coefficient", "pairwise_tv"]


def coefficient(A: Any, *, substochastic: bool = False) -> Float[np.ndarray, "*batch"] | float:
    r"""Dobrushin coefficient :math:`\kappa(A)`, the largest total-variation distance between two rows.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.
        substochastic: allow rows that sum to less than 1.

    Returns:
        Values between 0 and 1 of shape ``(...)``; a float for a single matrix.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.
    """
    return equality(A, substochastic=substochastic).kappa


def pairwise_tv(A: Any, *, substochastic: bool = False) -> Float[np.ndarray, "*batch n n"]:
    r"""Total-variation distances :math:`\mathrm{TV}_{ij}(A)` of all pairs of rows.

    Args:
        A: row-stochastic matrices of shape ``(..., n, n)``.
        substochastic: allow rows that sum to less than 1.

    Returns:
        Symmetric float64 array of shape ``(..., n, n)`` with zero diagonal.

    Raises:
        ValueError: as :func:`~dobrushin.stochastic.check_stochastic`.
    """
    matrices = check_stochastic(A, substochastic=substochastic)
    n = matrices.shape[-1]
    distances = np.empty_like(matrices)
    _kernels.run(_kernels.tv_matrix, matrices.reshape(-1, n, n), out=distances.reshape(-1, n, n))
    return distances
