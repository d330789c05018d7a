"""Measuring a model: how often its attention satisfies the equality condition.

One row of the table is a verdict about one matrix, at one layer:

===================  =================================================================================
scope                the matrix
===================  =================================================================================
``content``          the input's attention averaged over heads, restricted to content tokens, renormalised
``content_raw``      the same without renormalising (sensitivity check)
``all``              the input's attention averaged over heads, all tokens
``head``             one head's attention, restricted to content tokens, renormalised
``averaged``         the mean over inputs of the head-averaged attention, restricted, renormalised
``averaged_all``     the mean over inputs of the head-averaged attention, all tokens
``rollout_content``  the rollout of an input's ``content`` matrices over all layers
``rollout_all``      the rollout of an input's ``all`` matrices over all layers
===================  =================================================================================

The paper's columns are shares of rows that hold: per input (content, all), over head-input-layer triples (head),
and the number of layers (averaged).  The rows of averages carry Doeblin's bounds and the carrier, its role and its
leave-one-out score.  Rollout rows are there for their kappa: the depth bound of an input is the product over its
layers of (1 + kappa)/2, and the product of (1 + kappa)/2 - gap what the layers' own factors give.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from tqdm import tqdm

from dobrushin._memory import Memory, trim_heap
from dobrushin._prepare import read_heads
from dobrushin._rows import Rows
from dobrushin.attention import catching_attention
from dobrushin.bounds import doeblin, leave_one_out
from dobrushin.equality import equality, judged
from dobrushin.models import Model, content_mask
from dobrushin.stochastic import ROW_SUM_TOLERANCE, check_stochastic, dtype_name, refuse_faults, restrict, restricted
from dobrushin.work import Work

__all__ = ["MODEL_ROUNDING", "SCOPES", "VERDICTS", "batches", "head_mean", "measure", "provenance", "summary"]

_AVERAGES = ("averaged", "averaged_all")
VERDICTS = ("content", "content_raw", "all", "head", *_AVERAGES)
"""Scopes that ask the condition of a layer."""
SCOPES = (*VERDICTS, "rollout_content", "rollout_all")
"""All scopes, the verdicts on layers, then the rollouts over all layers."""

_COLUMNS = (
    "scope", "layer", "input", "head", "kappa", "gap", "margin", "holds", "fragile", "i", "j", "n",
    "entrywise", "columnwise", "carrier", "role", "score",
)  # fmt: skip

MODEL_ROUNDING = 2.0**-13
"""Relative error assumed of an attention weight computed in float32, for `fragile`.

