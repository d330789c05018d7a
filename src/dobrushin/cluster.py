"""Measuring on a Dask cluster: every batch of inputs is a task, and the table is that of one machine.

A worker loads the model once and runs the batches that one machine would run, with as many threads: the order of
floating-point operations depends on both.  Finished batches come back and go into the same work folder, added up in
the order of the inputs, so that a run may stop on a cluster and go on without.  The batches of a worker that dies
go to another one.

The scheduler and all workers need this package and its extra `cluster`, in the versions of the machine that asks.
"""

from __future__ import annotations

import hashlib
import tempfile
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from dobrushin import results
from dobrushin.work import Work

__all__ = ["Cluster", "connected"]

_PATIENCE = 10
"""Seconds that a scheduler has to answer, and after which a run without workers says so."""
_AHEAD = 3
"""Batches under way for each worker, those that wait for their turn included."""
_ALONE = threading.Lock()  # the model's hooks and Numba's threads are not for two threads of a worker at a time


@dataclass(frozen=True)
class _Request:
    """What a worker needs to have the same model, and to run it in the same way."""

    name: str
    untrained: bool
    size: int | None
    seed: int
    download: bool
    device: str
    weights_sha256: str
    versions: tuple[tuple[str, str], ...]
    torch_threads: int


@dataclass(frozen=True)
class _Shard:
    """The inputs of one batch as the model takes them, prepared on the machine that asks."""

    tensors: Mapping[str, np.ndarray]
    token_roles: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.token_roles)

    def batch(self, first: int, stop: int) -> dict[str, Any]:
        import torch

        return {name: torch.from_numpy(values[first:stop].copy()) for name, values in self.tensors.items()}

    def roles(self, index: int) -> tuple[str, ...]:
        return self.token_roles[index]


@dataclass(frozen=True)
class _Finished:
    """What a worker returns of a batch."""

    table: pd.DataFrame
    sums: tuple[np.ndarray, ...]
    """Over the inputs, layer by layer; empty if no average is asked for."""
    device: str
    processor: str


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """A client of the Dask scheduler at that address.

    Raises:
        FileNotFoundError: Dask is not installed.
        ConnectionError: no scheduler answers there.
    """
    try:
        from distributed import Client
    except ImportError:
        raise FileNotFoundError("a cluster needs the package distributed: pip install 'dobrushin[cluster]'") from None
    try:
        client = Client(address, timeout=_PATIENCE)
    except (OSError, ValueError, TypeError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r} ({error}); expected the address that `dask scheduler` prints, "
            "such as tcp://HOST:8786"
        ) from error
    with client:
        yield client


