"""Training FT-Transformer as its authors do, and measuring its attention: the paper's Table 3.

A run is a configuration and a seed.  It trains until the validation score has not improved for more than `patience`
epochs, takes the weights of the best epoch, scores them once on the test part, and judges the attention of the first
4,000 test rows in every block but the last.  On one machine and thread a run gives the same bits every time, also
when it was killed and resumed: a checkpoint holds weights, optimiser state and random state after every epoch.

Source: configuration and procedure, Gorishniy et al. (2021); measurement, Rola (2026).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from tqdm import tqdm

from dobrushin import results
from dobrushin._memory import Memory
from dobrushin._rows import Rows
from dobrushin.equality import equality
from dobrushin.fttransformer import FTTransformer, catching_blocks, parameter_groups
from dobrushin.measure import MODEL_ROUNDING
from dobrushin.stochastic import check_stochastic, restrict
from dobrushin.tabular_data import Prepared

__all__ = [
    "CONFIGS",
    "MEASURED_ROWS",
    "SCOPES",
    "Config",
    "Run",
    "build",
    "checkpoint_path",
    "counts",
    "is_finished",
    "judge",
    "predict",
    "score",
    "train",
]

SCOPES = ("content", "content_raw", "all", "head", "averaged")
"""Those of :mod:`dobrushin.measure` that the paper's Table 3 is about; content tokens are the features."""

MEASURED_ROWS = 4000
"""How many test rows are measured, the first ones of the authors' order.  NOTE: the paper does not say which."""

TRACE_ROWS = 512
"""How many validation rows, the first ones, are measured while a network learns."""


@dataclass(frozen=True)
class Config:
    """How a network is built and trained."""

    name: str
    title: str
    table: str
    blocks: int
    width: int = 192
    heads: int = 8
    attention_dropout: float = 0.2
    ffn_dropout: float = 0.1
    batch_size: int = 256
    learning_rate: float = 1e-4
    weight_decay: float = 1e-5
    patience: int = 16


CONFIGS: dict[str, Config] = {
    config.name: config
    for config in (
        Config("california-3", "California, 3 blocks", "california", 3),
        # NOTE: the paper does not say what its 6 blocks are; the 3-block configuration with six blocks is our reading,
        # and the default of the authors' package for six blocks the other one.
        Config("california-6", "California, 6 blocks", "california", 6),
        Config("california-6-default", "California, 6 blocks, d 384", "california", 6, 384, 8, 0.35, 0.25),
        Config("higgs-3", "Higgs, 3 blocks", "higgs", 3, batch_size=512),
        Config("higgs-3-partial", "Higgs, 3 blocks, partial training data", "higgs-partial", 3, batch_size=512),
    )
}


def build(config: Config, features: int) -> FTTransformer:
    """An untrained network of this configuration, from torch's random state."""
    return FTTransformer(
        features, blocks=config.blocks, width=config.width, heads=config.heads,
        attention_dropout=config.attention_dropout, ffn_dropout=config.ffn_dropout,
    )  # fmt: skip


@contextmanager
def _evaluating(module: FTTransformer) -> Iterator[None]:
    module.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        module.train()


def predict(module: FTTransformer, X: Float[np.ndarray, "rows features"], batch_size: int = 1024) -> Float[np.ndarray, " rows"]:
    """The network's output for every row: the standardised target, or the log-odds of class 1."""
    with _evaluating(module):
        parts = [module(torch.from_numpy(X[first : first + batch_size]))[:, 0] for first in range(0, len(X), batch_size)]
    return torch.cat(parts).numpy()


def score(prepared: Prepared, part: str, outputs: Float[np.ndarray, " rows"]) -> float:
    """RMSE in the target's unit (regression), or accuracy."""
    y = prepared.y[part].astype(np.float64)
    if prepared.table.task == "regression":
        return float(np.sqrt(np.mean((outputs - y) ** 2)) * prepared.unit)
    return float(np.mean((outputs > 0) == (y > 0.5)))


