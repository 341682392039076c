"""A judged kernel's time, by the clock of the process that judges it.

The kernel's process is told to run n rounds and answers when they have ended; then 2 n. The
difference of the two waits is n rounds, without the way there and back. Its own clock is asked
too, and only to see whether it agrees: a kernel that has made the clock of its process go slower
is found out. Afterwards the inputs change and one more round must give their results: what has
been timed is what computes.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from kernelwright.contract import Case, Rung
from kernelwright.contract.compare import Verdict as Comparison
from kernelwright.dispatch import entry_of
from kernelwright.machine.facts import last_level_cache
from kernelwright.machine.timers import Track

from . import figures
from .bench import BenchResult, bench
from .calling import value_of
from .material import too_large
from .right import right
from .sandbox_place import There
from .subject import Subject
from .trial import Expected, Fenced, expected, tensors

SPAN_S = 4e-3  # of the shorter wait: the way there and back varies by some 10 us
AGREE, AGREE_US = 0.25, 1000.0  # two clocks of one thing differ by no more, and the way there


class Timed:
    """A function in a box as a guest of a bench: its process computes, this one times."""

    def __init__(self, name: str, place: There, subject: Subject, seed: int):
        self.name, self.place, self.subject, self.seed = name, place, subject, seed
        self.objections: dict[str, tuple[str, str]] = {}
        self.host_us: float | None = None
        self.case: Case | None = None
        self.uncaptured = ""

    def enter(
        self, case: Case, want: Expected, sets: list[dict[str, Any]]
    ) -> tuple[Comparison, Callable[[], Track]]:
        """Whether it is right on a case, and what makes it ready to be sampled."""
        self.case, box = case, self.place.box
        self._fences: list[Fenced] = []
        each = sum(2 * t.untyped_storage().nbytes() + 4096 for t in tensors(want.args))
        given = sum(2 * t.nbytes + 4096 for t in want.native)
        box.rearm((len(sets) + 2) * each + 16 * given)
        run = self.place.run(self.place.fence(want.args))
        verdict = right(self.subject.operator, self._few(want), run.results)
        self._fences = [self.place.fence(s) for s in sets]
        return verdict, self._track

    def _few(self, want: Expected) -> Expected:
        """Of the results those that the function gives."""
        count = len(self.subject.operator.results) + len(self.subject.operator.mutated)
        few = copy.copy(want)
        few.native, few.reference = want.native[:count], want.reference[:count]
        return few

    def _track(self) -> Track:
        box = self.place.box
        self._run = box.next()
        told = [self.place.told(f.args) for f in self._fences]
        prepared = box.process.ask("prepare", box.limits.load_s, run=self._run, sets=told)
        self._launches = int(prepared["launches"])
        self.uncaptured = str(prepared["uncaptured"])
        self._rounds = 1
        while (seconds := self._wait(self._rounds)) < SPAN_S:
            self._rounds *= max(2, min(16, int(SPAN_S / seconds)))
        return Track(self._sample, 3 * self._rounds * self._launches)

    def _wait(self, rounds: int) -> float:
        start = time.perf_counter()
        self.place.box.process.ask("repeat", times=rounds)
        return time.perf_counter() - start

    def _sample(self) -> Callable[[], float]:
        gpu = self.place.box.device.type == "cuda"
        if gpu:  # what others have queued here would run beside it
            torch.cuda.synchronize()
        short = self._wait(self._rounds)
        microseconds = 1e6 * (self._wait(2 * self._rounds) - short) / self._rounds / self._launches
        if gpu:  # the next one finds the GPU busy, as `timers` wants it
            torch.cuda._sleep(200_000)
        return lambda: max(microseconds, 1e-3)  # of a noisy machine, whose waits do not add up

    def confirm(self, cold: tuple[float, ...]) -> None:
        """After its case: do the clocks agree, and does it compute what the inputs hold now?"""
        assert self.case is not None
        if cold:
            self._ask_its_clock()
        operator, box, ladder = self.subject.operator, self.place.box, self.subject.ladder
        assert ladder is not None
        case = replace(self.case, seed=self.seed)
        native = entry_of(ladder, ladder.rung("native"))
        want = expected(ladder.operator, native, case, box.device.type)
        self._fences[0].refill(want.args)
        self._wait(1)
        results = self.place.fetched(self._run, self._fences[0])
        verdict = right(operator, self._few(want), results)
        if not verdict.ok:
            self.objections[self.case.id] = ("timed result", verdict.why)
        if box.device.type == "cuda":
            self.host_us = self._host()

    def _ask_its_clock(self, tries: int = 3) -> None:
        """Its process times some rounds, and this one times how long that takes. A machine that
        is busy with something else delays an answer now and then, but not every one."""
        rounds = 4 * self._rounds
        waits: list[tuple[float, float]] = []
        for _ in range(tries):
            start = time.perf_counter()
            told = float(self.place.box.process.ask("clock", times=rounds))
            waits.append(((time.perf_counter() - start) * 1e6, told))
        if all(mine - told > AGREE * mine + AGREE_US for mine, told in waits):
            assert self.case is not None
            mine, theirs = (us / rounds / self._launches for us in min(waits))
            self.objections[self.case.id] = (
                "clock",
                f"its process says {figures.microseconds(theirs)} a call, "
                f"the judge's clock {figures.microseconds(mine)}",
            )

    def _host(self, calls: int = 50, blocks: int = 15) -> float:
        """Microseconds until a call returns, the GPU idle before: 2 n calls less n calls."""
        ask, found = self.place.box.process.ask, list[float]()
        for _ in range(blocks):
            waits: list[float] = []
            for n in (calls, 2 * calls):
                start = time.perf_counter()
                ask("host", times=n)
                waits.append(time.perf_counter() - start)
                ask("repeat", times=0)
            found.append(1e6 * (waits[1] - waits[0]) / calls)
        return statistics.median(found)


def cases_to_time(subject: Subject, held: dict[str, Any], device: torch.device, quick: bool):
    """Up to four bench cases, spread over the sizes; one, of those that leave the cache, if
    `quick`."""
    every = [
        c for c in subject.operator.cases
        if c.use == "bench" and too_large(c, device) is None
        and all(value_of(subject, c, n) == v for n, v in held.items())
    ]  # fmt: skip
    every.sort(key=lambda c: c.numel * c.dtype.itemsize)
    if quick:
        large = [c for c in every if c.numel * c.dtype.itemsize > last_level_cache(device)]
        return (large or every[-1:])[:1]
    at = sorted({round(i * (len(every) - 1) / 3) for i in range(4)}) if every else []
    return [every[i] for i in at]


def timed(
    guest: Timed, cases: list[Case], *, quick: bool = False, limits: float | None = None
) -> Iterator[tuple[figures.Table, BenchResult]]:
    """The table of each case, every rung and peer beside the guest; what `confirm` objects to is
    the guest's."""
    ladder = guest.subject.ladder
    assert ladder is not None
    shown = replace(ladder, rungs=(*ladder.rungs, Rung(guest.name, "torch", "judged:it", "judged")))
    for case in cases:
        result = bench(
            [ladder], cases=[case.id], quick=quick, peers=True, guests=[guest], time_limit=limits
        )
        mine = next(r for r in result.records if r.rung == guest.name)
        if mine.outcome == "pass":
            guest.confirm(mine.cold)
        machine = result.environment["machine"]
        yield figures.table(shown, machine, case.id, result.records), result
