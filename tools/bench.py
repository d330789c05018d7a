"""Time the verdicts beside what else computes kappa, and measuring a model beside running it.

Contenders take turns in one process and the shortest of several runs counts.  On one core the time is that of the
processor, which other work on the machine lengthens little; what to read are the ratios within one table.

    python tools/bench.py [--sizes 8,32] [--seconds 1] [--only kernels]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numba import njit
from scipy.spatial.distance import pdist

import bench_measure
from bench_measure import cores
from dobrushin import equality, models, random_stochastic, restrict, results
from dobrushin.attention import catching_attention
from dobrushin.images import default_pictures, images
from dobrushin.inputs import default_text, sequences
from dobrushin.models import content_mask
from dobrushin.random import baseline
from dobrushin.speed_figures import BENCH, ratios

SIZES = (8, 32, 128, 256, 500, 1024)
ALL_CORES = len(os.sched_getaffinity(0))
LONGEST_TEXT = 510
"""Words that MiniLM takes; longer inputs are images of 32 × 32 patches."""
DIFFERENCES = {"compiled": 320_000_000, "others": 20_000_000}
"""Of a timed batch: as many matrices as have about so many |A_ik - A_jk|, but at most 1000; those others take longer."""


@njit(nogil=True, cache=True, fastmath=True)
def _loop(A, out):  # type: ignore[no-untyped-def]
    """The plain loop over pairs: half the largest L1 distance of two rows."""
    n = A.shape[1]
    for b in range(A.shape[0]):
        largest = A.dtype.type(0)
        for i in range(n):
            for j in range(i + 1, n):
                total = A.dtype.type(0)
                for k in range(n):
                    total += abs(A[b, i, k] - A[b, j, k])
                largest = max(largest, total)
        out[b] = largest / 2


@njit(nogil=True, cache=True, fastmath=True)
def _limit(A, out):  # type: ignore[no-untyped-def]
    """As many |x - y| as the plain loop adds up, of rows that never leave the first-level cache, four in a turn."""
    n = A.shape[1]
    kept = A[0, : min(n, 8)].copy()
    for b in range(A.shape[0]):
        largest = A.dtype.type(0)
        for turn in range(n * (n - 1) // 8):
            x = kept[turn % len(kept)]
            first = (turn // len(kept)) % max(1, len(kept) - 3)
            w0, w1, w2, w3 = kept[first], kept[first + 1], kept[first + 2], kept[first + 3]
            s0 = s1 = s2 = s3 = A.dtype.type(0)
            for k in range(n):
                s0 += abs(x[k] - w0[k])
                s1 += abs(x[k] - w1[k])
                s2 += abs(x[k] - w2[k])
                s3 += abs(x[k] - w3[k])
            largest = max(largest, s0 + s1 + s2 + s3)
        out[b] = largest


def _compiled(kernel: Callable[..., None], A: np.ndarray) -> np.ndarray:
    out = np.empty(len(A), A.dtype)
    kernel(A, out)
    return out


def _cdist(A: np.ndarray) -> np.ndarray:
    T = torch.from_numpy(A)
    return (torch.cdist(T, T, p=1).amax(dim=(1, 2)) / 2).numpy()


def _broadcast(A: np.ndarray) -> np.ndarray:
    return np.array([np.abs(M[:, None] - M[None]).sum(axis=-1).max() / 2 for M in A])


def _pdist(A: np.ndarray) -> np.ndarray:
    return np.array([pdist(M, "cityblock").max() / 2 for M in A])


CONTENDERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "torch.cdist": _cdist,
    "scipy pdist": _pdist,
    "NumPy broadcast": _broadcast,
    "numba loop": lambda A: _compiled(_loop, A),
    "arithmetic limit": lambda A: _compiled(_limit, A),
    "equality": lambda A: np.asarray(equality(A).kappa),
}
NOT_KAPPA = ("arithmetic limit",)
COMPILED = ("numba loop", "arithmetic limit", "equality")
SCALED = ((8, 200_000), (32, 50_000), (256, 500))
"""Tokens and matrices of the batches that are shared out over cores."""
LARGEST_BROADCAST = 256
"""Tokens; beyond, the three-dimensional array of all differences takes gigabytes."""


def best_times(
    contenders: dict[str, Callable[[], Any]], seconds: float, clock: Callable[[], float]
) -> dict[str, tuple[float, int]]:
    """Shortest time of each in seconds, and of how many runs: in turns, at least 3 each, at most 200."""
    for contender in contenders.values():
        contender()  # compiles, and fills caches
    best = dict.fromkeys(contenders, np.inf)
    runs, started = 0, time.perf_counter()
    while runs < 3 or (runs < 200 and time.perf_counter() - started < seconds * len(contenders)):
        for name, contender in contenders.items():
            before = clock()
            contender()
            best[name] = min(best[name], clock() - before)
        runs += 1
    return {name: (best[name], runs) for name in contenders}


def attention(n: int, count: int) -> np.ndarray:
    """Up to `count` matrices of single heads between n content tokens of one input of a trained model."""
    if n <= LONGEST_TEXT:
        model = models.load("minilm")
        inputs: Any = sequences(model.tokenizer, default_text(), 1, n + 2)
    else:
        model = models.load("dinov2-s-saliency", size=14 * round(n**0.5))
        inputs = images(model, default_pictures(1))
    keep = np.flatnonzero(content_mask(inputs.roles(0)))
    found: list[np.ndarray] = []

    def consume(_layer: int, matrices: Any) -> None:
        if sum(len(part) for part in found) < count:
            found.append(restrict(matrices, keep)[0])

    with torch.inference_mode(), catching_attention(model.module, consume):
        model(inputs.batch(0, 1))
    there = np.concatenate(found)
    return there[np.arange(count) % len(there)]  # short inputs: the same ones again


def _count(n: int, kind: str) -> int:
    return max(1, min(1000, 2 * DIFFERENCES[kind] // n**3))


def kernels(sizes: tuple[int, ...], seconds: float) -> pd.DataFrame:
    """Processor time on one core; one row a contender, size, element type and kind of matrix."""
    rows = []
    for n in sizes:
        drawn = random_stochastic(n, _count(n, "compiled"), "dirichlet", np.random.default_rng(n))
        for matrices, A in (("uniform on the simplex", drawn), ("attention", attention(n, _count(n, "compiled")))):
            for dtype in (np.float64, np.float32):
                stored = A.astype(dtype)
                batches = {name: stored[: _count(n, "compiled" if name in COMPILED else "others")] for name in CONTENDERS}
                running: dict[str, Callable[[], np.ndarray]] = {
                    name: partial(contender, batches[name])
                    for name, contender in CONTENDERS.items()
                    if name != "NumPy broadcast" or n <= LARGEST_BROADCAST
                }
                with cores(1):
                    kappa = CONTENDERS["equality"](stored)
                    for name in running.keys() - set(NOT_KAPPA):  # all compute the same before they are timed
                        np.testing.assert_allclose(running[name](), kappa[: len(batches[name])], atol=1e-4)
                    for name, (best, runs) in best_times(running, seconds, time.process_time).items():
                        one = {"n": n, "dtype": np.dtype(dtype).name, "matrices": matrices, "contender": name}
                        rows.append(one | {"count": len(batches[name]), "runs": runs, "seconds": best / len(batches[name])})
                print(f"n = {n}, {matrices}, {np.dtype(dtype).name}", file=sys.stderr)
    return pd.DataFrame(rows)


def scaling(seconds: float) -> pd.DataFrame:
    """Time by the clock of one large batch on one core, on two, up to all of them."""
    rows = []
    for n, count in SCALED:
        A = random_stochastic(n, count, "dirichlet", np.random.default_rng(n))

        def on(number: int, A: np.ndarray = A) -> None:
            with cores(number):
                equality(A)

        numbers = sorted({1, *(2**k for k in range(1, 8) if 2**k < ALL_CORES), ALL_CORES})
        times = best_times({str(number): partial(on, number) for number in numbers}, seconds, time.perf_counter)
        alone = times["1"][0]
        for number in numbers:
            best, runs = times[str(number)]
            rows.append({"n": n, "count": count, "cores": number, "runs": runs, "seconds": best, "speed_up": alone / best})
    return pd.DataFrame(rows)


def random_baseline(n: int, draws: int) -> pd.DataFrame:
    """How long the random baseline takes on all cores."""
    before, busy = time.perf_counter(), time.process_time()
    for share in baseline("dirichlet", n, draws, 0):
        last = share
    took = {"seconds": time.perf_counter() - before, "processor_seconds": time.process_time() - busy}
    return pd.DataFrame([{"n": n, "draws": last.draws, "holds": last.holds, "cores": ALL_CORES, **took}])


def main() -> int:
    """Run the benchmark, print its tables and store them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=lambda text: tuple(map(int, text.split(","))), default=SIZES, help="numbers of tokens")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each contender and table row")
    parser.add_argument("--only", choices=("kernels", "scaling", "baseline", "measuring", "memory"), help="one of the tables")
    parser.add_argument("--output", type=Path, default=BENCH, help="folder of the tables")
    options = parser.parse_args()

    parts: dict[str, Callable[[], pd.DataFrame]] = {
        "kernels": lambda: kernels(options.sizes, options.seconds),
        "scaling": lambda: scaling(6 * options.seconds),  # all cores must be free at once: the shortest of more runs
        "baseline": lambda: random_baseline(256, 10_000),
        "measuring": bench_measure.measuring,
        "memory": bench_measure.memory,
    }
    for name, make in parts.items():
        if options.only not in (None, name):
            continue
        started = results.now()
        table = make()
        print((ratios(table) if name == "kernels" else table).round(3).to_string())
        results.write(table, {"kind": "bench", "command": "make bench", "started": started}, name, options.output)
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
