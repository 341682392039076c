"""The clock's verdicts on simulated machines and on this one."""

from __future__ import annotations

import random

import pytest
import torch

from kernelwright import emulator
from kernelwright.machine import clock, facts, here, last_level_cache, nvml, slug, stats, timers
from kernelwright.workbench import env

CPU = torch.device("cpu")


class FakeMachine:
    """A clock that advances only when a track is sampled; `slow` is a drift for all tracks."""

    def __init__(self, drift: float = 0.0, noise: float = 0.0):
        self.t, self.drift, self.noise, self.rng = 0.0, drift, noise, random.Random(1)
        self.order: list[list[str]] = []

    def now(self) -> float:
        return self.t

    def before(self) -> None:
        self.order.append([])

    def track(self, name: str, microseconds: float, launches: int = 10) -> clock.Track:
        def start():
            self.order[-1].append(name)
            us = microseconds * (1 + self.drift * self.t) * (1 + self.noise * self.rng.gauss(0, 1))
            self.t += us * launches / 1e6
            return lambda: us

        return clock.Track(start, launches)

    def interleave(self, rule: clock.StoppingRule, **tracks: float) -> dict[str, list[float]]:
        made = {n: self.track(n, us) for n, us in tracks.items()}
        return clock.interleave(made, rule, random.Random(0), before=self.before, now=self.now)


def test_every_round_samples_each_track_once_in_another_order():
    machine = FakeMachine(noise=0.1)
    samples = machine.interleave(clock.StoppingRule(least=16, most=16, width=0.0), a=10, b=20, c=30)
    assert {len(s) for s in samples.values()} == {16}
    assert all(sorted(r) == ["a", "b", "c"] for r in machine.order)
    assert len({tuple(r) for r in machine.order}) > 3


def test_sampling_stops_when_the_interval_is_narrow():
    steady = FakeMachine(noise=0.001).interleave(clock.StoppingRule(), a=100)
    noisy = FakeMachine(noise=0.2).interleave(clock.StoppingRule(), a=100)
    assert len(steady["a"]) == clock.StoppingRule().least
    assert len(noisy["a"]) == clock.StoppingRule().most


def test_sampling_stops_by_the_interval_that_is_printed():
    rule = clock.StoppingRule(least=8, candidate_s=1e9, seconds=1e9)

    def narrow(samples):
        low, high = stats.interval(samples)
        return high - low <= rule.width * stats.median(samples)

    stopped = set()
    for seed in range(20):
        machine = FakeMachine(noise=0.012)
        machine.rng = random.Random(seed)
        samples = machine.interleave(rule, a=100)["a"]
        checked = range(rule.least, rule.most, 4)
        assert len(samples) == next((n for n in checked if narrow(samples[:n])), rule.most)
        stopped.add(len(samples))
    assert len(stopped) > 5


def test_rounds_until_the_machine_has_settled_are_thrown_away():
    machine = FakeMachine()
    rule = clock.StoppingRule(least=4, most=4)
    tracks = {"a": machine.track("a", 10)}
    samples = clock.interleave(
        tracks, rule, random.Random(0), machine.before, now=machine.now, settle=3
    )
    assert len(samples["a"]) == 4
    assert len(machine.order) == 7


def test_a_slow_track_takes_its_own_time_only():
    rule = clock.StoppingRule(width=0.0, candidate_s=0.1, seconds=1e9)
    samples = FakeMachine(noise=0.1).interleave(rule, slow=5000, fast=10)
    assert len(samples["slow"]) == 3
    assert len(samples["fast"]) == rule.most


def test_sampling_stops_at_the_time_limit():
    rule = clock.StoppingRule(width=0.0, candidate_s=1e9, seconds=0.01)
    samples = FakeMachine(noise=0.1).interleave(rule, a=100, b=100)
    assert 3 <= len(samples["a"]) == len(samples["b"]) < 10


def test_drift_of_the_machine_does_not_decide():
    """The clock slows by half during the run; a is 5% faster than b throughout."""
    machine = FakeMachine(drift=4.0, noise=0.003)
    rule = clock.StoppingRule(least=48, most=48, width=0.0)
    s = machine.interleave(rule, a=95, again=95, b=100)
    noise = stats.noise(s["a"], s["again"])
    assert max(s["a"]) / min(s["a"]) > 1.3
    assert noise < 0.01
    found = stats.compare(s["a"], s["b"], noise=noise)
    assert found.verdict == "faster"
    assert 1.04 < found.low <= found.ratio <= found.high < 1.07


