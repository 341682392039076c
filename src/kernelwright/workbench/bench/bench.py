"""Times a ladder: all rungs, PyTorch, peers and the machine's roofs, in one run.

Peers are other libraries' functions. An operator with peers names them in its ladder,
`Ladder(..., peers="peers:PEERS")`, and `peers.py` in its folder has one tuple for the forward and
the backward:

    def _forward(x, dim):                        # the operator's arguments, by name
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
        return lambda: LigerSoftmaxFunction.apply(x)

    def _backward(gy, y, dim):
        from liger_kernel.ops.softmax import LigerSoftmaxFunction
        x = y.log().requires_grad_()             # any x with this softmax
        out = LigerSoftmaxFunction.apply(x)
        return lambda: torch.autograd.grad(out, x, gy, retain_graph=True)[0]

    PEERS = (
        Peer("liger", "softmax", _forward, requires="liger_kernel"),
        Peer("liger", "softmax.backward", _backward, requires="liger_kernel"),
    )

See `contract.Peer` for the rules for `make`. A peer that raises on a case (Liger limits the length
of a row) is recorded with its message; a wrong one is recorded as wrong and not timed.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import Case, Ladder
from kernelwright.machine import clock, facts, here, random_state
from kernelwright.workbench.records.records import Record

from .bottleneck import launch_us
from .case_bench import CaseBench
from .host_time import host_records
from .result import BenchResult, Guest, Skipped
from .workload import chosen, unfit


@random_state.preserved()
def bench(
    ladders: Iterable[Ladder],
    *,
    cases: Iterable[str] | None = None,
    quick: bool = False,
    peers: bool = False,
    guests: Sequence[Guest] = (),
    on_row: Callable[[Record], None] = lambda record: None,
    on_case: Callable[[Ladder, Case, BenchResult], None] = lambda *_: None,
    on_step: Callable[[str], None] = lambda words: None,
    time_limit: float | None = None,
) -> BenchResult:
    """Time ladders on this machine.

    Args:
        cases: ids, or parts of the labels of bench cases ("gpt2"); by default the bench cases
        quick: only a few samples of each; on a CPU each model's shape in one dtype.
        peers: whether to time other libraries too.
        guests: candidates that run in other processes; each is recorded under its name.
        on_row: called with each record as soon as it is complete.
        on_row: called with each record as soon as it is complete.
        on_case: called with each ladder and case after it is timed, and with everything measured
            so far.
        on_step: called with a description of each step.
        time_limit: seconds that the samples of one case may take.

    Raises:
        UnknownCase: no operator has such a case.
    """
    device = here()
    result = BenchResult(new_run(), {})
    result.environment = environment(result.run, device)
    rule = stopping_rule(device, quick, time_limit)
    listed = None if cases is None else list(cases)
    work = chosen(list(ladders), listed, device, quick=quick)
    empty_us = launch_us(device, rule)
    stand_ins: dict[tuple[str, str], str] = {}
    for number, (ladder, case) in enumerate(work, 1):
        if why := unfit(case, device, ladder.operator):
            result.skipped.append(Skipped(ladder.name, "*", case.id, why))
            continue
        at = f"{number} of {len(work)}: {ladder.name} {case.id}"
        say = partial(_say, on_step, at)
        one = CaseBench(ladder, case, device, rule, empty_us, result, stand_ins, say)
        for record in one.run(peers, guests):
            result.records.append(record)
            on_row(record)
        on_case(ladder, case, result)
    for ladder in dict.fromkeys(x for x, _ in work if "." not in x.name):
        if device.type == "cuda":
            smallest = min((c for x, c in work if x is ladder), key=lambda c: c.numel)
            hosted = host_records(ladder, smallest, device, result.run)
            for record in hosted:
                result.records.append(record)
                on_row(record)
            if not hosted:
                why = "its public function takes other arguments than the operator"
                result.skipped.append(Skipped(ladder.name, "host:kw", smallest.id, why))
    return result


def new_run() -> str:
    """An id that sorts by time: "20251120T190657Z-3fa9"."""
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()) + "-" + secrets.token_hex(2)


def environment(run: str, device: torch.device) -> dict[str, Any]:
    """The conditions of a run: the machine, its software, its load, the time."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"run": run, "when": when, "load": os.getloadavg()[0], **facts(device), "clocks": {}}


def stopping_rule(
    device: torch.device, quick: bool, time_limit: float | None
) -> clock.StoppingRule:
    if device.type == "cuda":
        rule = clock.QUICK if quick else clock.StoppingRule()
    else:
        rule = clock.CPU_QUICK if quick else clock.CPU
    return replace(rule, seconds=time_limit) if time_limit else rule


def _say(on_step: Callable[[str], None], at: str, what: str) -> None:
    on_step(f"{at}: {what}")
