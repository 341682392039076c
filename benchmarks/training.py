"""Does a model train in the same way with our operators as with PyTorch's? The model is a GPT-2 of
four layers on the bytes of a text (by default the sources of the standard library), with float32
parameters under autocast to bfloat16.

A seed determines the order of the data. The initial weights are always the same, and so are the
batches of a seed, whichever operators are used. A curve is the mean training loss of each EVERY
steps. Each operator is swapped in alone, for the same seeds, and must pass three checks:

- The curve of each seed (not their mean) stays inside a band. At each point the band extends from
  the lowest to the highest curve of PyTorch's operators, and is widened by the factor WIDER, half
  at either end.
- The gradients and new parameters of one more step are correct. The loss does not show every error:
  Adam compensates for the magnitude of a gradient, and a bias that is never updated costs little.
  After each curve, one step is therefore computed three times from the same weights and optimizer
  states: with the swapped operator, with PyTorch's operators, and with those in float64. The error
  of each tensor as a whole may be twice that of PyTorch.
- The operator was used: the first step records which rungs were dispatched. On a GPU, a swap in
  which only PyTorch's rungs were dispatched does not count.

    python -m benchmarks.training --record

The learning rate rises in the first half and falls to a tenth in the second, as in nanoGPT. At a
constant rate, runs that differ only by rounding were observed to leave the band.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.swappable_gpt2 import GPT2, Config, Operators
from kernelwright.contract import PYTORCHS
from kernelwright.contract.compare import FACTOR, ULPS, measure
from kernelwright.dispatch import data
from kernelwright.machine import here, slug
from kernelwright.workbench.records import records

LIBRARY = Path(sysconfig.get_path("stdlib"))
LENGTH = 1 << 20  # bytes of it that are a text
EVERY, WIDER = 10, 0.10
LEARNING_RATE, CLIP = 1e-3, 1.0
LAST_CLIP = 1e-2  # of the last step, whose norm is always above it

Curve = tuple[float, ...]


DRAWS = 3  # of PyTorch's error
PRECISIONS = torch.float32, torch.float64


@dataclass(frozen=True)
class Sizes:
    """Of a run.

    Attributes:
        batch: sequences of a step, each as long as the model's context.
        warm_up: steps in which the learning rate rises.
    """

    model: Config
    batch: int
    steps: int = 200
    warm_up: int = 100
    seeds: int = 5


#: nanoGPT's for a CPU
SIZES = Sizes(Config(layers=4, heads=4, width=128, context=64, vocabulary=256), batch=12)
PYTORCH = Operators()


@dataclass(frozen=True)
class Parts:
    """What a run computes with: PyTorch's own but for what is swapped in."""

    operators: Operators = PYTORCH
    adamw: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW
    clip: Callable[..., Any] = torch.nn.utils.clip_grad_norm_

    @staticmethod
    def swapped(name: str) -> Parts:
        """PyTorch's own but for one of ours, which SWAPS names."""
        import kernelwright as kw

        if name == "AdamW":
            return Parts(adamw=kw.optim.AdamW)
        if name == "clip_grad_norm_":
            return Parts(clip=kw.clip_grad_norm_)
        return Parts(Operators.with_kernels(name))


#: What is swapped in: every operator of the model, and the trainer's.
SWAPS = (*(f.name for f in fields(Operators)), "AdamW", "clip_grad_norm_")


@dataclass(frozen=True)
class TrainingRun:
    """One seed's training.

    Attributes:
        curve: the mean loss of each EVERY steps.
        served: by operator, which rungs served how many calls of the first step.
        worst: of the last step, the tensor with the largest error for its budget.
        error, budget: of that one, over the whole of it.
    """

    curve: Curve
    served: dict[str, dict[str, int]]
    worst: str
    error: float
    budget: float


