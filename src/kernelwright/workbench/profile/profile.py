"""A profile of a step, and its output files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from kernelwright.machine import random_state
from kernelwright.support import durable
from kernelwright.train import picture

from . import flame
from .trace import Row, Trace, record
from .workload import Workload

TRACE, FLAME, MEMORY = "trace.json", "flame.html", "memory.svg"


@dataclass(frozen=True)
class Profile:
    """The kernels and functions of a step.

    Attributes:
        kernels, operators: times by kernel and operator, and by operator only, longest first.
        us: the total time of all kernels.
        peak_bytes: peak memory during the step; None if none was allocated.
        files: the files that were written.
    """

    name: str
    on_gpu: bool
    us: float
    kernels: list[Row]
    operators: list[Row]
    peak_bytes: int | None
    files: tuple[Path, ...]


@random_state.preserved()
def profile(work: Workload, device: torch.device, folder: Path) -> Profile:
    """Profile a workload, and write its trace, flame graph and memory to a folder.

    Raises:
        WriteError: the folder cannot be written.
    """
    trace = record(work.step, device)
    files = _write(trace, work.name, folder)
    rows = trace.rows()
    return Profile(
        name=work.name,
        on_gpu=trace.on_gpu,
        us=sum(r.us for r in rows),
        kernels=rows,
        operators=trace.operators(),
        peak_bytes=max((b for _, b in trace.memory), default=None),
        files=files,
    )


def memory_picture(trace: Trace, name: str) -> str:
    """A chart of the allocated bytes over time."""
    begin = trace.memory[0][0] if trace.memory else 0.0
    x: list[float] = []
    y: list[float] = []
    for at, size in trace.memory:  # steps, not slopes
        x += [(at - begin) / 1e3] * 2
        y += [y[-1] if y else size / 2**20, size / 2**20]
    curve = picture.Curve("allocated, MiB", x, y)
    return picture.curves("Memory", [curve], caption=name, x_name="milliseconds")


def _write(trace: Trace, name: str, folder: Path) -> tuple[Path, ...]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise durable.refused(folder, e) from None
    contents = {
        TRACE: json.dumps(trace.document),
        FLAME: flame.page(trace, name),
        MEMORY: memory_picture(trace, name),
    }
    for file, text in contents.items():
        durable.write(folder / file, [text.encode()])
    return tuple(folder / file for file in contents)
