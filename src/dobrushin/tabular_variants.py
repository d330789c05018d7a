r"""Table 3 under every reading that the paper leaves open, on networks that are already trained.

A variant changes one thing of the measurement as we read it (``base``): which rows, what is averaged and restricted in
which order, how equality is decided, or what the network computes.  The columns are the paper's: ``features`` and
``all`` count rows whose matrix satisfies the condition, ``averaged`` says whether the mean over rows does, restricted
to the features.  For ``base`` two more say why: ``directions`` counts the ordered pairs of features, over all rows,
with :math:`A_{ii} \ge A_{ji}`, and ``pairs`` the pairs that are mutually self-dominant, whether they attain kappa or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float

from dobrushin.equality import equality
from dobrushin.fttransformer import FTTransformer, catching_blocks
from dobrushin.stochastic import check_stochastic, restrict
from dobrushin.tabular import MEASURED_ROWS, Run
from dobrushin.tabular_data import prepare

__all__ = ["TITLES", "TOLERANCES", "matrices", "study"]

Stack = Float[np.ndarray, "... n n"]
Verdicts = Bool[np.ndarray, "..."]

TOLERANCES = (1e-6, 1e-5, 1e-4, 1e-3)
"""Gaps up to which a program with a tolerance would speak of equality."""

DRAWS = 5
"""How many random choices of rows."""

TITLES: dict[str, str] = {
    "base": "as measured",
    "last": "the last rows of the test part",
    "everything": "every row of the test part",
    **{f"draw{k}": f"rows drawn at random, draw {k + 1}" for k in range(DRAWS)},
    "raw": "restricted, not renormalised",
    "heads_restricted": "each head restricted and renormalised, then the mean over heads",
    "inputs_restricted": "averaged: each row's matrix restricted and renormalised, then the mean over rows",
    "geometric": "geometric instead of arithmetic mean over heads",
    "heads": "each head on its own",
    **{f"gap{t:g}": f"equality where the gap is at most {t:g}" for t in TOLERANCES},
    "float32_zero": "float32 arithmetic, equality where ½(1+κ(A)) − κ(½(I+A)) is exactly 0",
    "float32_close": "float32 arithmetic, equality where the two sides are close by numpy.isclose",
    "float32_pair": "float32 arithmetic, the condition at one attaining pair",
    "no_noise": "features prepared without noise (the network learned with it)",
    "last_epoch": "weights of the last epoch instead of the best",
    "float64": "the network evaluated in float64",
}
"""What each variant is."""


def _caught(module: FTTransformer, X: Float[np.ndarray, "rows features"], reduce: Callable[[Any], Any]) -> dict[int, Any]:
    """Attention of every block but the last, of shape (rows, ...), after `reduce` has seen each batch's heads."""
    parts: dict[int, list[Any]] = {}

    def consume(layer: int, attention: Any) -> None:
        parts.setdefault(layer, []).append(reduce(check_stochastic(attention)))

    kind = next(module.parameters()).dtype
    module.eval()
    with torch.inference_mode(), catching_blocks(module, consume):
        for first in range(0, len(X), 1024):
            module(torch.from_numpy(X[first : first + 1024]).to(kind))
    return {layer: np.concatenate(stacks) for layer, stacks in parts.items()}


def _mean(heads: Float[np.ndarray, "b h n n"]) -> Float[np.ndarray, "b n n"]:
    return heads.mean(axis=1)


def _geometric_mean(heads: Float[np.ndarray, "b h n n"]) -> Float[np.ndarray, "b n n"]:
    """The mean of the scores before softmax, up to a constant a row; weights that are 0 in float32 count as its least."""
    mean = np.exp(np.log(np.maximum(heads, np.finfo(np.float32).tiny)).mean(axis=1))
    return mean / mean.sum(axis=-1, keepdims=True)


def _exactly(A: Stack) -> Verdicts:
    return np.asarray(equality(A).holds)


