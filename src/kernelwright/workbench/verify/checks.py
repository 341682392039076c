"""The checks that a candidate must pass: one small function each.

A check examines a `Trial` and returns what is wrong, or None. Checks run in the table's order and
the first failure ends the trial. For each check, tests/wrong has a kernel that fails it first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from kernelwright.contract import TensorSpec
from kernelwright.dispatch import specs_of

from .candidate import NotCaptured, not_plain, same_bits, tensors
from .trial import Trial

REPEATS = 5
FLAT_CALLS = 1000
UNCAPTURED = "cannot be captured"


@dataclass(frozen=True)
class Check:
    """A named check.

    Attributes:
        gpu: whether it needs a GPU.
        again: whether it makes further calls; it then runs only on thorough cases.
    """

    name: str
    run: Callable[[Trial], str | None]
    gpu: bool = False
    again: bool = False


def promised(trial: Trial) -> str | None:
    """Results are plain tensors of the specified shape, dtype, strides and device. Strides of
    dimensions of size 1 are ignored."""
    op, run = trial.operator, trial.first
    args = run.fenced.args
    specs, _ = op.normalise(specs_of(args))
    wanted, device = op.outputs(**specs), tensors(args)[0].device
    if len(run.outputs) != len(wanted):
        return f"{len(run.outputs)} results, should be {len(wanted)}"
    for name, out, where, want in zip(op.results, run.outputs, run.devices, wanted, strict=True):
        if type(out) is not torch.Tensor:
            return f"{name} is a {type(out).__name__}, not a plain tensor"
        if lazy := not_plain(out):
            return f"{name} is {lazy}, not a plain tensor"
        if torch.device(where) != device:
            return f"{name} is on {where}, should be on {device}"
        if trial.candidate.any_strides and out.ndim == len(want.shape):
            if _overlaps(out):
                return f"{name}'s elements share memory: its strides are {out.stride()}"
            want = replace(want, strides=out.stride())
        if trial.candidate.check and out.shape == want.shape:
            want = replace(want, dtype=out.dtype)
        why = differs(out, want)
        if why:
            return f"{name}'s {why}"
    return None


def _overlaps(out: torch.Tensor) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(out.shape, out.stride(), strict=True))


def fake(trial: Trial) -> str | None:
    """The operator's fake, on which torch.compile relies, has the same shape, dtype and strides."""
    op, run = trial.operator, trial.first
    overload = getattr(torch.ops.kernelwright, op.torch_name, None)
    if overload is None or not op.results:  # there is no fake to check
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
        why = differs(real, want)
        if why:
            return f"{name}'s {why} by its fake"
    return None


def differs(out: torch.Tensor, want: TensorSpec) -> str | None:
    if tuple(out.shape) != want.shape:
        return f"shape is {tuple(out.shape)}, should be {want.shape}"
    if out.dtype != want.dtype:
        return f"dtype is {out.dtype}, should be {want.dtype}"
    if out.numel() and any(
        a != b and n > 1 for a, b, n in zip(out.stride(), want.strides, out.shape, strict=True)
    ):
        return f"strides are {out.stride()}, should be {want.strides}"
    return None


def nothing_replaced(trial: Trial) -> str | None:
    """No function of torch, of Python's clocks or of its garbage collector has been replaced."""
    return trial.first.replaced


def allocations(trial: Trial) -> str | None:
    """Every output element is written, nothing outside an output or a workspace is written, and
    workspace that must be left zero is zero."""
    return trial.first.allocations


def arguments_untouched(trial: Trial) -> str | None:
    """Arguments and the memory around them are unchanged, except mutated arguments."""
    name = trial.first.fenced.changed(trial.operator.mutated)
    return f"{name}'s memory has changed" if name else None


def value(trial: Trial) -> str | None:
    """The error against float64 is within twice PyTorch's own."""
    return trial.judge(trial.first.results, trial.expected())


def properties(trial: Trial) -> str | None:
    """The operator's properties that need no reference, such as rows that sum to 1."""
    for name, holds in trial.operator.properties.items():
        why = holds(trial.first.fenced.args, trial.first.results)
        if why:
            return f"{name}: {why}"
    return None


