"""The effect of one rung on a step: its time, and the losses of a few steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelwright.machine import clock, random_state, stats
from kernelwright.machine.clock import Candidate
from kernelwright.ops.introspect import use
from kernelwright.support.errors import UsageError

from .workload import Workload

STEPS = 5  # number of steps whose losses are compared


@dataclass(frozen=True)
class Swap:
    """A step with the dispatched rung, and with another one.

    Attributes:
        us: median microseconds of both.
        comparison: whether the step with the other rung is faster.
        losses: of the first steps of both, from the same weights; empty if a step has no loss.
    """

    operator: str
    rung: str
    us: tuple[float, float]
    comparison: stats.Comparison
    losses: tuple[list[float], list[float]]


def parsed(text: str) -> tuple[str, str]:
    """(operator, rung) of "softmax=triton_row"."""
    operator, equals, rung = text.partition("=")
    if not (operator and equals and rung):
        raise UsageError(f"swap: {text!r} is not OP=RUNG, as in add_layer_norm=triton_row")
    return operator, rung


@random_state.preserved()
def measure(make: Callable[[], Workload], operator: str, rung: str, device: torch.device) -> Swap:
    """Time steps with and without a rung, alternately.

    Args:
        make: builds the workload, the same each time.

    Raises:
        UnknownOperator, UnknownRung: an unknown name; the message lists the known ones.
        UsageError: a step cannot be timed.
    """
    losses: list[list[float]] = []
    steps: list[Callable[[], object]] = []
    for chosen in ({}, {operator: rung}):
        work = make()

        def step(work: Workload = work, chosen: dict[str, str] = chosen) -> object:
            with use(chosen):
                return work.step()

        results = [step() for _ in range(STEPS)]
        losses.append([float(x) for x in results if isinstance(x, torch.Tensor)])
        steps.append(step)
    names = ("dispatched", rung)
    with clock.session(device):
        candidates = [Candidate(n, [s]) for n, s in zip(names, steps, strict=True)]
        again = Candidate("again", [steps[0]])
        times = clock.measure([*candidates, again], device).times
    for name, t in times.items():
        if t.error:
            raise UsageError(f"swap: the step with {name} cannot be timed: {t.error}")
    usual, swapped, again_ = (times[n].cold for n in (*names, "again"))
    compared = stats.compare(swapped, usual, noise=stats.noise(usual, again_))
    medians = stats.median(usual), stats.median(swapped)
    return Swap(operator, rung, medians, compared, (losses[0], losses[1]))
