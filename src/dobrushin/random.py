"""Random stochastic matrices and how often they satisfy the equality condition.

The paper's baseline is "uniformly random stochastic matrices"; the other laws ask how much that choice matters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.stats import binomtest

from dobrushin.equality import equality

__all__ = ["LAWS", "Share", "baseline", "gaussian_share", "random_stochastic", "wilson_interval"]


def _dirichlet(n: int, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows n"]:
    weights = rng.standard_exponential((rows, n))
    return weights / weights.sum(axis=-1, keepdims=True)


def _uniform(n: int, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows n"]:
    weights = rng.random((rows, n))
    return weights / weights.sum(axis=-1, keepdims=True)


def _softmax(n: int, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows n"]:
    weights = np.exp(rng.standard_normal((rows, n)))
    return weights / weights.sum(axis=-1, keepdims=True)


def _sparse(n: int, rows: int, rng: np.random.Generator) -> Float[np.ndarray, "rows n"]:
    support = max(2, math.ceil(n / 8))
    matrix = np.zeros((rows, n))
    columns = rng.permuted(np.tile(np.arange(n), (rows, 1)), axis=-1)[:, :support]
    # Multiples of 2^-40 add up exactly: rows sum to 1, and two rows of disjoint support have distance exactly 1.
    weights = np.floor(_dirichlet(support, rows, rng) * 2.0**40) * 2.0**-40
    weights[:, 0] += 1 - weights.sum(axis=-1)
    np.put_along_axis(matrix, columns, weights, axis=-1)
    return matrix


LAWS: dict[str, Callable[[int, int, np.random.Generator], Float[np.ndarray, "rows n"]]] = {
    "dirichlet": _dirichlet,
    "uniform": _uniform,
    "softmax": _softmax,
    "sparse": _sparse,
}
"""Laws of one row; the rows of a matrix are independent.

- ``dirichlet``: Dirichlet(1, ..., 1), the uniform law on the simplex;
- ``uniform``: independent uniform entries, divided by their sum;
- ``softmax``: softmax of independent standard Gaussian scores;
- ``sparse``: Dirichlet(1, ..., 1) on max(2, ceil(n/8)) columns chosen at random, in multiples of 2^-40.
"""


def random_stochastic(n: int, size: int | tuple[int, ...], law: str, rng: np.random.Generator) -> Float[np.ndarray, "*size n n"]:
    """Draw row-stochastic matrices with independent rows.

    Args:
        n: number of tokens, at least 2.
        size: how many matrices, or the batch shape.
        law: a name of :data:`LAWS`.
        rng: NumPy random generator.

    Returns:
        float64 array of shape ``(*size, n, n)``.

    Raises:
        ValueError: unknown law, n < 2 or a negative size.
    """
    if law not in LAWS:
        raise ValueError(f"law is {law!r}; expected one of {', '.join(LAWS)}")
    if n < 2:
        raise ValueError(f"n is {n}; expected at least 2: kappa compares two rows")
    shape = (size,) if isinstance(size, int | np.integer) else tuple(size)
    if any(k < 0 for k in shape):
        raise ValueError(f"size is {size}; expected no negative number")
    return LAWS[law](n, math.prod(shape) * n, rng).reshape(*shape, n, n)


def wilson_interval(count: int, total: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval for a share (Wilson 1927), as computed by SciPy.

    Raises:
        ValueError: total < 1, or count not between 0 and total.
    """
    if total < 1 or not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is no share; expected 0 <= count <= total and total >= 1")
    interval = binomtest(int(count), int(total)).proportion_ci(confidence, method="wilson")
    return float(interval.low), float(interval.high)


def gaussian_share(n: int) -> float:
    r"""Chance that a pair is mutually self-dominant if its rows differ by an exchangeable Gaussian vector of sum zero.

    .. math:: \tfrac14 + \tfrac1{2\pi} \arcsin \tfrac1{n-1}

    Source: Sheppard's formula for two Gaussian signs; the book's chapter on the random baseline.

    Raises:
        ValueError: n < 2.
    """
    if n < 2:
        raise ValueError(f"n is {n}; expected at least 2: a pair needs two tokens")
    return 0.25 + math.asin(1 / (n - 1)) / (2 * math.pi)


@dataclass(frozen=True)
class Share:
    """How many of the matrices drawn satisfy the condition."""

    law: str
    n: int
    draws: int
    holds: int
    fragile: int


def baseline(law: str, n: int, draws: int, seed: int, *, values_at_once: int = 4_000_000) -> Iterator[Share]:
    """Monte-Carlo share of random matrices that satisfy the condition, in growing totals.

    Args:
        law: a name of :data:`LAWS`.
        n: number of tokens.
        draws: number of matrices in the end.
        seed: seeds a generator of its own for every (law, n).
        values_at_once: matrix entries judged at a time; as many more are being drawn.

    Yields:
        The total so far after every chunk of matrices; the last one counts all draws.

    Raises:
        ValueError: as :func:`random_stochastic`, or draws < 1.
    """
    if draws < 1:
        raise ValueError(f"draws is {draws}; expected at least 1")
    rng = np.random.default_rng([seed, *law.encode(), n])
    chunk = max(1, values_at_once // (n * n))
    done = holds = fragile = 0
    with ThreadPoolExecutor(1) as ahead:  # the next matrices are drawn while these are judged
        drawing = ahead.submit(random_stochastic, n, min(chunk, draws), law, rng)
        while done < draws:
            matrices = drawing.result()
            done += len(matrices)
            if done < draws:
                drawing = ahead.submit(random_stochastic, n, min(chunk, draws - done), law, rng)
            verdicts = equality(matrices)
            holds += int(np.sum(verdicts.holds))
            fragile += int(np.sum(verdicts.fragile))
            yield Share(law, n, done, holds, fragile)