@dataclass(frozen=True)
class Training:
    """Runs by seed: of PyTorch's operators, and of each of ours alone.

    Attributes:
        sizes: of every run.
        native, swapped: the runs, by seed; of a swap that raised there are none.
        failed: by operator, what it raised.
        environment: of the run.
    """

    sizes: Sizes
    native: tuple[TrainingRun, ...]
    swapped: dict[str, tuple[TrainingRun, ...]]
    failed: dict[str, str]
    environment: dict[str, Any]

    def band(self) -> list[tuple[float, float]]:
        """Lowest and highest loss at each point, widened."""
        spans: list[tuple[float, float]] = []
        for at in zip(*(run.curve for run in self.native), strict=True):
            more = WIDER * (max(at) - min(at)) / 2
            spans.append((min(at) - more, max(at) + more))
        return spans

    def wrong(self) -> list[str]:
        """Everything that one of ours does not hold, in a line."""
        complaints = [f"{name}: raised {why}" for name, why in self.failed.items()]
        band = self.band()
        for name, runs in self.swapped.items():
            for seed, run in enumerate(runs):
                complaints += [
                    f"{name}, order {seed}, steps to {(i + 1) * EVERY}: {loss:.4f} is outside "
                    f"{low:.4f} to {high:.4f}"
                    for i, (loss, (low, high)) in enumerate(zip(run.curve, band, strict=True))
                    if not low <= loss <= high
                ]
                if not run.error <= run.budget:
                    complaints.append(
                        f"{name}, order {seed}, the last step: {run.worst} errs by "
                        f"{run.error:.3g}, allowed {run.budget:.3g}"
                    )
            served = {rung for run in runs for rungs in run.served.values() for rung in rungs}
            if not served:
                complaints.append(f"{name}: was never called")
            elif self.environment["gpu"] and served <= set(PYTORCHS):
                complaints.append(f"{name}: PyTorch served every call of it: nothing was swapped")
        return complaints

    def room(self, name: str) -> float:
        """How far the curves of a swap leave the band of PyTorch's, before it is widened, in its
        width at that point; at most WIDER / 2 is inside."""
        points = list(zip(*(run.curve for run in self.native), strict=True))
        return max(
            max(min(at) - loss, loss - max(at), 0.0) / (max(at) - min(at))
            for run in self.swapped[name]
            for loss, at in zip(run.curve, points, strict=True)
        )


def train(
    text: Path | None,
    device: torch.device,
    sizes: Sizes,
    rungs: dict[str, str] | None = None,
    jobs: int = len(SWAPS) + 1,
    on_done: Callable[[str], None] = print,
) -> Training:
    """Train every swap with every order of the data.

    Args:
        text: its bytes are the tokens; None: the standard library's own sources.
        rungs: as `kw.use` takes them; by default what serves.
        jobs: processes at once; each trains one swap after the other.
        on_done: called with a line for each swap.
    """
    from kernelwright.workbench.bench.bench import environment, new_run

    curves, failed = dict[str, tuple[TrainingRun, ...]](), dict[str, str]()
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        asked = {
            pool.submit(_train_swap, text, name, device, sizes, rungs or {}): name
            for name in ("", *SWAPS)
        }
        for future in as_completed(asked):
            name, error = asked[future], future.exception()
            if error is None:
                curves[name] = future.result()
            elif not name:
                raise error
            else:
                failed[name] = f"{type(error).__name__}: {error}"
            on_done(f"{name or 'PyTorch'}: {failed.get(name, 'trained')}")
    native = curves.pop("")
    swapped = {name: curves[name] for name in SWAPS if name in curves}
    return Training(sizes, native, swapped, failed, environment(new_run(), device))


def _train_swap(
    text: Path | None, name: str, device: torch.device, sizes: Sizes, rungs: dict[str, str]
) -> tuple[TrainingRun, ...]:
    import kernelwright as kw

    if device.type == "cpu":
        torch.set_num_threads(1)
    data, parts = tokens(text).to(device), Parts.swapped(name) if name else Parts()
    with kw.use(rungs):
        return tuple(run(data, parts, seed, sizes) for seed in range(sizes.seeds))


def tokens(text: Path | None = None) -> torch.Tensor:
    """The bytes of a text; by default of the modules of the standard library, in the order of their
    names."""
    files = [text] if text else sorted(LIBRARY.glob("*.py"))
    read = b"".join(f.read_bytes() for f in files)
    return torch.frombuffer(bytearray(read if text else read[:LENGTH]), dtype=torch.uint8).long()


