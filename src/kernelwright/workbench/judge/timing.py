"""A judged kernel's time, by the clock of the process that judges it.

The judge sends the kernel's process a request for n rounds, which it answers when they have ended,
and then one for 2 n. The difference of the two waiting times is the time of n rounds without the
overhead of a request. The time by the process's own clock is compared with it, to detect a kernel
that slows down that clock. Afterwards the inputs are changed, the results are overwritten, and one
more round must give the right results in every call, which shows that the timed calls do compute.
"""

from __future__ import annotations

import copy
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from kernelwright.contract import Case, Rung
from kernelwright.contract.compare import Accuracy
from kernelwright.dispatch import entry_of
from kernelwright.machine.facts import last_level_cache
from kernelwright.machine.timers import SPAN_US, Track
from kernelwright.workbench.bench.bench import bench
from kernelwright.workbench.bench.result import BenchResult
from kernelwright.workbench.bench.workload import unfit
from kernelwright.workbench.records import metrics
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.verify.candidate import (
    Expected,
    GuardedArgs,
    expected,
    same_bits,
    tensors,
)
from kernelwright.workbench.verify.large_tensors import right

from .call_signature import value_of
from .sandbox.proxy import SandboxRunner
from .sandbox.sandbox import Died, Failed
from .spec import Subject
from .verdict import CaseOutcome, Verdict

SPAN_S = 4e-3  # minimum of the shorter wait: the overhead of a request varies by about 10 us
AGREE, AGREE_US = 0.25, 1000.0  # the maximum relative and absolute difference of the two clocks
TRIES, MOST_TRIES = 3, 12  # comparisons of the clocks, and their maximum while they differ
ROOM = 8192  # bytes around a tensor in shared memory, for fences and alignment
CONFIRMED = 256  # maximum number of calls of a round whose results are checked

Kind = tuple[torch.dtype, tuple[tuple[str, Any], ...]]  # the dtype and the parameters of a case


