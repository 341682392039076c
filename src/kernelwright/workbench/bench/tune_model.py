"""`kw.tune(model, example_inputs)`: the fastest rungs and configs for the calls of a user's model.

`kernelwright tune OP` times an operator's own cases; this times the calls that a model makes, in
order of decreasing total time, until the budget is spent. On each call, every proven rung that
supports it runs with every config: all are compared with PyTorch's own result, then timed
alternately in one run. The measurements are kept next to the table that is made from them, one for
each operator and GPU in the cache folder. Another model therefore adds to it, and the same model
costs only its two steps.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from kernelwright.contract import Config, Ladder, Rung
from kernelwright.dispatch import (
    Choice,
    data,
    entry_of,
    invalidate_selection,
    launcher,
    plan_of,
    select,
    specs_of,
)
from kernelwright.dispatch.selection import config_for, model_tables, rejected
from kernelwright.machine import clock, gpu_of, here, random_state, stats
from kernelwright.support import cache
from kernelwright.support.errors import UserError
from kernelwright.workbench.verify.candidate import (
    all_results,
    copy_of,
    map_tensors,
    result_names,
)
from kernelwright.workbench.verify.large_tensors import differs
from kernelwright.workbench.verify.raised import one_line

from .model_calls import Call, recorded
from .tune import NoGpu, Tried, TuneResult, decide, sources, table_of
from .workload import set_bytes

RULE = clock.StoppingRule(least=6, most=24, width=0.01, candidate_s=0.05, seconds=1.0)
MOST_SETS = 256  # of a call's arguments; small arguments come from L2 in a model too


class NotTuned(UserError, RuntimeError):
    """A model cannot be tuned; the message states the reason."""


@dataclass(frozen=True)
class Line:
    """The result for one distinct call of the model.

    Attributes:
        call: the operator and its arguments.
        count: the number of these calls in a step.
        us: microseconds of all of them in the recorded step.
        before, after: the rung and config dispatched before and after tuning.
        gain: the time of `before` over that of `after`; None if they were not timed now.
        note: why nothing, or not everything, was timed.
    """

    call: str
    count: int
    us: float
    before: str
    after: str
    gain: float | None
    note: str = ""


@dataclass(frozen=True)
class Tuning:
    """The result of `kw.tune`: print it, or read its fields.

    Attributes:
        lines: one for each distinct call, in order of decreasing time.
        tables: the files that were written.
        seconds: the duration of tuning.
    """

    lines: tuple[Line, ...]
    tables: tuple[Path, ...]
    seconds: float

    @property
    def saved_us(self) -> float:
        """Microseconds per step that the new choices save, according to the measured times."""
        return sum(x.us * (1 - 1 / x.gain) for x in self.lines if x.gain)

    def __str__(self) -> str:
        timed = sum(x.gain is not None for x in self.lines)
        head = (
            f"{timed} of {len(self.lines)} distinct calls timed in {self.seconds:.0f} s, "
            f"{self.saved_us:.0f} us saved of {sum(x.us for x in self.lines):.0f} us per step"
        )
        return "\n".join((head, *map(_text, self.lines)))


def _text(x: Line) -> str:
    what = f"{x.before} -> {x.after}, {x.gain:.2f}x" if x.gain and x.before != x.after else x.after
    return f"  {x.us:9.0f} us  {x.count:4} x {x.call}: {what}{f' ({x.note})' if x.note else ''}"


def _say(words: str) -> None:
    print(f"kernelwright: {words}", file=sys.stderr)


def tune(
    model: nn.Module,
    example_inputs: Any,
    *,
    seconds: float = 60.0,
    progress: Callable[[str], None] = _say,
) -> Tuning:
    """Choose rungs and configs for the calls that a model makes, by timing them on this GPU.

    Runs two steps of the model: forward, and backward if it is in training mode and has parameters
    with gradients; no `grad`, buffer or random state is changed. Then times its calls of
    Kernelwright's operators, in order of decreasing time. The choices apply from now on, in this
    process and in later ones with the same cache folder and GPU. Calls that were timed before are
    not timed again. Patch models (`kw.patch`) before tuning; capture CUDA graphs after it.

    Args:
        model: on a GPU. It may be compiled by torch.compile; its calls are recorded in eager mode.
        example_inputs: inputs of a typical step: a mapping is passed by name, a tuple or list in
            order, anything else as the only argument.
        seconds: the budget, including the two steps. A compilation or measurement that is running
            when the budget ends is completed.
        progress: called with a line before each call is timed; by default it is printed on
            standard error.

    Returns:
        The choice for each call, and the time that it saves.

    Raises:
        NoGpu: there is no GPU here.
        TypeError: model is not a torch.nn.Module.
        ValueError: seconds is not positive, or the model calls no operator on a GPU.
        NotTuned: a CUDA graph is being captured, or the cache folder cannot be written to.
    """
    start = time.monotonic()
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: is a {type(model).__name__}, not a torch.nn.Module")
    if not seconds > 0:
        raise ValueError(f"seconds: is {seconds}, should be positive")
    if gpu_of(here()) is None:
        raise NoGpu("tune needs a GPU, and there is none here")
    if torch.cuda.is_current_stream_capturing():
        raise NotTuned("a CUDA graph is being captured: tune before the capture")
    if not cache.writable():
        raise NotTuned("the cache folder cannot be written to: set KW_CACHE to a writable folder")
    progress("running two steps of the model")
    calls = [c for c in recorded(model, example_inputs) if c.device.type == "cuda"]
    if not calls:
        raise ValueError("model: calls no operator of ours on a GPU; use kw.patch(model) first")
    with random_state.preserved():
        lines, tables = tuned(calls, start + seconds, progress)
    return Tuning(tuple(lines), tuple(tables), time.monotonic() - start)


def tuned(
    calls: list[Call], deadline: float, progress: Callable[[str], None]
) -> tuple[list[Line], list[Path]]:
    """Time calls in order until the deadline (by time.monotonic), and write the tables."""
    before = [dispatched(c) for c in calls]
    now: list[tuple[list[Tried], str]] = []
    written: dict[Path, None] = {}
    for i, call in enumerate(calls, 1):
        path = table_path(call)
        if call.name in read(path, call.ladder).complete:
            now.append(([], "timed before"))
        elif time.monotonic() >= deadline:
            now.append(([], "the budget was spent"))
        else:
            progress(f"{i} of {len(calls)}, {len(call.us)} x {call.name}")
            tried, note = _timed(call, deadline)
            now.append((tried, note))
            if any(t.us is not None for t in tried):
                write(path, call, tried, complete=not note)
                written[path] = None
    lines = [_line(c, b, *n) for c, b, n in zip(calls, before, now, strict=True)]
    return lines, list(written)


def dispatched(call: Call) -> Choice:
    """The rung and config to which the call is currently dispatched."""
    specs, _ = call.ladder.operator.normalise(specs_of(call.args))
    return select(call.ladder, specs, call.device, None)


def _line(call: Call, before: Choice, tried: list[Tried], note: str) -> Line:
    after = dispatched(call)
    us = {_shown(t.rung, t.config): t.us for t in tried}
    old, new = (_shown(x.rung.name, x.config) for x in (before, after))
    was, becomes = us.get(old), us.get(new)
    gain = was / becomes if was and becomes else None
    return Line(call.name, len(call.us), call.total, old, new, gain, note)


def _shown(rung: str, config: Config) -> str:
    return f"{rung} {json.dumps(config, sort_keys=True)}" if config else rung


# timing one call


def _timed(call: Call, deadline: float) -> tuple[list[Tried], str]:
    """The measurements on a call, and why they are incomplete, or ""."""
    try:
        with clock.session(call.device):
            return try_all(call, deadline)
    except torch.OutOfMemoryError:
        return [], "there is not enough free memory to time it"


def try_all(
    call: Call, deadline: float, rule: clock.StoppingRule = RULE
) -> tuple[list[Tried], str]:
    """Compare every choice with PyTorch's own result, and time the right ones alternately. After
    the deadline no more are prepared, except for the first two. Call inside `clock.session`."""
    ladder, operator = call.ladder, call.ladder.operator
    args = map_tensors(call.args, partial(copy_of, device=call.device))
    specs, _ = operator.normalise(specs_of(args))
    bucket, moved = ladder.bucket(**specs), operator.cost(**specs).bytes
    want = _results(call, args, entry_of(ladder, ladder.rung("native")))
    count = min(clock.rotations(set_bytes(operator, args), call.device), MOST_SETS)
    sets = [map_tensors(args, copy_of) for _ in range(count)]
    tried: list[Tried] = []
    candidates: dict[str, clock.Candidate] = {}
    note = ""
    for rung, config in choices(ladder, specs, call.device):
        if len(candidates) >= 2 and time.monotonic() >= deadline:
            note = "the budget was spent before every config was tried"
            break
        why, run = _checked(call, args, want, rung, config)
        tried.append(Tried(call.name, bucket, rung.name, config, None, why))
        if run is not None:
            name = _shown(rung.name, config)
            candidates[name] = clock.Candidate(
                name, [partial(run, *a.values()) for a in sets], moved
            )
    times = clock.measure(list(candidates.values()), call.device, rule).times
    return [_with_time(t, times.get(_shown(t.rung, t.config))) for t in tried], note


def _with_time(t: Tried, times: clock.Times | None) -> Tried:
    if times is None:
        return t
    us = stats.median(times.cold) if times.cold else None
    return Tried(t.case, t.bucket, t.rung, t.config, us, times.error)


def _results(call: Call, args: dict[str, Any], run: Callable[..., Any]) -> tuple[Any, ...]:
    operator = call.ladder.operator
    given = map_tensors(args, copy_of) if operator.mutated else args
    return all_results(operator, given, run(*given.values()))


def _checked(
    call: Call, args: dict[str, Any], want: tuple[Any, ...], rung: Rung, config: Config
) -> tuple[str, Callable[..., Any] | None]:
    """How a rung's results differ from PyTorch's, or "" and the function that runs it."""
    operator = call.ladder.operator

    def noise(i: int) -> torch.Tensor | None:
        own = operator.noise(**args) if operator.noise else ()
        return own[i] if i < len(own) else None

    try:
        run = launcher(call.ladder, args, rung.name, config)
        results = _results(call, args, run)
        for i, name in enumerate(result_names(operator, args)):
            if why := differs(results[i], want[i], partial(noise, i)):
                return f"{name}: {why}", None
    except torch.OutOfMemoryError:
        raise
    except Exception as e:  # noqa: BLE001 - whatever a rung raises is stored as its result
        return one_line(e), None
    return "", run


def choices(
    ladder: Ladder, specs: dict[str, Any], device: torch.device
) -> Iterator[tuple[Rung, Config]]:
    """The dispatched choice; then each rung that may be dispatched, with its heuristic's config;
    then all other configs. Choices with the same launches are listed once."""
    gpu = gpu_of(device)
    chosen = select(ladder, specs, device, None)
    rungs = [
        r
        for r in ladder.rungs
        if r.backend != "inductor" and rejected(ladder, r, specs, device) is None
    ]
    pairs = [(chosen.rung, chosen.config)]
    pairs += [(r, config_for(r, gpu, specs)) for r in rungs if gpu and r.is_gpu]
    pairs += [(r, c) for r in rungs for c in r.configs]
    seen: list[tuple[Rung, Any]] = []
    for rung, config in pairs:
        plan = plan_of(ladder, rung, specs, device=device, config=config) if rung.is_gpu else None
        same = (rung, plan.launches if plan else config)
        if same not in seen:
            seen.append(same)
            yield rung, config


# tables


@dataclass(frozen=True)
class Timed:
    """The data behind a table: the measurements by call, and the calls that are complete."""

    calls: dict[str, list[Tried]]
    complete: frozenset[str]


def table_path(call: Call) -> Path:
    """The table of a call's operator and GPU. The data behind it is in the folder `tried` next to
    it, so that dispatch reads only a small file."""
    gpu = gpu_of(call.device)
    assert gpu is not None
    return table_of(model_tables(gpu), call.ladder.name, gpu.capability)


def read(path: Path, ladder: Ladder) -> Timed:
    """The data behind a table; empty if its kernels have changed since."""
    document = data.document(_tried(path), {})
    if document.get("sources") != sources(ladder):
        return Timed({}, frozenset())
    calls: dict[str, list[Tried]] = {}
    for t in (Tried(**x) for x in document["tried"]):
        calls.setdefault(t.case, []).append(t)
    return Timed(calls, frozenset(document["complete"]))


def write(path: Path, call: Call, tried: list[Tried], *, complete: bool) -> None:
    """Add a call to a table, safely if another process does so too. The call is dispatched by the
    table from now on."""
    ladder, gpu = call.ladder, gpu_of(call.device)
    assert gpu is not None
    with cache.locked("tuned", str(path)):
        before = read(path, ladder)
        calls = before.calls | {call.name: tried}
        result = TuneResult(ladder.name, gpu.capability, sources(ladder))
        result.tried = [t for some in calls.values() for t in some]
        decide(result, {})
        whole = before.complete | ({call.name} if complete else set())
        rows = [asdict(t) for t in result.tried]
        made_of = {"sources": result.sources, "complete": sorted(whole), "tried": rows}
        table = {"sources": result.sources, "buckets": dict(sorted(result.buckets.items()))}
        data.write(_tried(path), json.dumps(made_of, indent=1) + "\n")
        data.write(path, json.dumps(table, indent=1) + "\n")
    invalidate_selection(ladder)


def _tried(path: Path) -> Path:
    return path.parent / "tried" / path.name