def judge(
    module: FTTransformer, X: Float[np.ndarray, "rows features"], *, scopes: tuple[str, ...] = SCOPES, batch_size: int = 1024
) -> pd.DataFrame:
    """Judge the attention of every block but the last on the given rows.

    Columns are those of :mod:`dobrushin.measure`, without what it adds for averages.

    Args:
        module: the network; it is left in training mode.
        X: prepared features.
        scopes: which of :data:`SCOPES`.
        batch_size: rows a call of the network.

    Raises:
        ValueError: an unknown scope.
    """
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise ValueError(f"scope is {unknown[0]!r}; expected some of {', '.join(SCOPES)}")
    keep = np.arange(1, X.shape[1] + 1)
    rows = Rows(Memory())
    totals: dict[int, Float[np.ndarray, "n n"]] = {}

    def consume(layer: int, attention: Any) -> None:
        heads = check_stochastic(attention)
        mean = heads.mean(axis=1)
        totals[layer] = totals.get(layer, 0.0) + mean.sum(axis=0)
        numbers = np.arange(first, first + len(mean))
        if "content" in scopes:
            rows.add("content", layer, numbers, 0, equality(restrict(mean, keep), rounding=MODEL_ROUNDING), len(keep))
        if "content_raw" in scopes:
            raw = equality(restrict(mean, keep, renormalize=False), substochastic=True, rounding=MODEL_ROUNDING)
            rows.add("content_raw", layer, numbers, 0, raw, len(keep))
        if "all" in scopes:
            rows.add("all", layer, numbers, 0, equality(mean, rounding=MODEL_ROUNDING), len(keep) + 1)
        if "head" in scopes:
            each = equality(restrict(heads, keep), rounding=MODEL_ROUNDING)
            rows.add("head", layer, numbers[:, None], np.arange(1, heads.shape[1] + 1), each, len(keep))

    with _evaluating(module), catching_blocks(module, consume):
        for first in range(0, len(X), batch_size):
            module(torch.from_numpy(X[first : first + batch_size]))
    if "averaged" in scopes:
        for layer, total in totals.items():
            verdict = equality(restrict(total / len(X), keep)[None], rounding=MODEL_ROUNDING)
            rows.add("averaged", layer, np.array([-1]), 0, verdict, len(keep))
    table = rows.table()
    table["scope"] = pd.Categorical(table["scope"], SCOPES)
    return table.sort_values(["scope", "layer", "input", "head"], ignore_index=True)