class Timed:
    """A function in a box as a guest of a bench: its process computes, this process times.

    Attributes:
        objections: by case, (check, reason): what timing found to be wrong.
        host_us: host microseconds of a call, on the case that was timed last.
    """

    def __init__(self, name: str, runner: SandboxRunner, subject: Subject, seed: int):
        self.name, self.runner, self.subject, self.seed = name, runner, subject, seed
        self.objections: dict[str, tuple[str, str]] = {}
        self.host_us: float | None = None
        self.case: Case | None = None
        self.uncaptured = ""
        self.prepared = self.dead = False

    def enter(
        self, case: Case, want: Expected, sets: list[dict[str, Any]]
    ) -> tuple[Accuracy, Callable[[], Track]]:
        """Whether it is right on a case, and the function that prepares it for sampling."""
        self.case, self.prepared, self.host_us = case, False, None
        each = sum(t.untyped_storage().nbytes() + ROOM for t in tensors(want.args))
        given = sum(t.nbytes + ROOM for t in want.native)
        self._fences: list[GuardedArgs] = []
        with self._objecting():
            self.runner.box.rearm((len(sets) + 1) * each + 2 * given, largest=given)
            run = self.runner.run(self.runner.fence(want.args))
        verdict = self._right(want, run.results)
        if not verdict.ok:
            self.objections[case.id] = ("value", verdict.why)
        self._fences = [self.runner.fence(s) for s in sets]
        return verdict, self._track

    @contextmanager
    def _objecting(self) -> Generator[None]:
        """Count exceptions other than rejections, and the process's end, as faults on this case."""
        try:
            yield
        except (Failed, Died) as e:
            if isinstance(e, Died) or not (e.refused or e.unable):
                self._fault("while it was timed", e)
            raise

    def _fault(self, when: str, e: Failed | Died) -> None:
        assert self.case is not None
        self.dead = self.dead or isinstance(e, Died)
        why = str(e).strip().splitlines()[0]
        self.objections.setdefault(self.case.id, ("", f"{when}: {why}"))

    def _right(self, want: Expected, results: tuple[Any, ...]) -> Accuracy:
        if self.subject.check:
            why = self.subject.check(want.args, results)
            return Accuracy(not why, why)
        return right(self.subject.operator, self._few(want), results)

    def _few(self, want: Expected) -> Expected:
        """The expected results that the function returns."""
        count = len(self.subject.operator.results) + len(self.subject.operator.mutated)
        few = copy.copy(want)
        few.native, few.reference = want.native[:count], want.reference[:count]
        return few

    def _track(self) -> Track:
        """Prepare a graph of one round over the sets or, if that is short, of several. Arguments
        that a call changes are used only once."""
        with self._objecting():
            round_us = self._prepare(1)
            if round_us < SPAN_US and not (self.uncaptured or self.subject.operator.mutated):
                self._prepare(math.ceil(SPAN_US / round_us))
        self.prepared = True
        return Track(self._sample, 3 * self._rounds * self._launches)

    def _prepare(self, passes: int) -> float:
        """Prepare its process, and find how many rounds make a wait long enough; returns the
        microseconds of one round."""
        box = self.runner.box
        told = [self.runner.told(f.args) for f in self._fences]
        prepared = box.process.ask("prepare", box.limits.load_s, sets=told, passes=passes)
        self._launches = int(prepared["launches"])
        self.uncaptured = str(prepared["uncaptured"])
        self._rounds = 1
        # the shorter of two waits, in case the machine pauses during one
        while (seconds := min(self._wait(self._rounds) for _ in range(2))) < SPAN_S:
            self._rounds *= max(2, min(16, int(SPAN_S / seconds)))
        return 1e6 * seconds / self._rounds

    def _wait(self, rounds: int) -> float:
        start = time.perf_counter()
        self.runner.box.process.ask("repeat", times=rounds)
        return time.perf_counter() - start

    def _sample(self) -> Callable[[], float]:
        """One sample; infinite after its process has ended, which is reported elsewhere."""
        gpu = self.runner.box.device.type == "cuda"
        if gpu:  # work queued by others here would run concurrently
            torch.cuda.synchronize()
        try:
            with self._objecting():
                short = self._wait(self._rounds)
                taken = 1e6 * (self._wait(2 * self._rounds) - short)
        except (Failed, Died):
            return lambda: math.inf
        finally:
            if gpu:  # keep the GPU busy for the next candidate, as `timers` requires
                torch.cuda._sleep(200_000)
        microseconds = taken / self._rounds / self._launches
        return lambda: max(microseconds, 1e-3)  # on a noisy machine the difference can be negative

    def confirm(self, cold: tuple[float, ...]) -> None:
        """After its case: check that the clocks agree and that it computes from current inputs."""
        assert self.case is not None
        case, problems = self.case.id, dict[str, str]()
        try:
            problems["timed result"] = self._wrong_call()
            problems["clock"] = self._clocks_apart() if cold else ""
            problems["nothing replaced"] = self.runner.box.process.ask("replaced") or ""
            if self.runner.box.device.type == "cuda":
                self.host_us = self._host()
        except (Failed, Died) as e:
            self._fault("after it was timed", e)
        for check, why in problems.items():
            if why:
                self.objections.setdefault(case, (check, why))

    def _wrong_call(self) -> str:
        """Check the calls of a round on new values: the first that is wrong, or "". Each set gets
        one of two kinds of values at random, and each result has its own memory, so that no call
        can do the work of another."""
        process = self.runner.box.process
        drawn = [secrets.randbelow(2) for _ in self._fences]
        for kind in (0, 1):
            want = self._want(kind)
            for fenced, mine in zip(self._fences, drawn, strict=True):
                if mine == kind:
                    fenced.refill(want.args)
        process.ask("spoil")
        self._wait(1)
        calls = list(range(self._launches))
        if len(calls) > CONFIRMED:
            calls = sorted(random.SystemRandom().sample(calls, CONFIRMED))
        for kind in (1, 0):
            want, known = self._want(kind), tuple[Any, ...]()
            for call in calls:
                at = call % len(self._fences)
                if drawn[at] != kind:
                    continue
                results = self.runner.timed(call, self._fences[at])
                if known and all(map(same_bits, known, results)):
                    continue
                verdict = self._right(want, results)
                if not verdict.ok:
                    return f"call {call + 1} of {self._launches}: {verdict.why}"
                known = tuple(t.clone() for t in results)
        return ""

    def _want(self, kind: int) -> Expected:
        ladder, case = self.subject.ladder, self.case
        assert ladder is not None and case is not None
        native = entry_of(ladder, ladder.rung("native"))
        case = replace(case, seed=self.seed + kind)
        return expected(ladder.operator, native, case, self.runner.box.device.type)

    def _clocks_apart(self) -> str:
        """Compare the process's timing of some rounds with the time that this process measures. A
        busy machine delays some answers but not all, so one agreement is sufficient."""
        rounds = 4 * self._rounds
        wait, _ = self._timed_twice(rounds)
        rounds *= min(64, max(1, round(4e6 * SPAN_S / wait)))  # it was chosen on a busier machine
        waits: list[tuple[float, float]] = []
        while len(waits) < TRIES or (len(waits) < MOST_TRIES and all(map(_apart, waits))):
            waits.append(self._timed_twice(rounds))
        sampled = 1e6 * min(self._wait(rounds) for _ in range(TRIES))
        mine, theirs = min(waits)
        of_each = [metrics.microseconds(us / rounds / self._launches)
                   for us in (mine, theirs, sampled)]  # fmt: skip
        if all(map(_apart, waits)):
            return f"its process reports {of_each[1]} per call, the judge's clock {of_each[0]}"
        if 2 * sampled + AGREE_US < mine:
            return f"its process answered after {of_each[2]} per call, which took {of_each[0]}"
        return ""

    def _timed_twice(self, rounds: int) -> tuple[float, float]:
        """Microseconds of some rounds by this process's clock, and by the kernel's process's."""
        start = time.perf_counter()
        told = float(self.runner.box.process.ask("clock", times=rounds))
        return (time.perf_counter() - start) * 1e6, told

    def _host(self, calls: int = 50, blocks: int = 15) -> float:
        """Microseconds until a call returns on an idle GPU: the time of 2 n calls minus n calls."""
        ask, times = self.runner.box.process.ask, list[float]()
        for _ in range(blocks):
            waits: list[float] = []
            for n in (calls, 2 * calls):
                start = time.perf_counter()
                ask("host", times=n)
                waits.append(time.perf_counter() - start)
                ask("repeat", times=0)
            times.append(1e6 * (waits[1] - waits[0]) / calls)
        return max(0.0, statistics.median(times))


