"""What the programs of a Triton rung load and store, recorded in Triton's interpreter, and the
picture of it. `tools.movement` writes the pictures beside those of the CUDA C++ rungs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from unittest.mock import patch

import numpy as np

from kernelwright.contract import Case, Ladder, Rung
from kernelwright.dispatch import launcher
from kernelwright.support import svg
from kernelwright.toolchain import interpreter
from kernelwright.workbench.records import metrics
from kernelwright.workbench.report import strips

ALIKE = 3  # accesses of one tensor in a row that are drawn
PROGRAMS = 2  # that are drawn


@dataclass(frozen=True)
class Access:
    """One tl.load or tl.store of a program, without masked elements.

    Attributes:
        program: its number, in the order in which the interpreter runs them.
        kind: "load" or "store".
        tensor: its name.
        offsets: bytes from the tensor's first, of each element.
        width: bytes of an element.
    """

    program: int
    kind: str
    tensor: str
    offsets: np.ndarray
    width: int


@dataclass(frozen=True)
class Traced:
    """The first launch of a call. `sizes`: bytes of each tensor."""

    programs: int
    accesses: tuple[Access, ...]
    sizes: dict[str, int]

    @property
    def bytes(self) -> int:
        """Of all accesses; what a program loads twice counts twice."""
        return sum(len(a.offsets) * a.width for a in self.accesses)


def traced(lad: Ladder, rung: Rung, at: Case) -> Traced:
    """The trace of a call's first launch.

    Raises:
        ToolchainError: triton was imported in its compiling mode.
    """
    interpreter.activate()
    args = lad.operator.with_defaults(lad.operator.inputs(at, "cpu"))
    with _recorded() as launches:
        launcher(lad, args, rung.name, rung.configs[0])(*args.values())
    return launches[0]


@contextmanager
def _recorded() -> Iterator[list[Traced]]:
    """The launches that are interpreted inside the block."""
    from triton.runtime.interpreter import InterpreterBuilder

    traces: list[Traced] = []
    events: list[tuple[tuple[int, ...], str, np.ndarray, int]] = []
    real = interpreter.launch
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def note(builder, kind, pointers, mask):
        width = pointers.get_element_ty().primitive_bitwidth // 8
        events.append((builder.grid_idx, kind, pointers.data[mask.data].ravel(), width))

    def loading(builder, ptrs, mask, *rest):
        note(builder, "load", ptrs, mask)
        return load(builder, ptrs, mask, *rest)

    def storing(builder, ptrs, value, mask, *rest):
        note(builder, "store", ptrs, mask)
        return store(builder, ptrs, value, mask, *rest)

    def launch(kernel, step, values):
        events.clear()
        real(kernel, step, values)
        given = zip(step.args, values, strict=True)
        tensors = {name: t for name, t in given if isinstance(name, str) and t is not None}
        sizes = {name: t.numel() * t.itemsize for name, t in tensors.items()}
        first = {name: t.data_ptr() for name, t in tensors.items()}
        numbers = {p: i for i, p in enumerate(dict.fromkeys(e[0] for e in events))}
        accesses = []
        for program, kind, at, width in events:
            if not len(at):
                continue
            name = next(n for n, a in first.items() if a <= at[0] < a + sizes[n])
            accesses.append(Access(numbers[program], kind, name, at - first[name], width))
        traces.append(Traced(int(np.prod(step.grid)), tuple(accesses), sizes))

    with (
        patch.object(interpreter, "launch", launch),
        patch.object(InterpreterBuilder, "create_masked_load", loading),
        patch.object(InterpreterBuilder, "create_masked_store", storing),
    ):
        yield traces


def picture(name: str, at: str, trace: Traced) -> str:
    """The accesses of the first programs from top to bottom, as an SVG that stands alone."""
    parts, y = strips.head(
        name,
        (
            f"{at}, {trace.programs:,} program{'s' * (trace.programs > 1)}: the loads and stores "
            "of the first ones, in order. A cell is a part of a tensor; it is filled as far as the "
            "program accesses it. Blue: loads. Brown: stores.",
        ),
    )
    drawn = [a for a in trace.accesses if a.program < PROGRAMS]
    for _, same in groupby(drawn, key=lambda a: (a.program, a.kind, a.tensor)):
        accesses = list(same)
        for access in accesses[:ALIKE]:
            strip = _strip(access, trace.sizes[access.tensor])
            parts += strips.drawn(strip, y)
            y += strip.high
        if len(accesses) > ALIKE:
            more = f"and {len(accesses) - ALIKE:,} more"
            parts.append(svg.text(0, y + 11, more, "soft"))
            y += strips.TEXT + strips.GAP
    return strips.alone(parts, y, f"data movement of {name}")


def _strip(a: Access, size: int) -> strips.Strip:
    cell = max(a.width, -(-size // strips.CELLS))
    count = np.bincount(np.unique(a.offsets) // cell, minlength=-(-size // cell))
    cells = [min(float(n) * a.width / cell, 1.0) for n in count]
    moved = metrics.size(len(a.offsets) * a.width)
    return strips.Strip(f"program {a.program} {a.kind} {a.tensor}", cells, moved, a.kind)