Rounding adds up over a model's layers: against a run in float64, single weights of MiniLM differ by up to 4e-5
(tests/test_measure.py); renormalising a row doubles that at most."""

CHUNK = 2**18
"""Entries of the matrices that are widened to float64 and judged at a time, if one matrix has not more: 2 MiB."""


def head_mean(attention: Any) -> Float[np.ndarray, "inputs n n"]:
    """Mean over heads, in float64, of attention of shape ``(inputs, heads, n, n)``, checked to be row-stochastic."""
    return check_stochastic(attention).mean(axis=1)


def measure(
    model: Model,
    inputs: Any,
    *,
    batch_size: int = 8,
    progress: bool = True,
    scopes: Iterable[str] | None = None,
    device: str = "cpu",
    work: Work | None = None,
    run: Callable[..., None] | None = None,
) -> pd.DataFrame:
    """Judge every attention matrix of a model on all inputs.

    Inputs are prepared while the batch before them runs.  On the CPU a layer's attention is judged, on all cores, before
    the next layer runs, so that no layer's matrices are kept; an accelerator runs the next layer meanwhile.

    Args:
        model: from :func:`dobrushin.models.load`.
        inputs: from :func:`dobrushin.inputs.sequences`, :func:`dobrushin.inputs.lines` or
            :func:`dobrushin.images.images`.
        batch_size: inputs per call of the model; verdicts are per input.
        progress: show a progress bar.
        scopes: which of :data:`~dobrushin.measure.SCOPES`; all by default, but no averages over inputs of different length.
        device: where the model runs ("cpu", "cuda", "mps").  On "cuda" the distances of rows are computed there too;
            no verdict depends on that.
        work: where finished batches lie; a run that finds some there goes on after them.
        run: what runs the batches; :func:`batches`, on this machine, by default, else a :class:`dobrushin.cluster.Cluster`.

    Returns:
        A table with the columns scope, input (from 0; -1 for averages), layer (from 1; the last for rollouts), head
        (from 1; 0 where heads are averaged), n, kappa, gap, margin, holds, fragile, i and j (the pair), and for
        averages entrywise and columnwise (Doeblin), carrier (a token; -1 elsewhere), its role, and score.

    Raises:
        ValueError: an unknown scope, an average over inputs of different length, or attention that cannot be
            measured (see :func:`dobrushin.attention.catching_attention`).
    """
    chosen, run = _scopes(scopes, inputs), run or batches
    if work is not None:
        run(model, inputs, batch_size, progress, chosen, device, work)
        return _together(inputs, chosen, work)
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), {})
        try:
            run(model, inputs, batch_size, progress, chosen, device, work)
            return _together(inputs, chosen, work)
        finally:
            work.close()


def batches(model: Model, inputs: Any, batch_size: int, progress: bool, scopes: tuple[str, ...], device: str, work: Work) -> None:
    """Run on this machine the batches that `work` does not have yet; arguments and errors as of :func:`measure`."""
    import torch
    from threadpoolctl import threadpool_limits

    module = model.module.to(device)
    there = min(len(inputs), work.done * batch_size)
    bar = tqdm(total=len(inputs), initial=there, desc=model.spec.title, unit="input", disable=not progress)

    def prepared(first: int) -> Any:
        return inputs.batch(first, min(first + batch_size, len(inputs)))

    # The products of rollouts are small: BLAS threads would spend more time waiting for the next one than on them,
    # and the order in which they add up would depend on their number.
    one_thread = threadpool_limits(1, "blas")
    kept = Memory()
    with torch.inference_mode(), _exact_float32(), one_thread, bar, ThreadPoolExecutor(1) as ahead:
        upcoming = ahead.submit(prepared, there) if there < len(inputs) else None
        for first in range(there, len(inputs), batch_size):
            stop = min(first + batch_size, len(inputs))
            roles = [inputs.roles(k) for k in range(first, stop)]
            judge = _Judge(first, roles, scopes, work, device, kept)
            assert upcoming is not None
            batch = {name: tensor.to(device) for name, tensor in upcoming.result().items()}
            upcoming = ahead.submit(prepared, stop) if stop < len(inputs) else None
            trim_heap()
            try:
                with _judging(judge, device) as consume, catching_attention(module, consume, tokens=max(map(len, roles))):
                    model(batch)
                work.finish(judge.table())
            finally:
                work.abandon()
            bar.update(stop - first)


def _together(inputs: Any, scopes: tuple[str, ...], work: Work) -> pd.DataFrame:
    """The table of all batches, with the rows of the averages."""
    parts = [part for part in work.tables() if len(part)]  # empty where only averages are asked for
    roles_of_all = inputs.roles(0)
    keep = np.flatnonzero(content_mask(roles_of_all))
    for layer, total in enumerate(work.totals(len(roles_of_all)), start=1):
        mean = total / len(inputs)
        if "averaged" in scopes:
            parts.append(_average_rows("averaged", layer, restrict(mean, keep), [roles_of_all[k] for k in keep]))
        if "averaged_all" in scopes:
            parts.append(_average_rows("averaged_all", layer, mean, roles_of_all))
    nothing: dict[str, Any] = {"entrywise": np.nan, "columnwise": np.nan, "carrier": np.int16(-1), "role": "", "score": np.nan}
    for part in parts:
        for column, value in nothing.items():
            if column not in part:
                part[column] = value
    table = pd.concat(parts, ignore_index=True)
    table["scope"] = pd.Categorical(table["scope"], SCOPES)
    table["role"] = table["role"].astype("category")
    return table[list(_COLUMNS)].sort_values(["scope", "layer", "input", "head"], ignore_index=True)


def _scopes(scopes: Iterable[str] | None, inputs: Any) -> tuple[str, ...]:
    different = len({inputs.roles(k) for k in range(len(inputs))}) > 1
    if scopes is None:
        return tuple(s for s in SCOPES if not (different and s in _AVERAGES))
    asked = tuple(scopes)
    for scope in asked:
        if scope not in SCOPES:
            raise ValueError(f"scope is {scope!r}; expected some of {', '.join(SCOPES)}")
        if different and scope in _AVERAGES:
            raise ValueError(f"scope {scope!r} is a mean over inputs; expected inputs of one length, with the same tokens")
    if not asked:
        raise ValueError(f"no scope is asked for; expected some of {', '.join(SCOPES)}")
    return tuple(s for s in SCOPES if s in asked)


@contextmanager
def _exact_float32() -> Iterator[None]:
    """Products in full float32 on a GPU too: no TF32."""
    import torch

    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def _judging(judge: _Judge, device: str) -> Iterator[Callable[[int, Any], None]]:
    """What consumes a layer's attention: `judge` itself, or beside an accelerator `judge` in a thread, one layer behind.

    On the CPU judging takes all cores by itself, and being behind would keep one layer's matrices more.  The thread has a
    heap of its own there too, so that what judging leaves does not lie among the model's matrices.
    """
    import torch

    behind = torch.device(device).type != "cpu"
    with ThreadPoolExecutor(1) as thread:
        pending: list[Future[None]] = []

        def hand_over(layer: int, attention: Any) -> None:
            if pending:
                pending.pop().result()
            pending.append(thread.submit(judge, layer, attention))
            if not behind:
                pending.pop().result()

        yield hand_over
        if pending:
            pending.pop().result()


class _Judge:
    """Judges the layers of one batch as they come; keeps rows, and of the rollouts the product so far."""

    def __init__(
        self, first: int, roles: Sequence[tuple[str, ...]], scopes: tuple[str, ...], work: Work, device: str, kept: Memory
    ) -> None:
        self.first, self.scopes, self.work, self.device = first, scopes, work, device
        self.kept = kept  # over the layers, and by the next batch
        self.memory = Memory()  # of one layer
        self.groups: dict[tuple[str, ...], list[int]] = {}  # inputs that have the same tokens are judged together
        for k, one in enumerate(roles):
            self.groups.setdefault(one, []).append(k)
        self.rows = Rows(kept)
        self.rollouts: dict[tuple[str, tuple[int, ...]], Float[np.ndarray, "inputs n n"]] = {}
        self.layer = 0

    def __call__(self, layer: int, attention: Any) -> None:
        """Judge a layer's attention."""
        self.layer, dtype = layer, dtype_name(attention)
        weights = (attention if dtype == "float64" else attention.float()).cpu().contiguous().numpy()
        for roles, members in self.groups.items():
            n, total = len(roles), None  # padding comes after it: its columns are exactly 0, its rows are dropped
            some = max(1, CHUNK // (n * n))
            for start in range(0, len(members), some):
                chosen = members[start : start + some]
                mean = self._heads(roles, chosen, weights, dtype)
                self._means(roles, chosen, mean)
                if any(scope in self.scopes for scope in _AVERAGES):
                    for one in mean:
                        if total is None:
                            total = self.memory.array("total", n, n)
                            total[...] = one
                        else:
                            total += one
            if total is not None:
                self.work.add(total)
        self.memory = Memory()  # the model's own peak is still to come

    def _heads(self, roles: tuple[str, ...], chosen: list[int], weights: np.ndarray, dtype: str) -> np.ndarray:
        """Check and judge some inputs' heads, a few at a time; their mean."""
        n, count = len(roles), weights.shape[1]
        keep = np.flatnonzero(content_mask(roles)) if "head" in self.scopes else np.array([], dtype=np.intp)
        mean = self.memory.array("mean", len(chosen), n, n)
        mean[...] = 0
        few = max(1, CHUNK // (count * n * n))  # inputs whose heads are judged at a time; of one input, `some` heads
        some = max(1, CHUNK // (n * n))
        for at in range(0, len(chosen), few):
            part = chosen[at : at + few]
            for start in range(0, count, some):
                stop = min(start + some, count)
                content = self.memory.array("content", len(part), stop - start, len(keep), len(keep))
                for place, k in enumerate(part):
                    if not read_heads(weights[k, start:stop], keep, ROW_SUM_TOLERANCE[dtype], mean[at + place], content[place]):
                        self._refuse(weights, part, keep, n, dtype)
                if len(keep):
                    self._judge("head", part, content, first_head=start + 1)
        mean /= count
        return mean

    def _refuse(self, weights: np.ndarray, chosen: list[int], keep: np.ndarray, n: int, dtype: str) -> None:
        """Raise what is wrong with the inputs' heads, and name the matrix by its place in the batch."""
        wide = weights.astype(np.float64)
        refuse_faults(wide, dtype)
        if len(keep):
            others = np.setdiff1d(np.arange(len(wide)), chosen)
            wide[others] = 1 / wide.shape[-1]  # theirs are other tokens
            restricted(wide[..., :n, :n], keep, np.empty((*wide.shape[:2], len(keep), len(keep))))

    def _means(self, roles: tuple[str, ...], chosen: list[int], mean: np.ndarray) -> None:
        """Judge some inputs' attention averaged over heads."""
        keep = np.flatnonzero(content_mask(roles))
        content = self.memory.array("content", len(chosen), len(keep), len(keep))
        if "content" in self.scopes or "rollout_content" in self.scopes:
            restricted(mean, keep, content)
            if "content" in self.scopes:
                self._judge("content", chosen, content)
            self._roll("rollout_content", chosen, content)
        if "content_raw" in self.scopes:
            self._judge("content_raw", chosen, restricted(mean, keep, content, renormalize=False), substochastic=True)
        if "all" in self.scopes:
            self._judge("all", chosen, mean)
        self._roll("rollout_all", chosen, mean)

    def _judge(
        self, scope: str, chosen: list[int], matrices: np.ndarray, *, first_head: int = 0, substochastic: bool = False
    ) -> None:
        numbers, n, placed = self.first + np.array(chosen), matrices.shape[-1], _placed(matrices, self.device)
        if first_head and n > 1:  # `read_heads` has checked them
            verdicts = judged(placed, matrices, MODEL_ROUNDING)
        else:
            verdicts = equality(placed, rounding=MODEL_ROUNDING, substochastic=substochastic)
        if first_head:
            each = np.arange(first_head, first_head + matrices.shape[1])
            self.rows.add(scope, self.layer, numbers[:, None], each, verdicts, n)
        else:
            self.rows.add(scope, self.layer, numbers, 0, verdicts, n)

    def _roll(self, scope: str, chosen: list[int], matrices: np.ndarray) -> None:
        if scope not in self.scopes:
            return
        so_far = self.rollouts.get((scope, tuple(chosen)))
        if so_far is None:
            so_far = self.kept.array(f"{scope} from {chosen[0]}", *matrices.shape)
            np.add(matrices, np.eye(matrices.shape[-1]), out=so_far)
            so_far *= 0.5
            self.rollouts[scope, tuple(chosen)] = so_far
            return
        factor, product = (self.memory.array(name, *matrices.shape[1:]) for name in ("factor", "product"))
        for matrix, before in zip(matrices, so_far, strict=True):
            np.add(matrix, np.eye(len(matrix)), out=factor)
            factor *= 0.5
            before[...] = np.matmul(factor, before, out=product)

    def table(self) -> pd.DataFrame:
        """All rows of the batch, those of the rollouts too."""
        for (scope, chosen), product in self.rollouts.items():
            # Rows of float32 attention sum to 1 within 1e-6; over many layers that adds up.
            self._judge(scope, list(chosen), np.divide(product, product.sum(axis=-1, keepdims=True), out=product))
        return self.rows.table()


def _placed(matrices: np.ndarray, device: str) -> Any:
    """The matrices where `equality` shall compute distances.  Not on MPS: it has no float64, in which they are stored."""
    import torch

    return torch.from_numpy(matrices).to(device) if torch.device(device).type == "cuda" else matrices


def _average_rows(scope: str, layer: int, mean: np.ndarray, roles: Sequence[str]) -> pd.DataFrame:
    row = Rows(Memory())
    row.add(scope, layer, np.array([-1]), 0, equality(mean[None], rounding=MODEL_ROUNDING), mean.shape[-1])
    bounds, scores = doeblin(mean), leave_one_out(mean)
    carrier = int(scores.argmax())
    return row.table().assign(
        entrywise=float(bounds.entrywise), columnwise=float(bounds.columnwise), carrier=np.int16(carrier), role=roles[carrier],
        score=float(scores[carrier]),
    )  # fmt: skip


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """Verdicts per scope: how many matrices, how many satisfy the condition, their share, how many are fragile."""
    table = table[table["scope"].isin(VERDICTS)]
    grouped = table.groupby("scope", observed=True)["holds"]
    counts = pd.DataFrame({"matrices": grouped.size(), "holds": grouped.sum().astype(int)})
    counts["share"] = counts["holds"] / counts["matrices"]
    counts["fragile"] = table.groupby("scope", observed=True)["fragile"].sum().astype(int)
    return counts


def provenance(model: Model, inputs: Any, *, started: str, command: str) -> dict[str, Any]:
    """What a result must say of how it was made; :func:`dobrushin.results.write` adds the rest."""
    parameter, spec = next(model.module.parameters()), model.spec
    of_folder = spec.local is not None  # whose path is this machine's own affair
    described: dict[str, Any] = {
        "name": f"{spec.source}:{spec.title}" if of_folder else spec.name,
        "title": spec.title,
        "training": spec.training,
        "checkpoint": spec.title if of_folder else spec.checkpoint,
        "revision": model.revision,
        "package": _package(spec.package.replace("_", "-") or {"timm": "timm"}.get(spec.source, "transformers")),
        "weights_sha256": model.weights_sha256,
        "status": spec.status,
        "dtype": str(parameter.dtype).removeprefix("torch."),
        "parameters": sum(p.numel() for p in model.module.parameters()),
    }
    if model.takes == "images":
        described["preprocessing"] = dict(model.preprocessing)
    roles: list[list[Any]] = []
    for role in inputs.roles(0):
        if roles and roles[-1][0] == role:
            roles[-1][1] += 1
        else:
            roles.append([role, 1])
    return {
        "kind": "measurement",
        "command": command,
        "model": described,
        "inputs": inputs.describe() | {"roles": roles},
        "device": str(parameter.device),
        "seed": model.seed,
        "started": started,
    }


def _package(name: str) -> str:
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:  # an untrained model whose weights' package is not installed
        return name
