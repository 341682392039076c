"""The clock's judgement, on timers that are made up; and a bench of a real ladder, small."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
import torch

from kernelwright.contract import CudaKernel, Peer, case
from kernelwright.dispatch import ladder
from kernelwright.machine import clock, facts, here, last_level_cache, nvml, slug, stats, timers
from kernelwright.toolchain import emulator
from kernelwright.workbench import bench as bench_module
from kernelwright.workbench import env, host, material, records, right, roofs, standin, tune
from kernelwright.workbench.records import Record
from kernelwright.workbench.trial import Expected

CPU = torch.device("cpu")


class FakeMachine:
    """A clock that moves only when a track is sampled; `slow` drifts over time for everybody."""

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

    def interleave(self, limits: clock.Limits, **tracks: float) -> dict[str, list[float]]:
        made = {n: self.track(n, us) for n, us in tracks.items()}
        return clock.interleave(made, limits, random.Random(0), before=self.before, now=self.now)


def test_every_round_samples_each_track_once_in_another_order():
    machine = FakeMachine(noise=0.1)
    samples = machine.interleave(clock.Limits(least=16, most=16, width=0.0), a=10, b=20, c=30)
    assert {len(s) for s in samples.values()} == {16}
    assert all(sorted(r) == ["a", "b", "c"] for r in machine.order)
    assert len({tuple(r) for r in machine.order}) > 3


def test_sampling_stops_when_the_interval_is_narrow():
    steady = FakeMachine(noise=0.001).interleave(clock.Limits(), a=100)
    noisy = FakeMachine(noise=0.2).interleave(clock.Limits(), a=100)
    assert len(steady["a"]) == clock.Limits().least
    assert len(noisy["a"]) == clock.Limits().most


def test_rounds_until_the_machine_has_settled_are_thrown_away():
    machine = FakeMachine()
    limits = clock.Limits(least=4, most=4)
    tracks = {"a": machine.track("a", 10)}
    samples = clock.interleave(
        tracks, limits, random.Random(0), machine.before, now=machine.now, settle=3
    )
    assert len(samples["a"]) == 4
    assert len(machine.order) == 7


def test_a_slow_track_takes_its_own_time_only():
    limits = clock.Limits(width=0.0, candidate_s=0.1, seconds=1e9)
    samples = FakeMachine(noise=0.1).interleave(limits, slow=5000, fast=10)
    assert len(samples["slow"]) == 3
    assert len(samples["fast"]) == limits.most


def test_sampling_stops_at_the_time_limit():
    limits = clock.Limits(width=0.0, candidate_s=1e9, seconds=0.01)
    samples = FakeMachine(noise=0.1).interleave(limits, a=100, b=100)
    assert 3 <= len(samples["a"]) == len(samples["b"]) < 10


def test_drift_of_the_machine_does_not_decide():
    """The clock slows by half during the run; a is 5% faster than b all along."""
    machine = FakeMachine(drift=4.0, noise=0.003)
    limits = clock.Limits(least=48, most=48, width=0.0)
    s = machine.interleave(limits, a=95, again=95, b=100)
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
        (95, 100, 0.01, 0.10, "ambiguous"),  # the clocks were further apart than the two are
        (80, 100, 0.01, 0.10, "faster"),
        (95, 100, 0.01, 0.015, "faster"),  # clocks within 2% decide nothing
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
        t[0] += 1.0  # what is waited for before a block must not count

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
    """A device whose time passes only when work is launched, and the part of torch.cuda that the
    clock uses, over it. A call in a capture is recorded instead."""

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


# facts


def test_facts_of_this_machine():
    found = facts(CPU)
    assert found["machine"] == slug(CPU)
    assert slug(CPU).startswith("cpu-")
    assert found["cpu"]["cores"] >= 1 and found["cpu"]["memory"] > 1 << 28
    assert found["torch"] == torch.__version__
    assert all(size > 0 for size in found["cpu"]["caches"].values())


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver")
def test_no_driver_is_no_reading():
    assert nvml.read("GPU-0") is None


# roofs


@pytest.mark.parametrize(
    ("mix", "on_cpu"),
    [("r1w1", "r1w1"), ("r1w0", "r1w0"), ("r4w3", "r1w1"), ("r5w2", "r3w1"), ("r0w0", "r1w1")],
)
def test_a_mix_without_a_roof_takes_the_nearest(mix, on_cpu):
    assert roofs.nearest(mix, CPU) == on_cpu
    reads, writes = roofs.parse(roofs.nearest(mix, torch.device("cuda")))
    assert reads <= roofs.READS and writes <= roofs.WRITES


@pytest.mark.parametrize("mix", ["r1w0", "r1w1", "r2w1", "r0w1", "r3w1", "r4w3"])
@pytest.mark.parametrize("config", roofs.CONFIGS)
def test_a_stream_covers_every_vector_once(mix, config):
    vectors = 10_007
    made, operator = roofs.plan(*roofs.parse(mix), vectors, config)
    (step,) = made.launches
    assert isinstance(step.kernel, CudaKernel) and step.kernel.source.exists()
    tile = config["unroll"] * config["block"]
    walked = config["waves"] > 0
    assert walked or step.grid[0] * tile >= vectors > (step.grid[0] - 1) * tile
    named = {a.name for a in operator.args} | set(operator.results)
    assert {a for a in step.args if isinstance(a, str)} == named
    assert len(step.args) == roofs.READS + roofs.WRITES + 1


def test_roof_candidates_move_the_bytes_they_say():
    for mix in ("r1w0", "r2w0", "r1w1", "r0w1", "r2w1", "r3w1"):
        for c in roofs.candidates(mix, 1 << 20, CPU):
            assert c.bytes == 1 << 20
            assert len(c.calls) == clock.rotations(1 << 20, CPU)
            c.calls[0]()


# bench


@pytest.fixture(scope="module")
def benched():
    """A bench of softmax on a small case: two PyTorch rungs, a wrong one, one that raises."""
    whole = ladder("softmax")
    manual, native = whole.rung("manual"), whole.rung("native")
    wrong = replace(native, name="wrong", entry="torch_rungs:native", serves=False)
    raises = replace(native, name="raises", serves=False)
    small = replace(
        whole, rungs=(manual, native, wrong, raises, whole.rung("triton_row")), peers=None
    )
    entries = {"wrong": lambda x, dim: torch.softmax(x, dim) * 1.01, "raises": lambda x, dim: 1 / 0}
    real = bench_module.launcher
    patch = pytest.MonkeyPatch()
    patch.setattr(
        bench_module,
        "launcher",
        lambda lad, args, rung, config=None: entries.get(rung) or real(lad, args, rung, config),
    )
    events = []
    result = bench_module.bench(
        [small],
        cases=["4x1000-f32-dim=-1"],
        quick=True,
        on_case=lambda lad, c, r: events.append(r),
    )
    patch.undo()
    assert len(events) == 2 and events[0] is None and events[1] is result
    return result


def by_rung(result):
    return {r.rung: r for r in result.records}


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_times_only_what_is_right(benched):
    found = by_rung(benched)
    assert found["native"].outcome == found["manual"].outcome == "pass"
    assert found["native"].cold and found["native"].error
    assert found["wrong"].outcome == "wrong" and not found["wrong"].cold
    assert "error" in found["wrong"].why
    assert found["raises"].outcome == "error" and "ZeroDivisionError" in found["raises"].why
    assert benched.exit_code == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_has_a_control_and_a_roof_of_the_same_bytes(benched):
    found = by_rung(benched)
    assert found["control"].cold
    assert found["roof:r1w1"].bytes == found["native"].bytes == 2 * 4 * 4000
    (noise,) = benched.noise.values()
    assert noise >= 0
    assert benched.compare(found["native"], found["control"]).verdict in ("same", "ambiguous")


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_says_where_a_gpu_rung_was_timed(benched):
    (skipped,) = [s for s in benched.skipped if s.rung == "triton_row"]
    assert skipped.why.startswith("verified here on ")
    assert "timed on nvidia-h200" in skipped.why
    assert "triton_row" not in by_rung(benched)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what a CPU does")
def test_bench_records_survive_their_file(benched, tmp_path):
    records.save(benched.records, benched.environment, tmp_path)
    path = tmp_path / slug(CPU) / "softmax.jsonl"
    assert len(path.read_text().splitlines()) == len({r.key for r in benched.records})
    assert (tmp_path / slug(CPU) / "runs.jsonl").read_text().count(benched.run) >= 1


def test_no_case_of_that_name():
    with pytest.raises(material.UnknownCase, match="softmax has 32768x256"):
        bench_module.bench([ladder("softmax")], cases=["7x7-f32"])


def test_a_cpu_times_the_shapes_of_two_models():
    chosen = material.cpu_cases(ladder("softmax"))
    assert {c.label for c in chosen} == {"GPT-2 attention scores", "Llama 3 attention scores"}
    assert {c.dtype for c in chosen} == {torch.float32, torch.bfloat16}
    assert all(2 * c.numel * c.dtype.itemsize < material.CPU_BYTES for c in chosen)


def test_a_case_is_named_by_its_model_too():
    work = material.chosen([ladder("softmax")], ["gpt2"], CPU)
    assert work and all("GPT-2" in c.label for _, c in work)


def test_a_case_that_does_not_fit_memory_is_skipped():
    big = case((1 << 40,), torch.float32, use="bench")
    assert "takes some" in (material.too_large(big, CPU) or "")
    assert material.too_large(case((1 << 10,), torch.float32), CPU) is None


@pytest.mark.parametrize(
    ("cold", "roof", "launch", "limit"),
    [(3.0, 2.0, 2.0, "launch"), (100.0, 90.0, 2.0, "bandwidth"), (100.0, 20.0, 2.0, "")],
)
def test_what_binds_a_launch(cold, roof, launch, limit):
    assert bench_module.bound(cold, roof, launch, material_cost(), CPU) == limit


def material_cost():
    x = torch.empty(4, 8)
    return ladder("softmax").operator.cost(x=x, dim=-1)


def test_peers_are_skipped_by_name_when_not_installed(monkeypatch):
    peer = Peer("nobody", "softmax", lambda x, dim: lambda: x, "no_such_library")
    monkeypatch.setattr(bench_module, "peers_of", lambda lad: (peer,))
    one = bench_module._Bench(
        ladder("softmax"), case((2, 3), torch.float32, dim=-1), CPU, clock.CPU_QUICK, 0.0,
        bench_module.BenchResult("run", {}), {},
    )  # fmt: skip
    assert list(one._peers(True)) == []
    assert one.result.skipped[0].why == "no_such_library is not installed"


def test_a_random_peer_is_held_to_shape_and_dtype():
    lad = ladder("softmax")
    c = case((2, 3), torch.float32, dim=-1)
    result = bench_module.BenchResult("run", {})
    one = bench_module._Bench(lad, c, CPU, clock.CPU_QUICK, 0.0, result, {})
    want = Expected(lad.operator, lambda x, dim: torch.softmax(x, dim), c, "cpu")
    one.cost = lad.operator.cost(**want.args)
    outcome = {}
    for name, make in {
        "other values": lambda x, dim: lambda: torch.rand_like(x),
        "other shape": lambda x, dim: lambda: torch.rand(3, 2),
        "other dtype": lambda x, dim: lambda: torch.rand(2, 3).half(),
    }.items():
        peer = Peer(name, "softmax", make, "torch", random=True)
        outcome[name] = one._peer(peer, want, [want.args])[0].outcome
    assert outcome == {"other values": "pass", "other shape": "wrong", "other dtype": "wrong"}


# large results


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_beyond_a_reference_a_result_is_held_to_pytorchs(dtype):
    native = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    assert right.differs(native.clone(), native) is None
    nudged = native * (1 + 2 * torch.finfo(dtype).eps)
    assert right.differs(nudged, native) is None
    tail = native.clone()
    tail[-64:] = 0
    assert "from 0 on" in (right.differs(tail, native) or "")
    assert "should be" in (right.differs(native[:-1], native) or "")
    hollow = native.clone()
    hollow[::100] = float("nan")
    assert right.differs(hollow, native)
    assert right.differs(hollow, hollow.clone()) is None


def test_terms_that_cancel_are_held_to_their_neighbours_magnitude():
    native = torch.ones(4096)
    native[::8] = 1e-9
    close, far = native.clone(), native.clone()
    close[::8] += 2 * torch.finfo(torch.float32).eps
    far[::8] += 64 * torch.finfo(torch.float32).eps
    assert right.differs(close, native) is None
    assert right.differs(far, native)


def test_means_that_cancel_are_held_to_the_operators_own_analysis():
    """Right means of rows differ by their sums' order; one that is off is found all the same."""
    operator = ladder("layer_norm").operator
    x = torch.randn(4096, 8192, generator=torch.Generator().manual_seed(0))
    args = {"x": x, "weight": None, "bias": None, "eps": 1e-5}
    mean = x.mean(-1, keepdim=True)
    noise = right.noise_of_rows(operator, args, mean, 1)
    assert torch.equal(noise, operator.noise(**args)[1])
    error = torch.where(torch.arange(4096).reshape(-1, 1) % 64 == 0, 3 * noise, 0)
    close = (mean.double() + error).float()
    assert right.differs(close, mean)
    assert right.differs(close, mean, lambda: noise) is None
    wrong = (mean.double() + 4 * error).float()
    assert "64 of 4096" in (right.differs(wrong, mean, lambda: noise) or "")
    halved = x[:, ::2].mean(-1, keepdim=True)
    assert right.differs(halved, mean, lambda: noise)
    assert right.noise_of_rows(operator, args, x[0], 1) is None