def _within(tolerance: float) -> Callable[[Stack], Verdicts]:
    return lambda A: np.asarray(equality(A).gap) <= tolerance


def _distances_float32(A: Float[np.ndarray, "b n n"]) -> Float[np.ndarray, "b n n"]:
    """Total-variation distance of all pairs of rows, as a program in float32 forms it."""
    A = A.astype(np.float32)
    total = np.zeros(A.shape, dtype=np.float32)
    for k in range(A.shape[-1]):
        total += np.abs(A[:, :, None, k] - A[:, None, :, k])
    return np.float32(0.5) * total


def _sides_float32(A: Float[np.ndarray, "b n n"]) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """Both sides of the bound in float32."""
    half = np.float32(0.5)
    lazy = half * (np.eye(A.shape[-1], dtype=np.float32) + A.astype(np.float32))
    left, right = (_distances_float32(M).max(axis=(1, 2)) for M in (lazy, A))
    return left, half * (1 + right)


def _zero_float32(A: Float[np.ndarray, "b n n"]) -> Verdicts:
    left, right = _sides_float32(A)
    return left == right


def _close_float32(A: Float[np.ndarray, "b n n"]) -> Verdicts:
    return np.isclose(*_sides_float32(A))


def _pair_float32(A: Float[np.ndarray, "b n n"]) -> Verdicts:
    n = A.shape[-1]
    i, j = np.divmod(_distances_float32(A).reshape(len(A), n * n).argmax(axis=1), n)
    rows, A = np.arange(len(A)), A.astype(np.float32)
    return (A[rows, i, i] >= A[rows, j, i]) & (A[rows, j, j] >= A[rows, i, j])


def _self_dominance(A: Float[np.ndarray, "b n n"]) -> tuple[Bool[np.ndarray, " _"], Bool[np.ndarray, " _"]]:
    """For all matrices: whether a_ii >= a_ji, for ordered pairs i, j; and whether both hold, for pairs."""
    n = A.shape[-1]
    reaches = A.diagonal(axis1=-2, axis2=-1)[:, None, :] >= A  # at j, i
    directions = reaches[:, ~np.eye(n, dtype=bool)]
    pairs = (reaches & reaches.swapaxes(-1, -2))[:, *np.triu_indices(n, 1)]
    return directions.ravel(), pairs.ravel()


_JUDGES: dict[str, Callable[[Any], Any]] = {
    **{f"gap{t:g}": _within(t) for t in TOLERANCES},
    "float32_zero": _zero_float32,
    "float32_close": _close_float32,
    "float32_pair": _pair_float32,
}


