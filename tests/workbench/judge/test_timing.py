"""judge: times of a kernel, by a clock that it cannot change."""

import re
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from kernelwright.contract import case
from kernelwright.machine import clock, here
from kernelwright.workbench.judge import timing
from kernelwright.workbench.judge.sandbox import rounds
from kernelwright.workbench.judge.sandbox.proxy import SandboxRunner
from kernelwright.workbench.judge.sandbox.sandbox import Box
from kernelwright.workbench.judge.spec import subject_of
from support.fake_gpu import FakeBox
from support.judging import GPU, QUICK, SMALL, USER, judged, only_native


def timed(name, box, monkeypatch, sets=4, shape=(32, 768)):
    """(the guest, its row) after it has been timed with PyTorch's softmax; small enough for one
    thread, because several threads wait for each other on a busy machine."""
    monkeypatch.setattr(clock, "rotations", lambda *_: sets)
    shown = case(shape, torch.float32, use="bench", dim=-1)
    subject = only_native(shown)
    box.load(USER, name, make=name[0].isupper())
    runner = SandboxRunner(
        box, subject.operator, lambda args: {"listed": [*args.values()], "named": {}}
    )
    guest = timing.Timed(name, runner, subject, seed=3)
    ((table, _),) = timing.timed(guest, [shown], quick=True, limits=0.2)
    assert table.roof is not None
    return guest, next(r for r in table.rows if r.name == name)


@pytest.mark.parametrize(
    ("name", "checks"),
    [
        ("softmax", {None}),
        ("Stops", {"timed result"}),
        # whichever of the two checks sees the slow clock first
        ("SlowClock", {"nothing replaced", "clock"}),
        ("SlowEvents", {"clock"} if GPU else {"nothing replaced"}),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_times_are_taken_by_the_judges_clock(name, checks, box, monkeypatch):
    guest, row = timed(name, box, monkeypatch)
    (found, why) = next(iter(guest.objections.values()), (None, ""))
    assert found in checks, why
    assert row.timed == (found is None) and bool(row.interval) == row.timed
    assert row.timed or why in row.status


no_gpu = pytest.mark.skipif(GPU, reason="stands in for a GPU, of which there is one here")


@no_gpu
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("softmax", None),
        ("Stops", "timed result"),
        ("Others", "timed result"),
        ("SlowEvents", "clock"),
    ],
)
def test_every_call_that_a_graph_holds_computes(name, check, monkeypatch):
    """Sixty sets, as on an H200; the first calls are recorded correctly."""
    with FakeBox(monkeypatch) as box:
        guest, row = timed(name, box, monkeypatch, sets=60, shape=(64, 1024))
        assert guest.uncaptured == ""
        (found, why) = next(iter(guest.objections.values()), (None, ""))
        assert found == check, why
        assert row.timed == (check is None)


@no_gpu
def test_short_rounds_are_recorded_several_times_over(monkeypatch):
    with FakeBox(monkeypatch) as box:
        guest, _ = timed("softmax", box, monkeypatch, sets=2, shape=(1, 33))
        assert guest._launches > 2 and box.process.asked.count("timed") == min(
            guest._launches, timing.CONFIRMED
        )


def test_an_answer_before_the_work_is_done_is_found(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: now[0]))

    def guest(repeat_s):
        def ask(do, times):
            now[0] += 0.02 if do == "clock" else repeat_s
            return 20_000.0  # the GPU's time according to its events

        runner = SimpleNamespace(box=SimpleNamespace(process=SimpleNamespace(ask=ask)))
        made = timing.Timed("fn", runner, None, seed=0)
        made._rounds = made._launches = 10
        return made

    assert guest(0.02)._clocks_apart() == ""
    assert "answered after" in guest(0.001)._clocks_apart()


def test_a_process_that_ends_while_it_is_timed_is_at_fault(monkeypatch):
    with Box(here(), limits=QUICK) as box:
        guest, row = timed("DiesLate", box, monkeypatch)
    (check, why) = next(iter(guest.objections.values()))
    assert check == "" and re.search("timed: the process was killed by SIGABRT", why)
    assert not row.timed and "SIGABRT" in row.status


def test_up_to_four_cases_are_timed():
    softmax = subject_of("softmax")
    cases = timing.cases_to_time(softmax, {"dim": -1}, torch.device("cpu"), quick=False)
    assert len(cases) == 4 and all(c.use == "bench" for c in cases)
    assert len(timing.cases_to_time(softmax, {}, torch.device("cpu"), quick=True)) == 1


def test_what_it_refuses_is_not_timed(box):
    """A float32 kernel is timed on float32, although it rejects the first case."""
    verdict = judged("picky", box, cases=(SMALL, "5x33-f16-dim=-1"))
    softmax, cpu = subject_of("softmax"), torch.device("cpu")
    refused = timing.refused(softmax, verdict)
    assert refused == {(torch.float16, (("dim", -1),))}
    held = {"dim": -1}
    every = timing.cases_to_time(softmax, held, cpu, quick=False)
    first = every[0]
    left = timing.cases_to_time(softmax, held, cpu, False, {(first.dtype, first.params)})
    assert left and all(c.dtype != first.dtype for c in left)


def test_kernels_that_are_no_operators_move_unknown_bytes(monkeypatch):
    """Kernels of load_inline are visible to the profiler, but not to PyTorch's dispatcher."""
    monkeypatch.setattr("kernelwright.workbench.bench.fusion.kernels_seen", lambda call: 5)
    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    softmax = subject_of("softmax")
    args = softmax.of(softmax.operator.inputs(softmax.operator.case(SMALL), "cpu"))
    with FakeBox(monkeypatch) as box:
        runner = SandboxRunner(
            box, softmax.operator, lambda args: {"listed": [*args.values()], "named": {}}
        )
        told = {}
        for name in ("softmax", "several_kernels"):
            box.load(USER, name)
            fenced = runner.fence(args)
            told[name] = box.process.ask("costs", args=runner.told(fenced.args))
    assert [t["launches"] for t in told.values()] == [5, 5]
    assert told["softmax"]["moved"] is None and told["several_kernels"]["moved"] > 0


def test_a_capture_that_fails_says_what_the_kernel_raised(monkeypatch):
    """The end of the capture fails too, and reports only that something failed before."""

    @contextmanager
    def graph(made, pool):
        try:
            yield
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    freed: list[tuple] = []
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "graph", graph)
    end = "_cuda_endAllocateToPool"
    monkeypatch.setattr(torch._C, end, lambda *of: freed.append(of), raising=False)

    def waits():
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        rounds.captured(waits)
    with pytest.raises(RuntimeError, match="previous error"):
        rounds.captured(lambda: None)
    assert freed == [(0, "pool")] * 2
