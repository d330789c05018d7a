"""What measuring a model costs beside running it: time, and memory by depth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import torch
from tqdm import tqdm

from dobrushin import models
from dobrushin.images import default_pictures, images
from dobrushin.inputs import default_text, sequences
from dobrushin.measure import measure

RUNS = 3
INPUTS = {"dinov2-b": 16, "minilm": 64, "dinov2-s-saliency": 32}
"""So many that what a run costs once, its folder, its averages and its table, weighs little, as in a long run."""
BATCH = 8
DEPTHS = (6, 24)
"""Layers of the models whose memory is compared."""
MEMORY_RUNS = 9


@contextmanager
def cores(number: int) -> Iterator[None]:
    """Let this process use so many cores."""
    threads, own = torch.get_num_threads(), os.sched_getaffinity(0)
    torch.set_num_threads(number)
    os.sched_setaffinity(0, sorted(own)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)
        torch.set_num_threads(threads)


@contextmanager
def fused(module: Any) -> Iterator[None]:
    """Within the block a transformers model runs fused attention; timm's models do anyway."""
    if not hasattr(module, "set_attn_implementation"):
        yield
        return
    module.set_attn_implementation("sdpa")
    try:
        yield
    finally:
        module.set_attn_implementation("eager")


def _prepared(name: str, inputs_wanted: int) -> tuple[models.Model, Any]:
    model = models.load(name, untrained=name == "dinov2-b")  # its weights change the time of nothing
    if model.takes == "images":
        return model, images(model, default_pictures(inputs_wanted))
    return model, sequences(model.tokenizer, default_text(), inputs_wanted, 128)


def _run(model: models.Model, batches: list[dict[str, Any]]) -> None:
    with torch.inference_mode(), fused(model.module):
        for batch in batches:
            model(batch)


def measuring() -> pd.DataFrame:
    """Processor time on one core of `measure` with all scopes and of the model's own pass, in turns; the shortest run counts.

    Measuring decodes the inputs, the plain pass finds them decoded.
    """
    rows = []
    for name, number in INPUTS.items():
        model, inputs = _prepared(name, number)
        batches = [inputs.batch(first, first + BATCH) for first in range(0, number, BATCH)]
        times: dict[str, list[float]] = {"plain": [], "measured": []}
        for _ in range(RUNS + 1):  # the first compiles
            for what, run in (
                ("plain", lambda model=model, batches=batches: _run(model, batches)),
                ("measured", lambda model=model, inputs=inputs: measure(model, inputs, batch_size=BATCH, progress=False)),
            ):
                before = time.process_time()
                with cores(1):
                    run()
                times[what].append(time.process_time() - before)
        plain, measured = (min(times[what][1:]) for what in ("plain", "measured"))
        spec = {"model": model.spec.title, "layers": 12 if model.takes == "images" else 6, "tokens": len(inputs.roles(0))}
        rows.append(spec | {"inputs": number, "batch": BATCH, "plain": plain, "measured": measured, "ratio": measured / plain})
        print(rows[-1], file=sys.stderr)
    return pd.DataFrame(rows)


def memory() -> pd.DataFrame:
    """Peak memory of measuring beyond that of the plain pass, for shallow and deep models, every run in a process of its own.

    Where the C library places a model's matrices differs from process to process, and with it the peak of either pass.
    """
    script = "import bench_measure, json, sys; print(json.dumps(bench_measure.peak(int(sys.argv[1]))))"
    rows = []
    for depth in tqdm(DEPTHS * MEMORY_RUNS, desc="memory", unit="process"):
        ran = subprocess.run(
            [sys.executable, "-c", script, str(depth)], cwd=Path(__file__).parent, check=True, capture_output=True, text=True
        )
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
    return pd.DataFrame(rows).sort_values("layers", kind="stable", ignore_index=True)


def peak(depth: int) -> dict[str, Any]:
    """Peak resident memory in MiB of a DINOv2-S of so many layers, untrained: passing, then measuring, two batches."""
    import timm

    model, _ = _prepared("dinov2-b", BATCH)
    module = (
        timm.create_model("vit_small_patch14_reg4_dinov2", img_size=224, depth=depth, num_classes=0).eval().requires_grad_(False)
    )
    model = replace(model, module=module)
    inputs = images(model, default_pictures(2 * BATCH))

    def plain() -> None:  # all inputs are prepared before, and freed after it
        _run(model, [inputs.batch(first, first + BATCH) for first in range(0, 2 * BATCH, BATCH)])

    process, marks = psutil.Process(), {}
    plain()
    measure(model, images(model, default_pictures(1)), progress=False)  # compiles
    for what, run in (("plain", plain), ("measured", lambda: measure(model, inputs, progress=False))):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        run()
        marks[what] = _high_water(process.pid)
    n = len(inputs.roles(0))
    heads = module.blocks[0].attn.num_heads
    layer = BATCH * heads * n * n * 4 / 2**20
    extra = marks["measured"] - marks["plain"]
    return {"layers": depth, "tokens": n, "batch": BATCH, **marks, "layer_matrices": layer, "extra_layers": extra / layer}


def _high_water(pid: int) -> float:
    """Peak resident memory of a process in MiB (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