@pytest.fixture(scope="module")
def large():
    operator = ladder("softmax").operator
    native = lambda x, dim: torch.softmax(x, dim)  # noqa: E731
    want = Expected(operator, native, case((640, 640), torch.float32, dim=-1), "cpu")
    assert want.native[0].numel() > right.SAMPLE
    return operator, want


def test_a_large_result_that_is_right(large):
    operator, want = large
    verdict = right.right(operator, want, (want.native[0].clone(),))
    assert verdict.ok and verdict.error and verdict.budget


@pytest.mark.parametrize("at", [0, 277_777, 640 * 640 - 1])
def test_one_wrong_element_of_many_is_seen(large, at):
    operator, want = large
    out = want.native[0].clone()
    out.view(-1)[at] *= 1.01
    assert not right.right(operator, want, (out,)).ok


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_one_special_element_of_many_is_seen(large, value):
    operator, want = large
    out = want.native[0].clone()
    out.view(-1)[145_679] = value
    assert not right.right(operator, want, (out,)).ok


def test_a_large_result_of_another_shape_or_number(large):
    operator, want = large
    assert not right.right(operator, want, ()).ok
    assert "shape" in right.right(operator, want, (want.native[0].T[:5],)).why


# host, tune, env


@pytest.mark.parametrize(
    "name", ["rms_norm", "layer_norm", "add_rms_norm", "cross_entropy", "embedding", "rope"]
)
def test_host_cost_of_what_its_public_function_takes_otherwise(name):
    """And gradients only of arguments that have one, of all results that have one."""
    lad = ladder(name)
    first = next(c for c in lad.operator.cases if 0 < c.numel < 2**12 and c.dtype == torch.float32)
    found = host.host_records(lad, first, CPU, "run")
    assert {r.rung for r in found} == {
        "host:kw", "host:kw+backward", "host:torch", "host:torch+backward",
    }  # fmt: skip