@pytest.mark.parametrize(
    ("a", "b", "noise", "spread", "verdict"),
    [
        (90, 100, 0.01, 0.0, "faster"),
        (100, 90, 0.01, 0.0, "slower"),
        (99, 100, 0.01, 0.0, "same"),
        (95, 100, 0.01, 0.10, "ambiguous"),  # the clocks varied more than the two differ
        (80, 100, 0.01, 0.10, "faster"),
        (95, 100, 0.01, 0.015, "faster"),  # clocks within 2% are ignored
    ],
)
def test_verdicts(a, b, noise, spread, verdict):
    rng = random.Random(2)
    samples = [[x * (1 + 0.002 * rng.gauss(0, 1)) for _ in range(32)] for x in (a, b)]
    assert stats.compare(*samples, noise=noise, clock_spread=spread).verdict == verdict


def test_a_difference_that_samples_do_not_carry_is_ambiguous():
    rng = random.Random(3)
    a = [100 * (1 + 0.3 * rng.gauss(0, 1)) for _ in range(8)]
    b = [104 * (1 + 0.3 * rng.gauss(0, 1)) for _ in range(8)]
    found = stats.compare(a, b, noise=0.0001)
    assert found.low < 1 < found.high
    assert found.verdict == "ambiguous"


def test_the_interval_holds_the_median_and_prints_the_same_twice():
    rng = random.Random(4)
    samples = [rng.gauss(10, 1) for _ in range(33)]
    low, high = stats.interval(samples)
    assert low <= stats.median(samples) <= high
    assert (low, high) == stats.interval(samples)
    assert stats.interval([3.0] * 5) == (3.0, 3.0)


def test_times_that_memory_cannot_reach_are_refused():
    assert clock.impossible(100.0, 300_000_000, 4.8e12) == ""
    assert "3.00 TB/s is more than the memory's 2.00" in clock.impossible(100.0, 300_000_000, 2e12)
    assert clock.impossible(1e-9, 1 << 30, None) == ""


def test_an_impossible_time_is_an_error_and_has_no_samples(monkeypatch):
    class Timer(FakeMachine):
        peak, readings = 1e12, ()

        def __init__(self, device):
            super().__init__()

        def after(self):
            pass

        renew = after

        def track(self, calls):
            return super().track("", calls[0]())

    monkeypatch.setattr(clock, "CpuTimer", Timer)
    ok, fast = (
        clock.Candidate(n, [lambda us=us: us], 1 << 20) for n, us in (("ok", 2), ("fast", 1))
    )
    times = clock.measure([ok, fast], CPU, clock.QUICK).times
    assert times["ok"].cold and not times["ok"].error
    assert "the byte count or the timer is wrong" in times["fast"].error
    assert not times["fast"].cold


def test_what_a_candidate_raises_is_its_own_result():
    def bad():
        raise ValueError("no such thing\nsecond line")

    calls = [clock.Candidate("bad", [bad]), clock.Candidate("good", [lambda: None])]
    times = clock.measure(calls, CPU, clock.CPU_QUICK).times
    assert times["bad"] == clock.Times(error="ValueError: no such thing")
    assert times["good"].cold


def test_host_time_is_a_call_without_waiting_for_the_device():
    settled, t = [], [0.0]

    def call():
        t[0] += 5e-6

    def settle():
        settled.append(t[0])
        t[0] += 1.0  # the wait before a block must not be counted

    found = clock.time_host({"a": call}, settle, random.Random(0), 4, 10, now=lambda: t[0])
    assert found["a"] == pytest.approx([5.0] * 4)
    assert len(settled) == 4


def test_rotated_buffers_cover_three_caches():
    cache = last_level_cache(CPU)
    for size in (1 << 16, cache, 10 * cache):
        n = clock.rotations(size, CPU)
        assert n >= 2
        assert n * size >= 3 * cache or n == 2


def test_the_wall_clock_rotates_its_calls():
    seen = []
    calls = [lambda i=i: seen.append(i) for i in range(3)]
    track = timers.CpuTimer(CPU).track(calls)
    seen.clear()
    assert track.start()() > 0
    assert track.start()() > 0
    assert seen == [i % 3 for i in range(2 * track.launches)]


