"""This machine's properties, the backends that work on it, and its measured roofs, as data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernelwright.contract.operator import BACKENDS
from kernelwright.dispatch import native_calls
from kernelwright.machine import facts, here
from kernelwright.toolchain import availability, versions
from kernelwright.workbench.bench.bench import environment, new_run
from kernelwright.workbench.bench.roofs import measure_roofs
from kernelwright.workbench.records.records import Record


@dataclass(frozen=True)
class Env:
    """Attributes:
    facts: see `machine.facts`.
    backends: by name: None if it works here, or the reason why it does not.
    calls: what calls of operators run in on this GPU, and why; None without a GPU.
    run, environment: of the measured roofs, for `records.save`.
    roofs: records of the operator "roofs"; empty if they were not requested.
    """

    facts: dict[str, Any]
    backends: dict[str, str | None]
    calls: str | None
    run: str
    environment: dict[str, Any]
    roofs: list[Record]


def env(
    *, roofs: bool = True, quick: bool = False, on_roof: Callable[[Record], None] | None = None
) -> Env:
    """Facts, backends and roofs of this machine.

    Args:
        roofs: whether to measure them, which takes about 10 s.
        quick: measure fewer sizes, which takes about 3 s.
        on_roof: called with each roof's record as soon as it is complete.
    """
    versions.warn_of_untested()
    device, run = here(), new_run()
    about = environment(run, device)
    backends = {b: availability.missing(b, device.type) for b in BACKENDS}
    calls = native_calls.status() if device.type == "cuda" else None
    measured = measure_roofs(device, run, quick=quick, on_record=on_roof) if roofs else []
    return Env(facts(device), backends, calls, run, about, measured)