def test_host_cost_is_of_public_functions_of_the_same_arguments():
    lad = ladder("softmax")
    found = host.host_records(lad, case((4, 8), torch.float32, dim=-1), CPU, "run")
    assert [r.rung for r in found] == [
        "host:kw", "host:kw+backward", "host:torch", "host:torch+backward",
    ]  # fmt: skip
    assert all(r.host and not r.cold and r.outcome == "pass" for r in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_tune_needs_a_gpu():
    with pytest.raises(tune.NoGpu, match="needs a GPU"):
        tune.tune(ladder("softmax"))


def test_a_tuned_table_takes_what_is_fastest_on_all_of_a_bucket(tmp_path):
    result = tune.TuneResult("softmax", (9, 0), seconds=12.34)
    a, b = {"rows": 1}, {"rows": 2}
    result.tried = [
        tune.Tried("c1", "small", "x", a, 10.0),
        tune.Tried("c1", "small", "x", b, 5.0),
        tune.Tried("c1", "small", "y", {}, 2.0),
        tune.Tried("c2", "small", "x", a, 10.0),
        tune.Tried("c2", "small", "x", b, 8.0),
        tune.Tried("c2", "small", "y", {}, None, "does not fit"),
    ]
    tune.decide(result, {"c1": 10.0, "c2": 10.0})
    assert result.buckets["small"]["rung"] == "x"
    assert result.buckets["small"]["configs"]["x"] == b
    assert result.gains["small"] == pytest.approx((100 / 40) ** 0.5)
    assert result.gain == pytest.approx((100 / 40) ** 0.5)
    path = result.write(tmp_path)
    assert path.name == "softmax.sm_90.json"
    assert '"cost_seconds": 12.3' in path.read_text()


def test_env_says_which_backends_work():
    found = env.env(roofs=False)
    assert found.roofs == []
    assert found.backends["torch"] is None
    assert found.facts["machine"] == slug(here())
    if not torch.cuda.is_available():
        assert found.backends["cuda"] == emulator.missing()


def test_roofs_of_a_machine_are_records(monkeypatch):
    monkeypatch.setattr(roofs, "_sizes", lambda device, quick: (roofs.MIB,))
    seen: list[Record] = []
    found = roofs.measure_roofs(CPU, "run", quick=True, on_record=seen.append)
    assert found == seen
    assert {r.rung for r in found} == {
        "roof:r1w0", "roof:r1w1", "roof:r2w1", "roof:r0w1", "roof:matmul", "roof:cache",
        "roof:launch",
    }  # fmt: skip
    assert all(r.cold and r.operator == "roofs" for r in found)


@pytest.mark.skipif(torch.cuda.is_available(), reason="times them instead")
@pytest.mark.parametrize(
    ("rung", "words"), [("cuda_warp", "verified here on"), ("cuda_cluster", "compiled here for")]
)
def test_without_a_gpu_cuda_is_emulated_where_it_can_be(rung, words):
    softmax = ladder("softmax")
    assert standin.stand_in(softmax, softmax.rung(rung), torch.device("cpu")).startswith(words)