def counts(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Verdicts per scope, layer and head: matrices, how many hold and are fragile, median gap of those that fail."""
    groups = table.groupby(["scope", "layer", "head"], observed=True)
    rows = []
    for key, group in groups:
        scope, layer, head = cast("tuple[str, int, int]", key)
        gaps = group.loc[~group["holds"], "gap"]
        rows.append(
            {
                "scope": scope, "layer": int(layer), "head": int(head), "matrices": len(group),
                "holds": int(group["holds"].sum()), "fragile": int(group["fragile"].sum()),
                "median_kappa": float(group["kappa"].median()), "median_gap": float(gaps.median()) if len(gaps) else None,
            }
        )  # fmt: skip
    return rows


def _traced(epoch: int) -> bool:
    return epoch in (0, 1, 2, 3, 4, 6, 8) or epoch % 4 == 0


def _trace(module: FTTransformer, prepared: Prepared, epoch: int) -> list[dict[str, Any]]:
    table = judge(module, prepared.X["val"][:TRACE_ROWS], scopes=("content", "all", "head", "averaged"))
    totals = table.groupby(["scope", "layer"], observed=True)["holds"].agg(["size", "sum"]).reset_index()
    return [
        {"epoch": epoch, "scope": str(scope), "layer": int(layer), "matrices": int(matrices), "holds": int(holds)}
        for scope, layer, matrices, holds in totals.itertuples(index=False)
    ]


@dataclass
class Run:
    """A network that is learning or has learned."""

    config: Config
    seed: int
    prepared: Prepared
    module: FTTransformer
    optimizer: torch.optim.AdamW
    best: dict[str, torch.Tensor]
    """Weights of the best epoch so far."""
    history: list[dict[str, float]]
    """Per epoch: training loss and validation score."""
    trace: list[dict[str, Any]]
    """Verdicts along training, from the untrained network (epoch 0) on."""
    commits: list[str]
    """At which commits of this project it learned, the first one first."""
    started: str
    """When it began to learn."""
    seconds: float = 0.0
    last: dict[str, torch.Tensor] = field(default_factory=dict)
    """Weights of the last epoch, once the run is finished."""

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return len(self.history)

    @property
    def best_epoch(self) -> int:
        """The first epoch (from 1) with the best validation score; 0 before the first."""
        sign = -1 if self.prepared.table.task == "regression" else 1
        return int(np.argmax([sign * h["validation"] for h in self.history])) + 1 if self.history else 0

    @property
    def finished(self) -> bool:
        """Whether more than `patience` epochs in a row brought nothing."""
        return self.epoch - self.best_epoch > self.config.patience


def _identity(config: Config, seed: int, prepared: Prepared) -> dict[str, Any]:
    return {"config": asdict(config), "seed": seed, "split_sha256": prepared.table.split_sha256}


def _start(config: Config, seed: int, prepared: Prepared) -> Run:
    torch.manual_seed(seed)
    module = build(config, prepared.X["train"].shape[1])
    optimizer = torch.optim.AdamW(parameter_groups(module, config.weight_decay), lr=config.learning_rate)
    return Run(config, seed, prepared, module, optimizer, {}, [], [], [results.git_commit()], results.now())


def checkpoint_path(folder: Path, config: Config, seed: int) -> Path:
    """Where the checkpoint of a run lies."""
    return folder / f"{config.name}-seed{seed}.safetensors"


def is_finished(path: Path) -> bool:
    """Whether the checkpoint is of a run that stopped by its own rule.

    Raises:
        ValueError: the file is no checkpoint of this command.
    """
    return bool(_description(path)["finished"])


def _description(path: Path) -> dict[str, Any]:
    """What a checkpoint says of its run."""
    try:
        with safe_open(path, framework="pt") as file:
            said = json.loads(file.metadata()["run"])
        if missing := [k for k in ("history", "trace", "seconds", "finished", "commits", "started") if k not in said]:
            raise ValueError(f"it lacks {', '.join(missing)}")
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a checkpoint of this command ({error}); delete it, or name another folder") from error
    return cast("dict[str, Any]", said)


def _save(run: Run, path: Path) -> None:
    """Write the checkpoint whole or not at all."""
    tensors = {f"model.{name}": tensor for name, tensor in run.module.state_dict().items()}
    tensors |= {f"best.{name}": tensor for name, tensor in run.best.items()}
    for index, state in run.optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": tensor for name, tensor in state.items()}
    tensors["rng"] = torch.get_rng_state()
    said = _identity(run.config, run.seed, run.prepared) | {
        "history": run.history, "trace": run.trace, "seconds": run.seconds, "finished": run.finished,
        "commits": run.commits, "started": run.started,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".unfinished.{os.getpid()}")
    try:
        save_file(tensors, unfinished, {"run": json.dumps(said)})
        with unfinished.open("rb") as file:
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _resume(run: Run, path: Path) -> None:
    """Bring a run to where its checkpoint left it."""
    said, tensors = _description(path), load_file(path)
    for what, value in json.loads(json.dumps(_identity(run.config, run.seed, run.prepared))).items():
        if said[what] != value:
            raise ValueError(
                f"{path} belongs to another run ({what} {said[what]}, expected {value}); name another folder or --restart"
            )
    parts: dict[str, dict[str, torch.Tensor]] = {"model": {}, "best": {}, "adam": {}}
    for name, tensor in tensors.items():
        group, _, rest = name.partition(".")
        if group in parts:
            parts[group][rest] = tensor
    run.module.load_state_dict(parts["model"])
    run.best, run.history, run.trace, run.seconds = parts["best"], said["history"], said["trace"], said["seconds"]
    run.started, run.commits = said["started"], list(dict.fromkeys([*said["commits"], *([] if run.finished else run.commits)]))
    state: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in parts["adam"].items():
        index, _, what = name.partition(".")
        state.setdefault(int(index), {})[what] = tensor
    run.optimizer.load_state_dict({"state": state, "param_groups": run.optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(tensors["rng"])


def _learn_epoch(run: Run, bar: Any) -> None:
    """One pass over the training rows in random order; the last batch may be smaller."""
    X, y = (torch.from_numpy(a["train"]) for a in (run.prepared.X, run.prepared.y))
    classes = run.prepared.table.task == "classification"
    loss_of = torch.nn.functional.binary_cross_entropy_with_logits if classes else torch.nn.functional.mse_loss
    total = 0.0
    for rows in torch.split(torch.randperm(len(X)), run.config.batch_size):
        run.optimizer.zero_grad()
        loss = loss_of(run.module(X[rows])[:, 0], y[rows])
        loss.backward()  # type: ignore[no-untyped-call]
        run.optimizer.step()
        total += float(loss.detach()) * len(rows)
        bar.update(len(rows))
    validation = score(run.prepared, "val", predict(run.module, run.prepared.X["val"]))
    run.history.append({"loss": total / len(X), "validation": validation})
    if run.best_epoch == run.epoch:
        run.best = {name: tensor.detach().clone() for name, tensor in run.module.state_dict().items()}


def train(
    config: Config, seed: int, prepared: Prepared, folder: Path, *, restart: bool = False, progress: bool = True, threads: int = 1
) -> Run:
    """Train a network, or go on where an earlier call was stopped; a finished run is only loaded.

    Args:
        config: what to train.
        seed: of the initial weights, the batches and dropout.
        prepared: from :func:`dobrushin.tabular_data.prepare`, with the same seed.
        folder: where the checkpoint ``CONFIG-seedS.safetensors`` lies.
        restart: forget an earlier checkpoint.
        progress: show a bar with the epoch, the validation score and the time left until training stops if no
            epoch improves the score from now on.
        threads: of torch; other numbers than 1 may change the last bits.

    Returns:
        The run; its module has the weights of the best epoch.

    Raises:
        ValueError: the checkpoint is of another run or cannot be read.
    """
    path = checkpoint_path(folder, config, seed)
    before, torch_threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        run = _start(config, seed, prepared)
        if path.exists() and not restart:
            _resume(run, path)
        else:
            run.trace += _trace(run.module, prepared, 0)
        rows = len(prepared.X["train"])
        with tqdm(
            total=rows * (max(run.best_epoch, 1) + config.patience + 1), initial=rows * run.epoch, unit="row", unit_scale=True,
            disable=not progress, mininterval=0.2 if sys.stderr.isatty() else 60, smoothing=0.02,
            desc=f"{config.name} seed {seed}",
        ) as bar:  # fmt: skip
            while not run.finished:
                started = time.monotonic()
                _learn_epoch(run, bar)
                if _traced(run.epoch):
                    run.trace += _trace(run.module, prepared, run.epoch)
                run.seconds += time.monotonic() - started
                _save(run, path)
                bar.total = rows * (run.best_epoch + config.patience + 1)
                bar.set_postfix_str(
                    f"epoch {run.epoch}, validation {run.history[-1]['validation']:.4f}, "
                    f"best {run.history[run.best_epoch - 1]['validation']:.4f} in {run.best_epoch}"
                )
        run.last = {name: tensor.clone() for name, tensor in run.module.state_dict().items()}
        run.module.load_state_dict(run.best)
        return run
    finally:
        torch.set_rng_state(before)
        torch.set_num_threads(torch_threads)
