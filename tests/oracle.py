"""Naive loops over exact rationals: slow, obvious, and independent of the package."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

HALF = Fraction(1, 2)


def exact(matrix) -> list[list[Fraction]]:
    """The stored numbers as fractions: every float is one."""
    return [[Fraction(float(x)) for x in row] for row in matrix]


def tv(F, i, j) -> Fraction:
    return HALF * sum((abs(x - y) for x, y in zip(F[i], F[j], strict=True)), Fraction(0))


def kappa(F) -> Fraction:
    return max(tv(F, i, j) for i, j in combinations(range(len(F)), 2))


def lazy(F):
    return [[HALF * ((i == k) + x) for k, x in enumerate(row)] for i, row in enumerate(F)]


def product(F, G):
    n = range(len(F))
    return [[sum((F[i][k] * G[k][j] for k in n), Fraction(0)) for j in n] for i in n]


def is_good(F, i, j) -> bool:
    """Mutually self-dominant."""
    return F[i][i] >= F[j][i] and F[j][j] >= F[i][j]


@dataclass(frozen=True)
class Verdict:
    kappa: Fraction
    lazy_kappa: Fraction
    gap: Fraction
    holds: bool
    margin: Fraction | float
    pair: tuple[int, int]


def judge(matrix) -> Verdict:
    """By the definitions: the lazy matrix is formed and its coefficient is taken."""
    F = exact(matrix)
    pairs = list(combinations(range(len(F)), 2))
    distance = {pair: tv(F, *pair) for pair in pairs}
    top = max(distance.values())
    attaining = [pair for pair in pairs if distance[pair] == top]
    good = [pair for pair in pairs if is_good(F, *pair)]
    other = [pair for pair in pairs if not is_good(F, *pair)]
    lazy_top = kappa(lazy(F))
    gap = HALF * (1 + top) - lazy_top
    if not other:
        margin = float("inf")
    elif not good:
        margin = float("-inf")
    else:
        margin = max(distance[p] for p in good) - max(distance[p] for p in other)
    return Verdict(top, lazy_top, gap, gap == 0, margin, next((p for p in attaining if p in good), attaining[0]))