def run(data: torch.Tensor, parts: Parts, seed: int, sizes: Sizes) -> TrainingRun:
    """Train once, on the device of the data."""
    from kernelwright.ops.introspect import Serving

    torch.manual_seed(0)
    state, served, losses = _State(parts, sizes.model, data.device), Serving(), list[Any]()
    *batches, last = _batches(data, seed, sizes)
    for i, batch in enumerate(batches):
        with served if i == 0 else contextlib.nullcontext():
            losses.append(state.step(batch, CLIP, _rate(i, sizes)))
    curve = torch.stack(losses).view(-1, EVERY).mean(1).tolist()
    calls = {name: dict(rungs) for name, rungs in served.calls.items()}
    return TrainingRun(tuple(round(x, 5) for x in curve), calls, *_last_step(state, last))


def _rate(i: int, sizes: Sizes) -> float:
    """The learning rate of step i: it rises, then falls to a tenth along a cosine."""
    if i < sizes.warm_up:
        return LEARNING_RATE * (i + 1) / sizes.warm_up
    part = (i - sizes.warm_up) / (sizes.steps - sizes.warm_up)
    return LEARNING_RATE * (0.55 + 0.45 * math.cos(math.pi * part))


def _batches(data: torch.Tensor, seed: int, sizes: Sizes) -> Iterable[torch.Tensor]:
    """One for each step and one more, on the device at once: a copy would wait for each step."""
    context, order = sizes.model.context, torch.Generator().manual_seed(seed)
    starts = torch.randint(len(data) - context - 1, (sizes.steps + 1, sizes.batch),
                           generator=order)  # fmt: skip
    at = starts[..., None] + torch.arange(context + 1)
    return data[at.to(data.device)].unbind()


