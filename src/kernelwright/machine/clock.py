"""Timing: samples functions that launch work, alternately, until their medians are known.

All timings of the package are taken here. A candidate is a list of functions without arguments, one
for each rotated set of buffers. On a GPU, a candidate's launches are captured in CUDA graphs and
events measure each replay; on a CPU the wall clock is used. Candidates are replayed in random
order, round by round, so that changes of the machine's state affect all of them. Three times are
measured: cold (the sets rotate, so operands come from DRAM), warm (one set, so they come from
cache), host (the time until the call returns).
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from . import nvml
from .facts import last_level_cache
from .stats import interval, median
from .timers import CpuTimer, GpuTimer, Track, keep_freed_memory

FOOTPRINT = 3  # rotated buffers cover the last-level cache this many times
HOST_US = 100.0  # a launch longer than this hides its host time
KEEP = 64  # samples of a candidate


@dataclass(frozen=True)
class Candidate:
    """Something to time.

    Attributes:
        calls: one function for each set of buffers; each launches the same work on its set.
        bytes: the minimum that one launch moves through memory, to detect impossible times.
        warm, host: whether to measure those times too.
        track: prepares it for sampling, instead of `calls`; for candidates in another process.
    """

    name: str
    calls: Sequence[Callable[[], Any]]
    bytes: int = 0
    warm: bool = False
    host: bool = False
    track: Callable[[], Track] | None = None


@dataclass(frozen=True)
class Times:
    """Samples in microseconds per launch, or why there are none."""

    cold: tuple[float, ...] = ()
    warm: tuple[float, ...] = ()
    host: tuple[float, ...] = ()
    error: str = ""


@dataclass(frozen=True)
class StoppingRule:
    """When sampling stops.

    A candidate is done when the 95% interval of its median is narrower than the fraction `width` of
    the median, after at least `least` and at most `most` samples, or when its own samples have
    taken `candidate_s` seconds. Sampling ends for all after `seconds`.
    """

    least: int = 12
    most: int = KEEP
    width: float = 0.01
    candidate_s: float = 0.25
    seconds: float = 1.5

    def __post_init__(self):
        assert 0 < self.least <= self.most <= KEEP


QUICK = StoppingRule(least=4, most=8, width=0.05, candidate_s=0.05, seconds=0.3)
CPU = StoppingRule(least=5, most=32, width=0.04, candidate_s=1.5, seconds=12.0)
CPU_QUICK = StoppingRule(least=3, most=5, width=0.10, candidate_s=0.5, seconds=4.0)


@dataclass
class Result:
    """Times by candidate, and the driver's readings meanwhile (empty on a CPU)."""

    times: dict[str, Times]
    readings: list[nvml.Reading] = field(default_factory=list)

    @property
    def clock_spread(self) -> float:
        """Spread of the SM clock's readings, as a fraction of the lowest."""
        mhz = [r.sm_mhz for r in self.readings if r.sm_mhz]
        return max(mhz) / min(mhz) - 1 if mhz else 0.0