@dataclass
class Cluster:
    """Runs batches on a cluster; to be given to :func:`dobrushin.measure.measure`.

    Args:
        client: from :func:`connected`.
        name: the model, as for :func:`dobrushin.models.load`; so are `untrained`, `size`, `seed` and `download`.
            A folder must be there on every worker, under the same path.
    """

    client: Any
    name: str
    untrained: bool = False
    size: int | None = None
    seed: int = 0
    download: bool = False
    device: str = ""
    """Where the model ran, known when a batch has come back."""
    processors: Counter[str] = field(default_factory=Counter)
    """How many batches came from workers with which processor."""

    def __call__(
        self, model: Any, inputs: Any, batch_size: int, progress: bool, scopes: tuple[str, ...], device: str, work: Work
    ) -> None:
        """As :func:`dobrushin.measure.batches`.

        Raises:
            ValueError: a worker has other versions or other weights, or cannot load the model, and the message names it; or
                the scheduler or a worker does not have this package.
            ConnectionError: the scheduler went away, or one batch has outlived as many workers as Dask allows.
        """
        import dask

        request = self._request(model, device)
        done = min(len(inputs), work.done * batch_size)
        firsts = iter(range(done, len(inputs), batch_size))
        under_way: deque[tuple[int, Any]] = deque()
        bar = tqdm(total=len(inputs), initial=done, desc=model.spec.title, unit="input", disable=not progress)
        with bar, dask.config.set({"distributed.admin.large-graph-warning-threshold": "1GB"}):  # images are meant to be sent
            while done < len(inputs):
                for first in islice(firsts, max(0, _AHEAD * max(1, self._workers()) - len(under_way))):
                    stop = min(first + batch_size, len(inputs))
                    under_way.append((stop, self._submit(request, scopes, inputs, first, stop)))
                stop, future = under_way.popleft()
                finished = self._result(future, f"the inputs {done} to {stop - 1}", bar)
                for one in finished.sums:
                    work.add(one)
                work.finish(finished.table)
                self.device = finished.device
                self.processors[finished.processor] += 1
                bar.update(stop - done)
                done = stop

    def provenance(self) -> dict[str, Any]:
        """What the provenance of a result says of the cluster; batches of an earlier run are not counted."""
        if not self.processors:
            return {}
        return {"device": self.device, "cluster": {"batches by processor": dict(self.processors)}}

    def _request(self, model: Any, device: str) -> _Request:
        import torch

        folder, source = model.spec.local, self.name.partition(":")[0]
        name = f"{source}:{folder.resolve()}" if folder is not None else self.name
        return _Request(
            name, self.untrained, self.size, self.seed, self.download, device, model.weights_sha256,
            tuple(_versions().items()), torch.get_num_threads(),
        )  # fmt: skip

    def _submit(self, request: _Request, scopes: tuple[str, ...], inputs: Any, first: int, stop: int) -> Any:
        tensors = {name: tensor.numpy() for name, tensor in inputs.batch(first, stop).items()}
        shard = _Shard(tensors, tuple(inputs.roles(k) for k in range(first, stop)))
        return self.client.submit(_measured, request, scopes, shard, first, pure=False)

    def _result(self, future: Any, which: str, bar: Any) -> _Finished:
        from distributed import CancelledError, KilledWorker, wait

        while not future.done():
            try:
                wait([future], timeout=_PATIENCE)
            except TimeoutError:
                bar.set_postfix_str("" if self._workers() else "the scheduler has no worker; waiting for one")
            except CancelledError as error:
                raise self._lost() from error
        try:
            return future.result()
        except CancelledError as error:
            raise self._lost() from error
        except KilledWorker as error:
            raise ConnectionError(
                f"several workers died one after the other over {which}, perhaps for want of memory; "
                "the batches before are kept, and the same command goes on after them"
            ) from error
        except (ImportError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and "deserialization" not in str(error):
                raise
            raise ValueError(
                "the scheduler or a worker does not have this package in this version; install the same on all of them, with its "
                "extra: pip install 'dobrushin[cluster]'"
            ) from error

    def _workers(self) -> int:
        try:
            return len(self.client.nthreads())
        except OSError as error:
            raise self._lost() from error

    def _lost(self) -> ConnectionError:
        address = self.client.scheduler.address if self.client.scheduler is not None else "its address"
        return ConnectionError(
            f"the scheduler at {address} went away; finished batches are kept, and the same command goes on after them"
        )


# --- on a worker


def _measured(request: _Request, scopes: tuple[str, ...], shard: _Shard, first: int) -> _Finished:
    """Run one batch, whose first input has the number `first`."""
    import torch
    from distributed import get_worker

    from dobrushin import measure

    with _ALONE, tempfile.TemporaryDirectory() as folder:
        try:
            model = _loaded(request)
        except (OSError, ValueError) as error:
            raise ValueError(f"worker {get_worker().address}: {error}") from error
        torch.set_num_threads(request.torch_threads)
        work = Work(Path(folder), {})
        try:
            measure.batches(model, shard, len(shard), False, scopes, request.device, work)
            (table,) = work.tables()
            sums = tuple(work.totals(len(shard.roles(0))))
        finally:
            work.close()
    if "input" in table:
        table = table.assign(input=table["input"].to_numpy() + np.int32(first))
    device = str(next(model.module.parameters()).device)
    return _Finished(table, sums, device, results.machine()["processor"])


@lru_cache(maxsize=1)
def _loaded(request: _Request) -> Any:
    from dobrushin import models

    ours = _versions()
    for package, theirs in request.versions:
        if ours.get(package) != theirs:
            raise ValueError(
                f"{package} is {ours.get(package)} here and {theirs} on the machine that asks; install the same versions on both"
            )
    models.check_device(request.device)
    model = models.load(
        request.name, untrained=request.untrained, size=request.size, seed=request.seed, download=request.download
    )
    if model.weights_sha256 != request.weights_sha256:
        raise ValueError(
            f"the weights of {model.spec.title} have SHA-256 {model.weights_sha256} here and {request.weights_sha256} on the "
            "machine that asks; give both the same checkpoint"
        )
    return model


def _versions() -> dict[str, str]:
    """Of the packages that a result depends on; of this one its source too, which may change under one version."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return results.versions() | {"the source of dobrushin": digest.hexdigest()[:16]}
