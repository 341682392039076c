"""The emulator's checks and counters on a learner's CUDA C++ kernel.

The checks run as in `verify --check`: data races, out-of-bounds accesses, uninitialized reads and
divergent barriers, each with its line. The counters are those of `dissect`.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain

import torch

from kernelwright import emulator
from kernelwright.contract import Case, Ladder, Rung
from kernelwright.contract.exercise import Target
from kernelwright.dispatch import launcher, unsupported
from kernelwright.emulator import build, checks, dissect
from kernelwright.emulator.checks import CHECKS
from kernelwright.emulator.dissect import Access, Dissected, Dissection
from kernelwright.support.errors import ToolchainError
from kernelwright.workbench.sanitize.report import SEEDS, Call, call_of
from kernelwright.workbench.sanitize.tool_runner import apart
from kernelwright.workbench.verify.candidate import map_tensors
from kernelwright.workbench.verify.coverage import LIMIT
from kernelwright.workbench.verify.cuda_kernels import specs_of_case

MOST_FINDINGS = 3  # findings that are shown; others usually follow from the first


@dataclass(frozen=True)
class Counter:
    """What is counted in a launch, by line of the rung: summed over all launches of a call, or per
    element of its input."""

    unit: str
    parts: Callable[[Dissected], Iterable[tuple[int, int]]]
    per_element: bool


@dataclass(frozen=True)
class Count:
    """A counter's value, its target, and the line that contributes most."""

    unit: str
    value: float
    most: float
    line: int

    @property
    def met(self) -> bool:
        return self.value <= self.most


def _accesses(value: Callable[[Access], int]) -> Callable[[Dissected], Iterable[tuple[int, int]]]:
    return lambda launch: ((a.place.line, value(a)) for a in launch.accesses)


COUNTERS = {
    "sectors": Counter(
        "sectors of global memory per element", _accesses(lambda a: a.sectors), True
    ),
    "conflicts": Counter("bank conflicts", _accesses(lambda a: a.conflicts), False),
    "atomics": Counter(
        "global atomics per element",
        _accesses(lambda a: a.lanes * (a.kind == "atomic" and a.memory != "shared")),
        True,
    ),
    "divergence": Counter(
        "divergent branches per element",
        lambda launch: ((b.place.line, b.parted) for b in launch.branches),
        True,
    ),
}


def set_up() -> None:
    """Build what a first check needs: the emulator, its headers and its observers.

    Raises:
        ToolchainError: there is no C++ compiler.
    """
    if why := emulator.missing("watched"):
        raise ToolchainError(why)
    build.runtime()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        builds = [pool.submit(build.prelude, kind) for kind in ("fast", "watched", "dissected")]
        builds += [pool.submit(build.observer, part.HERE) for part in (checks, dissect)]
        for each in builds:
            each.result()


def missing(rung: Rung) -> str | None:
    """Why a rung cannot be checked, or None."""
    if rung.backend != "cuda":
        return f"races and counters are found in CUDA C++ only, not in {rung.backend}"
    return emulator.missing("watched")


def findings(ladder: Ladder, rung: Rung, case: Case) -> list[str]:
    """What the checks find on a case, each with its line; [] if the rung does not take the case."""
    call = call_of(ladder, rung, rung.configs[0], case)
    texts: dict[str, None] = {}
    if isinstance(call, Call):
        for seed in SEEDS:
            texts |= {f"{f.check}: {f.text}": None for f in call.watched(tuple(CHECKS), seed)[1]}
            if texts:
                break
    return list(texts)[:MOST_FINDINGS]


def cases(ladder: Ladder, rung: Rung) -> tuple[Case, ...]:
    """The inputs that the checks run: the two that move most bytes, with ordinary values, in
    float32 and with few parameters if possible."""
    plain = (
        c
        for c in ladder.operator.cases
        if c.use == "verify" and c.values == "normal" and c.layout == "contiguous"
    )
    fitting = [c for c in plain if 0 < c.numel <= LIMIT["cuda"] and _takes(ladder, rung, c)]
    least = min(map(_kind, fitting))
    same = [c for c in fitting if _kind(c) == least]
    return tuple(sorted(same, key=lambda c: -_moved(ladder, c))[:2])


def _kind(case: Case) -> tuple[bool, int]:
    return case.dtype != torch.float32, len(case.params)


def _takes(ladder: Ladder, rung: Rung, case: Case) -> bool:
    return unsupported(rung, specs_of_case(ladder, case), torch.device("cpu")) is None


def _moved(ladder: Ladder, case: Case) -> int:
    return ladder.operator.cost(**specs_of_case(ladder, case)).bytes


def counted(
    ladder: Ladder, rung: Rung, case: Case, targets: tuple[Target, ...]
) -> tuple[Count, ...]:
    """The values of the counters on a case."""
    inputs = ladder.operator.inputs(case, "cpu")
    args = ladder.operator.with_defaults(inputs)
    args = map_tensors(args, lambda t: apart(t, "cpu"))
    look = Dissection()
    with look.mode():
        run = launcher(ladder, args, rung.name, rung.configs[0])
    launches = look.call(run, args)
    counts: list[Count] = []
    for target in targets:
        counter, by_line = COUNTERS[target.counter], collections.Counter[int]()
        for line, part in chain.from_iterable(map(counter.parts, launches)):
            by_line[line] += part
        value = by_line.total() / (case.numel if counter.per_element else 1)
        (line, _) = max(by_line.items(), key=lambda x: x[1], default=(0, 0))
        counts.append(Count(counter.unit, value, target.most, line))
    return tuple(counts)