def rotations(set_bytes: int, device: torch.device) -> int:
    """How many sets of buffers of this size (results included) are needed to evict each other from
    the last-level cache: at least two."""
    want = FOOTPRINT * last_level_cache(device)
    return max(2, -(-want // max(set_bytes, 1)))


@contextmanager
def session(device: torch.device) -> Generator[None]:
    """Make, verify and time candidates inside this block: on a stream that can be captured, with
    the garbage collector off and freed memory kept by the allocator."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        if device.type == "cuda":
            with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)):
                yield
                torch.cuda.synchronize(device)
            gc.collect()  # autograd graphs of peers hold memory in cycles
            torch.cuda.empty_cache()
        else:
            keep_freed_memory()
            yield
    finally:
        if collecting:
            gc.enable()


def measure(
    candidates: Sequence[Candidate],
    device: torch.device,
    rule: StoppingRule | None = None,
    *,
    seed: int = 0,
) -> Result:
    """Time candidates against each other; call inside `session`.

    A candidate that raises is reported with its message, and the others continue. A time that
    exceeds the memory's peak bandwidth is an error too.
    """
    timer = GpuTimer(device) if device.type == "cuda" else CpuTimer(device)
    rule = rule or (StoppingRule() if device.type == "cuda" else CPU)
    rng = random.Random(seed)
    tracks, errors = prepare(candidates, timer.track)
    settle = 2 if device.type == "cuda" else 0  # rounds until the clocks have risen
    cold = interleave(tracks, rule, rng, timer.before, timer.after, settle=settle)
    del tracks  # their graphs hold memory that the warm ones need
    timer.renew()
    good = [c for c in candidates if c.name in cold]
    once = [Candidate(c.name, c.calls[:1]) for c in good if c.warm]
    tracks, warm_errors = prepare(once, timer.track)
    short = StoppingRule(min(rule.least, 8), min(rule.most, 16), 0.02, 0.05, rule.seconds / 4)
    warm = interleave(tracks, short, rng, timer.before, timer.after)
    hosted = {c.name: c.calls[0] for c in good if c.host and median(cold[c.name]) < HOST_US}
    host = time_host(hosted, timer.after, rng)
    errors |= warm_errors
    times = {}
    for c in candidates:
        error = errors.get(c.name) or impossible(median(cold[c.name]), c.bytes, timer.peak)
        samples = [tuple(t.get(c.name, ())) for t in (cold, warm, host)]
        measured = Times(samples[0], samples[1], samples[2])
        times[c.name] = Times(error=error) if error else measured
    return Result(times, timer.readings)


def impossible(microseconds: float, nbytes: int, peak: float | None) -> str:
    """Why a time is impossible, or "". `peak`: the memory's peak bandwidth, bytes per second."""
    if not peak or nbytes / microseconds * 1e6 <= peak:
        return ""
    return (
        f"{nbytes / microseconds / 1e6:.2f} TB/s is more than the memory's {peak / 1e12:.2f}: "
        "the byte count or the timer is wrong"
    )


def prepare(
    candidates: Sequence[Candidate], track: Callable[[Sequence[Callable[[], Any]]], Track]
) -> tuple[dict[str, Track], dict[str, str]]:
    """(tracks, errors) by candidate. An exception is that candidate's result; the run continues."""
    tracks, errors = {}, {}
    for c in candidates:
        try:
            tracks[c.name] = c.track() if c.track else track(c.calls)
        except Exception as e:  # noqa: BLE001
            errors[c.name] = f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"
    return tracks, errors


def interleave(
    tracks: Mapping[str, Track],
    rule: StoppingRule,
    rng: random.Random,
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
    now: Callable[[], float] = time.perf_counter,
    settle: int = 0,
) -> dict[str, list[float]]:
    """Sample every track once per round, each round in a new random order, until all are done.
    Samples of the first `settle` rounds are discarded.

    Sample i of any two tracks is from the same round, so they can be compared in pairs.
    """
    samples: dict[str, list[float]] = {name: [] for name in tracks}
    live, start = list(tracks), now()
    while live:
        rng.shuffle(live)
        before()
        reads = [(name, tracks[name].start()) for name in live]
        after()
        settle -= 1
        if settle >= 0:
            continue
        for name, read in reads:
            samples[name].append(read())
        if now() - start > rule.seconds and all(len(samples[n]) >= 3 for n in live):
            break
        live = [n for n in live if not _done(samples[n], tracks[n].launches, rule)]
    return samples


def _done(samples: list[float], launches: int, rule: StoppingRule) -> bool:
    n = len(samples)
    if n >= rule.most:
        return True
    if n >= 3 and sum(samples) * launches / 1e6 > rule.candidate_s:
        return True
    if n < rule.least or n % 4:
        return False
    low, high = interval(samples)
    return high - low <= rule.width * median(samples)


def time_host(
    calls: Mapping[str, Callable[[], Any]],
    settle: Callable[[], None],
    rng: random.Random,
    blocks: int = 16,
    block: int = 20,
    now: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Microseconds until a call returns, measured over blocks of calls in random order. There is no
    synchronization inside a block, and the device is idle before it (`settle`)."""
    samples: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    repeat = range(block)
    for _ in range(blocks):
        rng.shuffle(names)
        for name in names:
            call = calls[name]
            settle()
            start = now()
            for _ in repeat:
                call()
            samples[name].append((now() - start) / block * 1e6)
    return samples