def _apart(waits: tuple[float, float]) -> bool:
    """Whether the times by the judge's and the process's clock, in microseconds, disagree."""
    us, told = waits
    return us - told > AGREE * us + AGREE_US


def cases_to_time(
    subject: Subject,
    held: dict[str, Any],
    device: torch.device,
    quick: bool,
    refused: Collection[Kind] = (),
) -> list[Case]:
    """Up to four bench cases, spread over the sizes; if `quick`, one of those that exceed the
    cache."""
    every = [
        c for c in subject.operator.cases
        if c.use == "bench" and unfit(c, device) is None and (c.dtype, c.params) not in refused
        and all(value_of(subject, c, n) == v for n, v in held.items())
    ]  # fmt: skip
    every.sort(key=lambda c: c.numel * c.dtype.itemsize)
    if quick:
        large = [c for c in every if c.numel * c.dtype.itemsize > last_level_cache(device)]
        return (large or every[-1:])[:1]
    at = sorted({round(i * (len(every) - 1) / 3) for i in range(4)}) if every else []
    return [every[i] for i in at]


def refused(subject: Subject, verdict: Verdict) -> set[Kind]:
    """The dtypes and parameters of which the kernel rejects all cases, so they are not timed."""

    def kinds(outcomes: Sequence[CaseOutcome]) -> set[Kind]:
        cases = [subject.operator.case(o.case) for o in outcomes]
        return {(c.dtype, c.params) for c in cases}

    return kinds(verdict.refused) - kinds(verdict.passed)


def timed(
    guest: Timed,
    cases: list[Case],
    *,
    quick: bool = False,
    limits: float | None = None,
    on_case: Callable[[Case], None] = lambda case: None,
) -> Iterator[tuple[metrics.Table, BenchResult]]:
    """The table of each case: every rung and peer, and the guest, whose times are shown if there is
    no objection to them."""
    ladder = guest.subject.ladder
    assert ladder is not None
    shown = replace(ladder, rungs=(*ladder.rungs, Rung(guest.name, "torch", "judged:it", "judged")))
    for case in cases:
        on_case(case)
        result = bench(
            [ladder], cases=[case.id], quick=quick, peers=True, guests=[guest], time_limit=limits
        )
        mine = next(r for r in result.records if r.rung == guest.name)
        if guest.prepared and not guest.dead:
            guest.confirm(mine.cold)
        records = [_objected(r, guest) if r is mine else r for r in result.records]
        machine = result.environment["machine"]
        noise = result.noise.get((ladder.name, case.id))
        yield metrics.table(shown, machine, case.id, records, noise), result
        if guest.dead:
            return


def _objected(mine: Record, guest: Timed) -> Record:
    """The guest's record, without its times if there is an objection to them."""
    check, why = guest.objections.get(mine.case, ("", ""))
    if not why:
        return mine
    outcome = "wrong" if check else "error"
    said = f"{check}: {why}" if check else why
    return replace(mine, outcome=outcome, why=said, cold=(), warm=(), host=(), bound="")
