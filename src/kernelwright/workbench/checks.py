"""The checks that a candidate must pass: each is a small function that can fail.

A check looks at a `Trial` and says what is wrong, or None. They run in the table's order and the
first that objects ends the trial. tests/wrong holds a kernel for each that only this check sees
as its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import torch

from kernelwright.contract import TensorSpec
from kernelwright.contract.layout import normalise
from kernelwright.dispatch import specs_of

from .trial import Fenced, Trial, same_bits, tensors

REPEATS = 5
FLAT_CALLS = 1000


@dataclass(frozen=True)
class Check:
    """A named check.

    Attributes:
        gpu: needs a GPU.
        again: calls the candidate again, so it runs on thorough cases only.
    """

    name: str
    run: Callable[[Trial], str | None]
    gpu: bool = False
    again: bool = False


def promised(trial: Trial) -> str | None:
    """Results are plain tensors of the shape, dtype, strides and device that the operator states;
    strides of dimensions of one element mean nothing."""
    op = trial.operator
    args = trial.first.fenced.args
    specs, _ = normalise(op.layout, specs_of(args))
    wanted, device = op.outputs(**specs), tensors(args)[0].device
    outputs = trial.first.outputs
    if len(outputs) != len(wanted):
        return f"{len(outputs)} results, should be {len(wanted)}"
    for name, out, want in zip(op.results, outputs, wanted, strict=True):
        if type(out) is not torch.Tensor:
            return f"{name} is a {type(out).__name__}, not a plain tensor"
        if out.device != device:
            return f"{name} is on {out.device}, should be on {device}"
        why = _differs(out, want)
        if why:
            return f"{name}'s {why}"
    return None


def fake(trial: Trial) -> str | None:
    """The operator's fake, which torch.compile trusts, gives the same shape, dtype and strides."""
    op, run = trial.operator, trial.first
    overload = getattr(torch.ops.kernelwright, op.torch_name, None)
    if overload is None or not op.results:  # nobody trusts a fake that there is not
        return None
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        args = [
            [mode.from_tensor(t) for t in v] if isinstance(v, list)
            else mode.from_tensor(v) if isinstance(v, torch.Tensor)
            else v
            for v in run.fenced.args.values()
        ]  # fmt: skip
        out = overload(*args)
    fakes = () if out is None else tuple(out) if isinstance(out, (list, tuple)) else (out,)
    for name, real, f in zip(op.results, run.outputs, fakes, strict=True):
        want = TensorSpec(tuple(f.shape), tuple(f.stride()), f.dtype)
        why = _differs(real, want)
        if why:
            return f"{name}'s {why} by its fake"
    return None


def _differs(out: torch.Tensor, want: TensorSpec) -> str | None:
    if tuple(out.shape) != want.shape:
        return f"shape is {tuple(out.shape)}, should be {want.shape}"
    if out.dtype != want.dtype:
        return f"dtype is {out.dtype}, should be {want.dtype}"
    if out.numel() and any(
        a != b and n > 1 for a, b, n in zip(out.stride(), want.strides, out.shape, strict=True)
    ):
        return f"strides are {out.stride()}, should be {want.strides}"
    return None


def allocations(trial: Trial) -> str | None:
    """Every output element is written, nothing before or behind an output or a workspace is, and
    a workspace that must be left zero is."""
    return trial.first.allocations


def arguments_untouched(trial: Trial) -> str | None:
    """Arguments, and the memory around them, are as before; mutated ones may change."""
    name = trial.first.fenced.changed(trial.operator.mutated)
    return f"{name}'s memory has changed" if name else None


def value(trial: Trial) -> str | None:
    """The error against float64 is within twice PyTorch's own."""
    return trial.judge(trial.first.results, trial.expected())


def properties(trial: Trial) -> str | None:
    """What must hold without a reference: rows sum to 1."""
    for name, holds in trial.operator.properties.items():
        why = holds(trial.first.fenced.args, trial.first.results)
        if why:
            return f"{name}: {why}"
    return None


def results_apart(trial: Trial) -> str | None:
    """A result shares no memory with an argument or with the result of another call."""
    first = trial.first.outputs
    mine = [r.clone() for r in first]
    args = Fenced(trial.expected(seed=1).args).args
    second = trial.call(args)[: len(first)]
    taken = {t.untyped_storage().data_ptr() for t in (*first, *tensors(trial.first.fenced.args))}
    for name, a, before, b in zip(trial.operator.results, first, mine, second, strict=True):
        if not same_bits(a, before):
            return f"{name} of a call changed with the next call"
        if b.numel() and b.untyped_storage().data_ptr() in taken:
            return f"{name} shares memory with an argument or with the result of another call"
    return None


def fresh_data(trial: Trial) -> str | None:
    """Other values at the same addresses: nothing was kept by pointer."""
    want = trial.expected(seed=1)
    fenced = Fenced(trial.expected().args)
    trial.call(fenced.args)
    fenced.refill(want.args)
    return trial.judge(trial.call(fenced.args), want)


