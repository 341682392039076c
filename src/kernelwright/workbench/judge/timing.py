"""A judged kernel's time, by the clock of the process that judges it.

The judge sends the kernel's process a request for n rounds, which it answers when they have ended,
and then one for 2 n. The difference of the two waits is the time of n rounds without the overhead
of a request. The process's own clock is compared with it, to detect a kernel that slows the clock
of its process. Afterwards the inputs change, the results are overwritten, and one more round must
give the right results in every call: the calls that were timed do compute.
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
from kernelwright.workbench.verify.candidate import Expected, Fenced, expected, same_bits, tensors
from kernelwright.workbench.verify.large_tensors import right

from .call_signature import value_of
from .sandbox.proxy import There
from .sandbox.sandbox import Died, Failed
from .spec import Subject
from .verdict import CaseOutcome, Verdict

SPAN_S = 4e-3  # of the shorter wait: the way there and back varies by some 10 us
AGREE, AGREE_US = 0.25, 1000.0  # two clocks of one thing differ by no more, and the way there
TRIES, MOST_TRIES = 3, 12  # of two clocks, and while they differ
ROOM = 8192  # bytes around a tensor in shared memory: its fences, and where it may begin
CONFIRMED = 256  # calls of a round whose results are looked at

Kind = tuple[torch.dtype, tuple[tuple[str, Any], ...]]  # of a case: its dtype and parameters


class Timed:
    """A function in a box as a guest of a bench: its process computes, this one times.

    Attributes:
        objections: by case, (check, reason): what is wrong with it once it is timed.
        host_us: microseconds that a call takes the host, on the case that was timed last.
    """

    def __init__(self, name: str, place: There, subject: Subject, seed: int):
        self.name, self.place, self.subject, self.seed = name, place, subject, seed
        self.objections: dict[str, tuple[str, str]] = {}
        self.host_us: float | None = None
        self.case: Case | None = None
        self.uncaptured = ""
        self.prepared = self.dead = False

    def enter(
        self, case: Case, want: Expected, sets: list[dict[str, Any]]
    ) -> tuple[Accuracy, Callable[[], Track]]:
        """Whether it is right on a case, and what makes it ready to be sampled."""
        self.case, self.prepared, self.host_us = case, False, None
        each = sum(t.untyped_storage().nbytes() + ROOM for t in tensors(want.args))
        given = sum(t.nbytes + ROOM for t in want.native)
        self._fences: list[Fenced] = []
        with self._objecting():
            self.place.box.rearm((len(sets) + 1) * each + 2 * given, largest=given)
            run = self.place.run(self.place.fence(want.args))
        verdict = right(self.subject.operator, self._few(want), run.results)
        if not verdict.ok:
            self.objections[case.id] = ("value", verdict.why)
        self._fences = [self.place.fence(s) for s in sets]
        return verdict, self._track

    @contextmanager
    def _objecting(self) -> Generator[None]:
        """What it raises, unless that is a refusal, and its end are its fault on this case."""
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

    def _few(self, want: Expected) -> Expected:
        """Of the results those that the function gives."""
        count = len(self.subject.operator.results) + len(self.subject.operator.mutated)
        few = copy.copy(want)
        few.native, few.reference = want.native[:count], want.reference[:count]
        return few

    def _track(self) -> Track:
        """A graph of one round over the sets or, where that is short, of several; arguments that a
        call changes are used once."""
        with self._objecting():
            round_us = self._prepare(1)
            if round_us < SPAN_US and not (self.uncaptured or self.subject.operator.mutated):
                self._prepare(math.ceil(SPAN_US / round_us))
        self.prepared = True
        return Track(self._sample, 3 * self._rounds * self._launches)

    def _prepare(self, passes: int) -> float:
        """Make its process ready, and find how many rounds are long enough to be waited for;
        microseconds of one."""
        box = self.place.box
        told = [self.place.told(f.args) for f in self._fences]
        prepared = box.process.ask("prepare", box.limits.load_s, sets=told, passes=passes)
        self._launches = int(prepared["launches"])
        self.uncaptured = str(prepared["uncaptured"])
        self._rounds = 1
        # the shorter of two waits: a machine that stops for a moment makes nothing long enough
        while (seconds := min(self._wait(self._rounds) for _ in range(2))) < SPAN_S:
            self._rounds *= max(2, min(16, int(SPAN_S / seconds)))
        return 1e6 * seconds / self._rounds

    def _wait(self, rounds: int) -> float:
        start = time.perf_counter()
        self.place.box.process.ask("repeat", times=rounds)
        return time.perf_counter() - start

    def _sample(self) -> Callable[[], float]:
        """One sample; endless once its process has ended, which is said elsewhere."""
        gpu = self.place.box.device.type == "cuda"
        if gpu:  # what others have queued here would run beside it
            torch.cuda.synchronize()
        try:
            with self._objecting():
                short = self._wait(self._rounds)
                taken = 1e6 * (self._wait(2 * self._rounds) - short)
        except (Failed, Died):
            return lambda: math.inf
        finally:
            if gpu:  # the next one finds the GPU busy, as `timers` wants it
                torch.cuda._sleep(200_000)
        microseconds = taken / self._rounds / self._launches
        return lambda: max(microseconds, 1e-3)  # of a noisy machine, whose waits do not add up

    def confirm(self, cold: tuple[float, ...]) -> None:
        """After its case: do the clocks agree, and does it compute what the inputs hold now?"""
        assert self.case is not None
        case, found = self.case.id, dict[str, str]()
        try:
            found["timed result"] = self._wrong_call()
            found["clock"] = self._clocks_apart() if cold else ""
            found["nothing replaced"] = self.place.box.process.ask("replaced") or ""
            if self.place.box.device.type == "cuda":
                self.host_us = self._host()
        except (Failed, Died) as e:
            self._fault("after it was timed", e)
        for check, why in found.items():
            if why:
                self.objections.setdefault(case, (check, why))

    def _wrong_call(self) -> str:
        """Every call of a round on values that it has not seen: which is not right, or "". Each
        set has one of two kinds of values, drawn anew, and each result lies in memory of its own:
        no call can do another's work."""
        process = self.place.box.process
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
                results = self.place.timed(call, self._fences[at])
                if known and all(map(same_bits, known, results)):
                    continue
                verdict = right(self.subject.operator, self._few(want), results)
                if not verdict.ok:
                    return f"call {call + 1} of {self._launches}: {verdict.why}"
                known = tuple(t.clone() for t in results)
        return ""

    def _want(self, kind: int) -> Expected:
        ladder, case = self.subject.ladder, self.case
        assert ladder is not None and case is not None
        native = entry_of(ladder, ladder.rung("native"))
        case = replace(case, seed=self.seed + kind)
        return expected(ladder.operator, native, case, self.place.box.device.type)

    def _clocks_apart(self) -> str:
        """Its process times some rounds, and this one times how long that takes. A machine that
        is busy with something else delays answers, but not every one: one that agrees is enough."""
        rounds = 4 * self._rounds
        wait, _ = self._timed_twice(rounds)
        rounds *= min(64, max(1, round(4e6 * SPAN_S / wait)))  # it was busier when they were set
        waits: list[tuple[float, float]] = []
        while len(waits) < TRIES or (len(waits) < MOST_TRIES and all(map(_apart, waits))):
            waits.append(self._timed_twice(rounds))
        sampled = 1e6 * min(self._wait(rounds) for _ in range(TRIES))
        mine, theirs = min(waits)
        of_each = [metrics.microseconds(us / rounds / self._launches)
                   for us in (mine, theirs, sampled)]  # fmt: skip
        if all(map(_apart, waits)):
            return f"its process says {of_each[1]} a call, the judge's clock {of_each[0]}"
        if 2 * sampled + AGREE_US < mine:
            return f"its process answered after {of_each[2]} a call, which took {of_each[0]}"
        return ""

    def _timed_twice(self, rounds: int) -> tuple[float, float]:
        """Microseconds of some rounds by this process's clock, and by the kernel's."""
        start = time.perf_counter()
        told = float(self.place.box.process.ask("clock", times=rounds))
        return (time.perf_counter() - start) * 1e6, told

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
        return max(0.0, statistics.median(found))


def _apart(waits: tuple[float, float]) -> bool:
    """Whether the judge's clock and the process's, in microseconds, time something else."""
    us, told = waits
    return us - told > AGREE * us + AGREE_US


def cases_to_time(
    subject: Subject,
    held: dict[str, Any],
    device: torch.device,
    quick: bool,
    refused: Collection[Kind] = (),
) -> list[Case]:
    """Up to four bench cases, spread over the sizes; one, of those that leave the cache, if
    `quick`."""
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
    """What the kernel takes no case of: there is nothing to time."""

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
    """The table of each case, every rung and peer beside the guest, whose times stand where there
    is no objection to them."""
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
    """The guest's record, without its times where there is an objection to them."""
    check, why = guest.objections.get(mine.case, ("", ""))
    if not why:
        return mine
    outcome = "wrong" if check else "error"
    said = f"{check}: {why}" if check else why
    return replace(mine, outcome=outcome, why=said, cold=(), warm=(), host=(), bound="")