class FakeGpu:
    """A device whose time advances only when work is launched, with the part of torch.cuda that the
    clock uses. A call during a capture is recorded instead."""

    def __init__(self):
        self.us, self.capturing, self.replays = 0.0, None, []

    def call(self, us: float, log: list | None = None):
        def launch(*_):
            if log is not None:
                log.append(us)
            if self.capturing is not None:
                self.capturing.append(us)
            else:
                self.us += us
            return object()

        return launch

    def install(self, monkeypatch) -> None:
        gpu = self

        class Graph:
            def capture_begin(self, pool, capture_error_mode):
                self.nodes = gpu.capturing = []

            def capture_end(self):
                gpu.capturing = None

            def replay(self):
                gpu.us += 2.0 + sum(self.nodes)
                gpu.replays.append(len(self.nodes))

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self, stream):
                self.at = gpu.us

            def synchronize(self):
                pass

            def elapsed_time(self, other):
                return (other.at - self.at) / 1e3

        class Stream:
            def synchronize(self):
                pass

        stream = Stream()
        fake = {
            "CUDAGraph": Graph,
            "Event": Event,
            "current_stream": lambda device: stream,
            "default_stream": lambda device: Stream(),
            "graph_pool_handle": lambda: (0, 1),
            "_sleep": self.call(0.0),
        }
        for name, value in fake.items():
            monkeypatch.setattr(torch.cuda, name, value)
        facts_of = type("Facts", (), {"peak_bandwidth": 1e12})
        monkeypatch.setattr(timers, "gpu_facts", lambda index: facts_of)
        monkeypatch.setattr(timers, "uuid", lambda index: "GPU-0")
        reading = nvml.Reading(1980, 3201, 500.0, 40, ())
        monkeypatch.setattr(nvml, "read", lambda uuid: reading)


@pytest.fixture
def gpu(monkeypatch):
    found = FakeGpu()
    found.install(monkeypatch)
    return found


CUDA = torch.device("cuda", 0)


def test_short_launches_share_a_graph_that_is_long_enough(gpu):
    timer = timers.GpuTimer(CUDA)
    track = timer.track([gpu.call(5.0)] * 12)
    assert track.launches % 12 == 0
    assert track.launches * 5.0 >= timers.SPAN_US
    gpu.replays.clear()
    assert track.start()() == pytest.approx(5.0, rel=0.02)
    assert gpu.replays == [track.launches]


def test_many_short_launches_are_not_repeated(gpu):
    track = timers.GpuTimer(CUDA).track([gpu.call(2.0)] * 700)
    assert track.launches == 700


def test_long_launches_take_turns_with_their_buffers(gpu):
    seen = [gpu.call(1000.0), gpu.call(3000.0)]
    track = timers.GpuTimer(CUDA).track(seen)
    assert track.launches == 1
    assert [round(track.start()(), -1) for _ in range(4)] == [1000, 3000, 1000, 3000]


def test_a_gpu_is_measured_cold_warm_and_by_its_host(gpu):
    log: list[float] = []
    ours = clock.Candidate("ours", [gpu.call(4.0, log)] * 8, 1 << 20, warm=True, host=True)
    long = clock.Candidate("long", [gpu.call(900.0)] * 2, 1 << 20, warm=False, host=True)
    result = clock.measure([ours, long], CUDA)
    assert stats.median(result.times["ours"].cold) == pytest.approx(4.0, rel=0.02)
    assert stats.median(result.times["ours"].warm) == pytest.approx(4.0, rel=0.02)
    assert result.times["ours"].host
    assert not result.times["long"].warm
    assert not result.times["long"].host, "a long launch hides its host time"
    assert result.readings[0].sm_mhz == 1980 and result.clock_spread == 0.0


def test_an_error_in_a_capture_is_told_as_it_was_raised(gpu):
    calls = iter(range(100))

    def bad():
        if next(calls) >= 2:
            raise RuntimeError("cannot be captured")

    result = clock.measure([clock.Candidate("bad", [bad] * 3)], CUDA)
    assert result.times["bad"].error == "RuntimeError: cannot be captured"
    assert gpu.capturing is None


def test_after_a_capture_that_failed_the_others_get_fresh_memory(gpu, monkeypatch):
    pools = iter(range(100))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(pools))
    timer = timers.GpuTimer(CUDA)

    def bad():
        if gpu.capturing is not None:
            raise RuntimeError("cannot be captured")

    before = timer.pool
    with pytest.raises(RuntimeError, match="cannot be captured"):
        timer.track([bad])
    assert timer.pool != before


def test_what_waits_is_timed_call_by_call(gpu):
    track = timers.launched([gpu.call(70.0), gpu.call(90.0)], CUDA)
    assert [track.start()() for _ in range(3)] == pytest.approx([70.0, 90.0, 70.0])
    assert gpu.replays == [] and track.launches == 1


# facts


def test_facts_of_this_machine():
    found = facts(CPU)
    assert found["machine"] == slug(CPU)
    assert slug(CPU).startswith("cpu-")
    assert found["cpu"]["cores"] >= 1 and found["cpu"]["memory"] > 1 << 28
    assert found["torch"] == torch.__version__
    assert all(size > 0 for size in found["cpu"]["caches"].values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_without_a_driver_nothing_is_read():
    assert nvml.read("GPU-0") is None


def test_env_says_which_backends_work():
    found = env.env(roofs=False)
    assert found.roofs == []
    assert found.backends["torch"] is None
    assert found.facts["machine"] == slug(here())
    if not torch.cuda.is_available():
        assert found.backends["cuda"] == emulator.missing()