def results_apart(trial: Trial) -> str | None:
    """A result shares no memory with an argument or with the result of another call."""
    first = trial.first
    before = [r.clone() for r in first.outputs]
    second = trial.run(trial.fence(seed=1))
    taken = {*first.storages, *first.lent, *second.lent}
    for name, a, now, b, at in zip(
        trial.operator.results, before, first.reread(), second.outputs, second.storages, strict=True
    ):
        if not same_bits(a, now):
            return f"{name} of a call was changed by the next call"
        if b.numel() and at in taken:
            return f"{name} shares memory with an argument or with the result of another call"
    return None


def fresh_data(trial: Trial) -> str | None:
    """Other values at the same addresses: no result is cached by pointer."""
    want = trial.expected(seed=1)
    fenced = trial.fence()
    trial.run(fenced)
    fenced.refill(want.args)
    return trial.judge(trial.run(fenced).results, want)


def other_addresses(trial: Trial) -> str | None:
    """Other values at other addresses: no pointer is cached."""
    want = trial.expected(seed=2)
    kept = trial.first  # its arguments stay alive, so these have other addresses
    out = trial.run(trial.fence(seed=2))
    assert kept is trial.first
    return trial.judge(out.results, want)


def another_shape(trial: Trial) -> str | None:
    """A call of another shape is right after the first, and then the first shape again."""
    case = trial.candidate.sibling(trial.case)
    if case is None:
        return None
    other = Trial(trial.candidate, case, trial.device, seed=trial.seed)
    assert trial.first.results  # a call of this shape precedes
    why = other.judge(other.run(other.fence(seed=1)).results, other.expected(seed=1))
    if why:
        return f"then {case.id}: {why}"
    return trial.judge(trial.run(trial.fence(seed=1)).results, trial.expected(seed=1))


def repeatable(trial: Trial) -> str | None:
    """Results are bitwise equal each time, if the candidate claims to be deterministic."""
    if not trial.candidate.deterministic:
        return None
    names = trial.operator.results
    for i in range(REPEATS * (10 if trial.device == "cuda" else 1)):
        again = trial.run(trial.fence()).results
        for k, (a, b) in enumerate(zip(trial.first.results, again, strict=True)):
            if not same_bits(a, b):
                name = names[k] if k < len(names) else "a mutated argument"
                return f"{name} of call {i + 2} is not bitwise equal to the first"
    return None


def no_thread_left(trial: Trial) -> str | None:
    """A call leaves no thread running that may still be computing its result."""
    fenced = trial.fence()
    trial.run(fenced)  # compiles; a progress line has a thread
    left = trial.runner.threads_left(fenced)
    return f"left a thread running: {left[0]}" if left else None


def current_stream(trial: Trial) -> str | None:
    """All work is on the current stream: the result is right if only that stream is synchronized
    and the arguments are written late."""
    earlier = trial.fence()  # alive until the end, so the late ones have other addresses
    trial.run(earlier)  # compiles if necessary
    want = trial.expected(seed=1)
    why = trial.judge(trial.runner.late(want.args), want)
    torch.cuda.synchronize()
    return why


def memory_flat(trial: Trial) -> str | None:
    """Many calls leave no more bytes allocated than a few calls. Memory that is allocated once and
    kept, such as a library's workspace, is not a leak: as many further calls add nothing."""
    fenced = trial.fence()
    for _ in range(10):
        trial.run(fenced)
    grown = trial.runner.growth(fenced, FLAT_CALLS)
    again = trial.runner.growth(fenced, FLAT_CALLS) if grown > 0 else 0
    if again <= 0:
        return None
    return f"{grown + again} more bytes are allocated after {2 * FLAT_CALLS} calls"


def graph_replay(trial: Trial) -> str | None:
    """Replays of a CUDA graph of the call use the arguments' values at the time of the replay."""
    fenced = trial.fence()
    trial.run(fenced)
    fenced.refill(trial.expected().args)
    try:
        replay = trial.runner.capture(fenced)
    except NotCaptured as e:
        return f"{UNCAPTURED}: {e}"
    for seed in (1, 2):
        want = trial.expected(seed=seed)
        fenced.refill(want.args)
        why = trial.judge(replay(), want)
        if why:
            return f"replay {seed}: {why}"
    return None


CHECKS: tuple[Check, ...] = (
    Check("promised", promised),
    Check("nothing replaced", nothing_replaced),
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
    """(the first check that fails, its message), or None if all pass."""
    for check in checks:
        if (check.again and not thorough) or (check.gpu and trial.device != "cuda"):
            continue
        why = check.run(trial)
        if why:
            return check.name, why
    return None
