"""Measuring on a cluster of two worker processes: the bytes of one machine, whatever dies or stops."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import sys
from dataclasses import replace

import pytest
from threadpoolctl import threadpool_limits

from dobrushin import cli, cluster, inputs, measure
from dobrushin.work import Work

distributed = pytest.importorskip("distributed", reason="needs the extra: pip install 'dobrushin[cluster]'")

TEXTS = ["minilm", "--number", "10", "--length", "20", "--batch-size", "1"]
LONG = ["minilm", "--number", "3", "--length", "126", "--scopes", "content,averaged,rollout_all", "--batch-size", "2"]
IMAGES = ["timm:test_vit", "--untrained", "--number", "5", "--batch-size", "2"]


@pytest.fixture(scope="module")
def scheduler():
    """Of two workers with two threads each: of a worker's threads only one may run a model at a time."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None, worker_dashboard_address=None
    ) as local:
        yield local.scheduler_address


def run(folder, words, *more):
    """SHA-256 of the result's table, and its provenance."""
    assert cli.main(["measure", *words, "--output", str(folder), *more]) == 0
    (path,) = folder.glob("*.parquet")
    return hashlib.sha256(path.read_bytes()).hexdigest(), json.loads(path.with_suffix(".json").read_text())


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The texts measured on one machine."""
    return run(tmp_path_factory.mktemp("alone"), TEXTS)[0]


def after(monkeypatch, batches, act):
    """Have `act` called once, when so many batches are finished."""
    own = Work.finish

    def finish(work, table):
        own(work, table)
        if work.done == batches and "unfinished" in work.folder.name:
            act()

    monkeypatch.setattr(Work, "finish", finish)


@pytest.mark.parametrize("words", [LONG, IMAGES], ids=["texts", "images"])
def test_a_cluster_gives_the_bytes_of_one_machine(tmp_path, scheduler, words):
    """Of one machine with several threads, where workers have one of their own: OpenBLAS sums in another order then."""
    with threadpool_limits(3, user_api="blas"):
        alone, how = run(tmp_path / "alone", words)
        together, where = run(tmp_path / "together", words, "--scheduler", scheduler)
    assert together == alone
    assert sum(where["cluster"]["batches by processor"].values()) == -(-where["inputs"]["number"] // int(words[-1]))
    for key in ("command", "model", "inputs", "device", "versions"):
        assert where[key] == how[key]


@pytest.mark.parametrize("first_on", ["the cluster", "one machine"])
def test_a_run_goes_on_elsewhere(tmp_path, scheduler, alone, monkeypatch, capsys, first_on):
    def interrupt():
        raise KeyboardInterrupt

    there, here = ["--scheduler", scheduler], []
    before, then = (there, here) if first_on == "the cluster" else (here, there)
    with monkeypatch.context() as patched:
        after(patched, 3, interrupt)
        assert cli.main(["measure", *TEXTS, "--output", str(tmp_path / "both"), *before]) == 130
    both, how = run(tmp_path / "both", TEXTS, *then)
    assert both == alone
    assert "goes on after 3 finished batches" in capsys.readouterr().err
    if then == there:
        assert sum(how["cluster"]["batches by processor"].values()) == 7


def test_a_worker_with_other_weights_or_versions_is_refused(scheduler, minilm, monkeypatch):
    few = inputs.sequences(minilm.tokenizer, inputs.default_text(), 2, 16)
    with cluster.connected(scheduler) as client:
        elsewhere = cluster.Cluster(client, "minilm")
        with pytest.raises(ValueError, match=r"worker tcp://.*: the weights of all-MiniLM-L6-v2 have SHA-256 .* here and 0000"):
            measure.measure(replace(minilm, weights_sha256="0" * 64), few, progress=False, run=elsewhere)
        with pytest.raises(ValueError, match=r"worker tcp://.*: device is 'abacus'; this machine has cpu"):
            measure.measure(minilm, few, progress=False, run=elsewhere, device="abacus")
        ours = cluster._versions()
        for package in ("torch", "the source of dobrushin"):
            monkeypatch.setattr(cluster, "_versions", lambda package=package: ours | {package: "0.0"})
            expected = f": {package} is {ours[package]} here and 0.0 on the machine that asks; install the same versions on both"
            with pytest.raises(ValueError, match=re.escape(expected)):
                measure.measure(minilm, few, progress=False, run=elsewhere)


def test_a_worker_that_dies_loses_nothing(tmp_path, scheduler, alone, monkeypatch):
    lost = []

    def kill():
        with distributed.Client(scheduler, set_as_default=False) as client:
            held = {worker: len(tasks) for worker, tasks in client.processing().items()}
            held = {worker: held.get(worker, 0) + len(tasks) for worker, tasks in client.has_what().items()}
            worker = max(held, key=held.__getitem__)
            lost.append(held[worker])
            os.kill(client.run(os.getpid, workers=[worker])[worker], signal.SIGKILL)

    after(monkeypatch, 2, kill)
    together, _ = run(tmp_path / "together", TEXTS, "--scheduler", scheduler)
    assert lost
    assert lost[0] > 0
    assert together == alone


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "127.0.0.1:1", "nowhere", "carrier-pigeon://127.0.0.1:1", ""])
def test_where_no_scheduler_answers_the_address_is_named(tmp_path, monkeypatch, capsys, address):
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    assert cli.main(["measure", "minilm", "--output", str(tmp_path / "none"), "--scheduler", address]) == 2
    assert f"no Dask scheduler answers at {address!r}" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_without_dask_the_command_that_installs_it_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert cli.main(["measure", "minilm", "--scheduler", "tcp://127.0.0.1:8786"]) == 2
    assert "pip install 'dobrushin[cluster]'" in capsys.readouterr().err