def other_addresses(trial: Trial) -> str | None:
    """Other values at other addresses: no pointer was kept."""
    want = trial.expected(seed=2)
    kept = trial.first  # its arguments stay alive, so these lie elsewhere
    out = trial.call(Fenced(want.args).args)
    assert kept is trial.first
    return trial.judge(out, want)


def another_shape(trial: Trial) -> str | None:
    """After a call of one shape, a call of another, and then the first again."""
    case = trial.candidate.sibling(trial.case)
    if case is None:
        return None
    other = Trial(trial.candidate, case, trial.device)
    want = other.expected(seed=1)
    why = other.judge(other.call(Fenced(want.args).args), want)
    if why:
        return f"then {case.id}: {why}"
    want = trial.expected(seed=1)
    return trial.judge(trial.call(Fenced(want.args).args), want)


def repeatable(trial: Trial) -> str | None:
    """The same bits each time, where the candidate says so."""
    if not trial.candidate.deterministic:
        return None
    names = trial.operator.results
    for i in range(REPEATS * (10 if trial.device == "cuda" else 1)):
        again = trial.call(Fenced(trial.expected().args).args)
        for k, (a, b) in enumerate(zip(trial.first.results, again, strict=True)):
            if not same_bits(a, b):
                name = names[k] if k < len(names) else "a mutated argument"
                return f"{name} of call {i + 2} has other bits than the first"
    return None


def no_thread_left(trial: Trial) -> str | None:
    """A call leaves no thread behind that may still be working on its result."""
    args = Fenced(trial.expected().args).args
    trial.call(args)  # builds what has to be built, and a progress line has a thread
    before = set(threading.enumerate())
    trial.call(args)
    left = [t.name for t in threading.enumerate() if t not in before]
    return f"left a thread behind: {left[0]}" if left else None


def current_stream(trial: Trial) -> str | None:
    """All work is on the current stream: right where only that stream was waited for, and its
    arguments were written late."""
    want = trial.expected(seed=1)
    earlier = Fenced(trial.expected().args)  # alive until the end, so the late ones lie elsewhere
    trial.call(earlier.args)  # builds what has to be built
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)  # some 10 ms
        fenced = Fenced(want.args)
        results = [r.clone() for r in trial.call(fenced.args)]
        stream.synchronize()
        why = trial.judge(tuple(results), want)
    torch.cuda.synchronize()
    return why


def memory_flat(trial: Trial) -> str | None:
    """Many calls leave as many bytes allocated as a few."""
    args = Fenced(trial.expected().args).args
    for _ in range(10):
        trial.call(args)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(FLAT_CALLS):
        trial.call(args)
    torch.cuda.synchronize()
    grown = torch.cuda.memory_allocated() - before
    return f"{grown} more bytes are allocated after {FLAT_CALLS} calls" if grown > 0 else None


def graph_replay(trial: Trial) -> str | None:
    """Captured in a CUDA graph; a replay computes from what the arguments hold then."""
    fenced = Fenced(trial.expected().args)
    trial.call(fenced.args)
    fenced.refill(trial.expected().args)
    torch.cuda.synchronize()
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    try:
        with torch.cuda.graph(graph, pool=pool):
            results = trial.call(fenced.args)
    except Exception as e:  # noqa: BLE001 - whatever a candidate raises is why
        # a capture that could not end leaves the allocator recording, and its cache unfreeable
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        return f"cannot be captured: {type(e).__name__}: {str(e).splitlines()[0]}"
    for seed in (1, 2):
        want = trial.expected(seed=seed)
        fenced.refill(want.args)
        graph.replay()
        torch.cuda.synchronize()
        why = trial.judge(results, want)
        if why:
            return f"replay {seed}: {why}"
    return None


CHECKS: tuple[Check, ...] = (
    Check("promised", promised),
    Check("fake", fake),
    Check("allocations", allocations),
    Check("arguments untouched", arguments_untouched),
    Check("value", value),
    Check("properties", properties),
    Check("current stream", current_stream, gpu=True, again=True),
    Check("no thread left", no_thread_left, again=True),
    Check("results apart", results_apart, again=True),
    Check("fresh data", fresh_data, again=True),
    Check("other addresses", other_addresses, again=True),
    Check("another shape", another_shape, again=True),
    Check("repeatable", repeatable, again=True),
    Check("memory flat", memory_flat, gpu=True, again=True),
    Check("graph replay", graph_replay, gpu=True, again=True),
)


def rejection(
    trial: Trial, *, thorough: bool, checks: tuple[Check, ...] = CHECKS
) -> tuple[str, str] | None:
    """(the first check that objects, what it says), or None where all are content."""
    for check in checks:
        if (check.again and not thorough) or (check.gpu and trial.device != "cuda"):
            continue
        why = check.run(trial)
        if why:
            return check.name, why
    return None