def matrices(run: Run, rows: int = MEASURED_ROWS) -> pd.DataFrame:
    """Attention to look at, of every block but the last: all tokens, head-averaged, in long form.

    Columns are layer, which, input (from 0; -1 for the mean), i, j and weight.  `which` is ``mean`` (over the rows),
    or one test row judged on its features: ``fails``, that with the median gap among those at which the condition
    fails, and ``holds``, that with the median kappa among those at which it holds (where there are any).
    """
    keep = np.arange(1, run.prepared.X["test"].shape[1] + 1)
    parts = []
    for layer, A in _caught(run.module, run.prepared.X["test"][:rows], _mean).items():
        verdicts = equality(restrict(A, keep))
        holds, fails = np.flatnonzero(verdicts.holds), np.flatnonzero(~verdicts.holds)
        chosen = [("mean", -1, A.mean(axis=0))]
        for which, members, measure in (("fails", fails, verdicts.gap), ("holds", holds, verdicts.kappa)):
            if len(members):
                row = int(members[np.argsort(np.asarray(measure)[members], kind="stable")[len(members) // 2]])
                chosen.append((which, row, A[row]))
        for which, row, matrix in chosen:
            i, j = np.indices(matrix.shape).reshape(2, -1).astype(np.int8)
            parts.append(pd.DataFrame({"layer": layer, "which": which, "input": row, "i": i, "j": j, "weight": matrix.ravel()}))
    table = pd.concat(parts, ignore_index=True)
    return table.astype({"layer": "int16", "input": "int32", "which": pd.CategoricalDtype(["mean", "fails", "holds"])})


def study(run: Run, rows: int = MEASURED_ROWS) -> pd.DataFrame:
    """Count verdicts under every variant of :data:`TITLES`.

    Args:
        run: finished, from :func:`dobrushin.tabular.train`; its module keeps the weights of the best epoch.
        rows: how many test rows a choice has.

    Returns:
        A table with the columns variant, column (features, all, averaged, directions, pairs), layer, matrices (for the
        last two: pairs) and holds.
    """
    X, found = run.prepared.X["test"], []
    keep = np.arange(1, X.shape[1] + 1)
    whole = _caught(run.module, X, _mean)

    def add(variant: str, layer: int, column: str, holds: Any) -> None:
        holds = np.atleast_1d(holds)
        found.append({"variant": variant, "column": column, "layer": layer, "matrices": holds.size, "holds": int(np.sum(holds))})

    def add_all(variant: str, means: dict[int, Any], judge: Callable[[Any], Any] = _exactly) -> None:
        for layer, A in means.items():
            add(variant, layer, "features", judge(restrict(A, keep)))
            add(variant, layer, "all", judge(A))
            add(variant, layer, "averaged", judge(restrict(A.mean(axis=0), keep)[None]))

    first = {layer: A[:rows] for layer, A in whole.items()}
    add_all("base", first)
    add_all("last", {layer: A[-rows:] for layer, A in whole.items()})
    add_all("everything", whole)
    for draw in range(DRAWS):
        chosen = np.random.default_rng(draw).permutation(len(X))[:rows]
        add_all(f"draw{draw}", {layer: A[chosen] for layer, A in whole.items()})
    for variant, judge in _JUDGES.items():
        add_all(variant, first, judge)

    for layer, A in first.items():
        directions, pairs = _self_dominance(restrict(A, keep))
        add("base", layer, "directions", directions)
        add("base", layer, "pairs", pairs)
        for column, matrices in (("features", A), ("averaged", A.mean(axis=0)[None])):
            raw = restrict(matrices, keep, renormalize=False)
            add("raw", layer, column, equality(raw, substochastic=True).holds)
        add("inputs_restricted", layer, "averaged", _exactly(restrict(A, keep).mean(axis=0)[None]))

    heads_restricted = _caught(run.module, X[:rows], lambda heads: restrict(heads, keep).mean(axis=1))
    for layer, A in heads_restricted.items():
        add("heads_restricted", layer, "features", _exactly(A))
        add("heads_restricted", layer, "averaged", _exactly(A.mean(axis=0)[None]))
    for column, verdicts in (
        ("features", _caught(run.module, X[:rows], lambda heads: _exactly(restrict(heads, keep)))),
        ("all", _caught(run.module, X[:rows], _exactly)),
    ):
        for layer, holds in verdicts.items():
            add("heads", layer, column, holds)
    add_all("geometric", _caught(run.module, X[:rows], _geometric_mean))

    noiseless = prepare(run.prepared.table, run.seed, noise=0.0)
    add_all("no_noise", _caught(run.module, noiseless.X["test"][:rows], _mean))
    try:
        run.module.load_state_dict(run.last)
        add_all("last_epoch", _caught(run.module, X[:rows], _mean))
        run.module.load_state_dict(run.best)
        add_all("float64", _caught(run.module.double(), X[:rows], _mean))
    finally:
        run.module.float().load_state_dict(run.best)
    table = pd.DataFrame(found).astype({"layer": "int16", "matrices": "int32", "holds": "int32"})
    return table.astype({"variant": pd.CategoricalDtype(list(TITLES)), "column": "category"})