class _State:
    """A model in training."""

    def __init__(self, parts: Parts, model: Config, device: torch.device):
        self.clip = parts.clip
        self.model = GPT2(model, parts.operators).to(device)
        self.optimizer = parts.adamw(
            self.model.parameters(), weight_decay=0.1, betas=(0.9, 0.99),
            fused=True,
        )  # fmt: skip

    def step(self, batch: torch.Tensor, clip: float, rate: float) -> torch.Tensor:
        """The loss before it."""
        self.optimizer.param_groups[0]["lr"] = rate
        inputs, targets = batch[:, :-1], batch[:, 1:]
        narrow = next(self.model.parameters()).dtype == torch.float32
        with torch.autocast(batch.device.type, torch.bfloat16, enabled=narrow):
            loss = self.model(inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.clip(self.model.parameters(), clip)
        self.optimizer.step()
        return loss.detach()

    def by_pytorch(self, dtype: torch.dtype, draw: int) -> _State:
        """The same weights and states, and PyTorch's operators; nudged weights for a draw but 0."""
        weight = self.model.tokens
        other = _State(Parts(), self.model.config, weight.device)
        other.model.load_state_dict(self.model.state_dict())
        if draw:
            generator = torch.Generator(weight.device).manual_seed(draw)
            for p in other.model.parameters():
                nudge = torch.rand(p.shape, generator=generator, device=p.device) - 0.5
                p.data.mul_(1 + torch.finfo(torch.bfloat16).eps * nudge)
        other.model.to(dtype)
        states = copy.deepcopy(self.optimizer.state_dict()["state"])
        other.optimizer.load_state_dict({**other.optimizer.state_dict(), "state": states})
        return other

    def changes(self, batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """By name: gradients of a step, clipped, and how far it moves each parameter."""
        before = [p.detach().clone() for p in self.model.parameters()]
        self.step(batch, LAST_CLIP, LEARNING_RATE / 10)
        values: dict[str, torch.Tensor] = {}
        for old, (name, p) in zip(before, self.model.named_parameters(), strict=True):
            gradient = torch.zeros_like(p) if p.grad is None else p.grad
            values |= {f"gradient of {name}": gradient, f"step of {name}": p.detach() - old}
        return values


def _last_step(state: _State, batch: torch.Tensor) -> tuple[str, float, float]:
    """(the tensor with the largest error for its budget, that error, the budget). PyTorch's error
    is the largest of DRAWS: of these weights, and of weights that are nudged by bfloat16's rounding
    error, whose products are rounded differently."""
    own: dict[str, float] = {}
    for draw in range(DRAWS):
        theirs, exact = (state.by_pytorch(d, draw).changes(batch) for d in PRECISIONS)
        if draw == 0:
            reference = exact
        for name, t in theirs.items():
            error = measure(t.flatten(), exact[name].flatten()).norm
            own[name] = max(error, own.get(name, 0.0))
    judged: list[tuple[str, float, float]] = []
    for name, mine in state.changes(batch).items():
        error = measure(mine.flatten(), reference[name].flatten()).norm
        judged.append((name, error, FACTOR * own[name] + ULPS * torch.finfo(mine.dtype).eps))
    return max(judged, key=lambda step: _share(*step[1:]))


def _share(error: float, budget: float) -> float:
    """NaN is the worst there is."""
    return error / budget if math.isfinite(error) else math.inf


def path(machine: str, root: Path | None = None) -> Path:
    return (root or records.ROOT) / machine / "training.json"


def save(training: Training, machine: str, root: Path | None = None) -> Path:
    to = path(machine, root)
    data.write(to, json.dumps(asdict(training), indent=1) + "\n")
    return to


def load(machine: str, root: Path | None = None) -> Training | None:
    """What was recorded of a machine, or None."""
    d = data.document(path(machine, root), None)
    if d is None:
        return None
    sizes = Sizes(Config(**d["sizes"].pop("model")), **d["sizes"])
    swapped = {name: _runs(runs) for name, runs in d["swapped"].items()}
    return Training(sizes, _runs(d["native"]), swapped, d["failed"], d["environment"])


def _runs(saved: list[dict[str, Any]]) -> tuple[TrainingRun, ...]:
    return tuple(TrainingRun(tuple(run.pop("curve")), **run) for run in saved)


def rows(training: Training) -> list[list[str]]:
    """A line an operator: how near the band's edge and the budget it came, and what served."""
    table = [
        [
            "replaced operator",
            "outside the band",
            "error of the last step",
            "share of its budget",
            "dispatched rungs",
        ]
    ]
    for name, runs in training.swapped.items():
        near = max(runs, key=lambda r: _share(r.error, r.budget))
        rungs = [
            f"{operator} {'/'.join(by)} x{sum(by.values())}"
            for operator, by in runs[0].served.items()
        ]
        table.append(
            [
                name,
                f"{training.room(name):.1%} of its width",
                f"{near.error:.2g} ({near.worst})",
                f"{_share(near.error, near.budget):.0%}",
                ", ".join(rungs) or "nothing",
            ]
        )
    return table


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training")
    parser.add_argument(
        "text",
        type=Path,
        nargs="?",
        help="a text file, a few hundred thousand bytes; by default sources of Python's library",
    )
    parser.add_argument("--record", action="store_true", help="keep the runs in the records")
    parser.add_argument("--jobs", type=int, default=len(SWAPS) + 1, help="processes at once")
    parser.add_argument(
        "--use", nargs="*", default=[], metavar="OP=RUNG", help="rungs that serve, as kw.use"
    )
    asked = parser.parse_args(arguments)
    device = here()
    jobs = asked.jobs if device.type == "cuda" else min(asked.jobs, os.cpu_count() or 1)
    rungs = dict(pair.split("=") for pair in asked.use)
    training = train(asked.text, device, SIZES, rungs, jobs)
    if asked.record:
        print(save(training, slug(device), records.settings().records))
    for i, (low, high) in enumerate(training.band()):
        print(f"steps to {(i + 1) * EVERY:3}: {low:.4f} to {high:.4f}")
    table = rows(training)
    wide = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for row in table:
        print("  ".join(f"{cell:{w}}" for cell, w in zip(row, wide, strict=True)).rstrip())
    wrong = training.wrong()
    inside = f"{len(SWAPS)} operators: every curve inside the band, every last step in its budget"
    print("\n".join(wrong) or inside)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
