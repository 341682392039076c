"""The benchmark: requests all at once, then by a Poisson process at some rates."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from kernelwright import models
from kernelwright.infer import folder as folders
from kernelwright.infer.engine import Engine
from kernelwright.infer.serve import sizing
from kernelwright.infer.serve.sizing import EngineSettings
from kernelwright.machine import random_state
from kernelwright.support import durable
from kernelwright.support.errors import UsageError
from kernelwright.train import picture
from kernelwright.workbench.bench.bench import environment, new_run

from . import result, roof
from .drive import drive
from .result import Limits, Result, Row
from .workload import Workload, lengths

SHARES = (0.25, 0.5, 0.75, 1.0)  # of the throughput without waiting: the usual rates


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        shortest, longest: tokens of a prompt, and of an answer; 0 for the usual range.
        rates: requests per second; empty for quarters of the throughput without waiting.
    """

    requests: int
    shortest: int
    longest: int
    seed: int
    rates: tuple[float, ...]
    limits: Limits

    def __post_init__(self):
        for rate in self.rates:
            if not 0.0 < rate < math.inf:
                raise UsageError(f"rate: must be above 0 and finite, is {rate}")


def load(folder: Path | None, preset: str, device: torch.device, precision: str) -> Any:
    """The model of a folder, or a preset with random weights.

    Raises:
        UsageError: both or none is given, or there is no such model.
    """
    if (folder is None) == (not preset):
        raise UsageError("FOLDER: give a folder, or a preset by --model")
    dtype = folders.dtype(precision, device)
    if folder is not None:
        return models.from_pretrained(folders.checkpoint(folder), device=device, dtype=dtype)
    if preset not in models.PRESETS:
        raise UsageError(f"model: {preset!r} is not one of {', '.join(models.PRESETS)}")
    with random_state.cpu_seed(0):
        return models.build(preset).to(device, dtype).eval()


def bench(
    name: str,
    model: Any,
    settings: EngineSettings,
    plan: Plan,
    on_step: Callable[[str], None],
) -> Result:
    """Serve the workload all at once and at each rate.

    Args:
        name: of the model, for the result.
        on_step: called with what is being done.
    """
    context, device = model.config.context, model.head_VC.device
    shortest, longest = (plan.shortest, plan.longest) if plan.longest else lengths(context)
    workload = Workload(plan.requests, shortest, longest, plan.seed)
    requests = workload.draw(model.config.vocabulary, context)
    on_step("measuring the memory's rate")
    least = roof.of(model, settings.cache_dtype)
    on_step("warming up")
    drive(sizing.engine(model, settings), requests[:2], [0.0, 0.0], lambda _: None)
    rows: list[Row] = []

    def measured(rate: float) -> Row:
        engine = sizing.engine(model, settings)  # whose cache has none of the prompts
        row = _run(engine, workload, requests, rate, plan.limits, least, on_step)
        rows.append(row)
        return row

    most = measured(math.inf).served
    for rate in plan.rates or [share * most for share in SHARES]:
        measured(rate)
    chosen = {**asdict(settings), **asdict(workload)}
    about = environment(new_run(), device)
    return Result(name, chosen, about, least.weights, least.token, least.rate, plan.limits, rows)


def _run(
    engine: Engine,
    workload: Workload,
    requests: Sequence[Any],
    rate: float,
    limits: Limits,
    least: roof.Roof,
    on_step: Callable[[str], None],
) -> Row:
    how = "all at once" if rate == math.inf else f"{rate:.3g} a second"

    def stepped(finished: int) -> None:
        on_step(f"{len(requests)} requests, {how}: {finished} finished")

    run = drive(engine, requests, workload.arrivals(rate), stepped)
    return result.row(run, rate, limits, least.share(run))


def write(measured: Result, folder: Path) -> tuple[Path, Path]:
    """serving.json and serving.svg in a folder, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    data, drawn = folder / "serving.json", folder / "serving.svg"
    durable.write(data, [(json.dumps(asdict(measured), indent=1) + "\n").encode()])
    durable.write(drawn, [_picture(measured).encode()])
    return data, drawn


def _picture(measured: Result) -> str:
    """Latencies by rate."""
    rows = [r for r in measured.rows if r.rate is not None]
    x = [r.rate or 0.0 for r in rows]
    most = measured.rows[0].served
    return picture.curves(
        f"Serving {measured.model}",
        [
            picture.Curve("first token, p50", x, [r.first.p50 for r in rows], colour=0),
            picture.Curve("p99", x, [r.first.p99 for r in rows], colour=1),
            picture.Curve("per token, p50", x, [r.per_token.p50 for r in rows], colour=2),
            picture.Curve("p99", x, [r.per_token.p99 for r in rows], colour=3),
        ],
        caption=f"milliseconds; all at once: {most:.3g} requests per second",
        x_name="requests that arrive per second",
        log_y=True,
    )
