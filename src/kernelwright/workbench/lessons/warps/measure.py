"""Counts divergent branches and inactive lanes, and runs three sums of a warp under the checks."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import Scalar, TensorSpec, i32
from kernelwright.emulator.dissect import Dissected
from kernelwright.workbench.lessons import launching, recorded
from kernelwright.workbench.lessons.launching import Call
from kernelwright.workbench.lessons.tables import EMULATOR, Cell, Measured, Picture, Table
from kernelwright.workbench.report import strips

SOURCE = Path(__file__).with_name("lanes.cu")
BLOCK = 256
SUMS = ("volatile_sum", "synchronized_sum", "shuffled_sum")
BRANCHES = {"branch<false>": "odd and even threads", "branch<true>": "odd and even warps"}
LARGE = 1 << 16  # blocks of the timed branches


def measure() -> Measured:
    branches = {k: _branch(k, 1) for k in BRANCHES}
    below, uneven = _below(100), _uneven()
    sums = {k: _sum(k) for k in SUMS}
    calls = [*branches.values(), below, uneven, *sums.values()]
    launches = launching.counted(calls)
    tables = (
        Table(
            "branches",
            f"A branch in a block of {BLOCK} threads",
            ("kernel", "sides are taken by", "divergent warps", "stores", "lanes per store"),
            tuple((k, BRANCHES[k], *_divergence(launches[c.name])) for k, c in branches.items()),
            EMULATOR,
        ),
        Table(
            "uneven",
            "A loop of k + 1 iterations in lane k",
            (
                "kernel",
                "iterations of the warp",
                "iterations of the lanes",
                "share of active lanes",
            ),
            (("uneven", *_iterations(launches[uneven.name])),),
            EMULATOR,
        ),
        Table(
            "sums",
            "Sum of 64 values by one warp",
            ("kernel", "result", "races", "requests to shared memory"),
            tuple((k, *_sound(c), _shared(launches[k])) for k, c in sums.items()),
            EMULATOR,
        ),
        Table(
            "asked",
            "The questions",
            ("question", "figure"),
            (
                ("below", _divergence(launches[below.name])[0]),
                (
                    "requests",
                    _shared(launches["synchronized_sum"]) - _shared(launches["shuffled_sum"]),
                ),
            ),
            EMULATOR,
        ),
        recorded.times(
            "records",
            "Sum of 2^28 floats",
            "sum",
            ("cuda_interleaved", "cuda_sequential", "cuda_last_warp", "cuda_shuffle"),
            "268435456-f32-dim=None",
        ),
    )
    return Measured(tables, _picture([*branches.values(), uneven]))


def here(device: torch.device) -> tuple[Table, ...]:
    if device.type != "cuda":
        return ()
    calls = [_branch(k, LARGE) for k in BRANCHES]
    return (launching.times("times", f"{LARGE:,} blocks of {BLOCK} threads", calls, device),)


def _branch(kernel: str, blocks: int) -> Call:
    n = blocks * BLOCK
    x, at = torch.ones(n), torch.arange(n)
    which = at // 32 if kernel == "branch<true>" else at
    right = torch.where(which % 2 == 0, 2.0, (3 + 5**0.5) / 2)  # where v = v / 2 + 1, sqrt(v) + 1
    return _call(kernel, x, right, blocks, BLOCK)


def _below(bound: int) -> Call:
    x = torch.arange(float(BLOCK))
    return _call("below", x, x[:bound], 1, BLOCK, (i32(bound),))


def _uneven() -> Call:
    x = torch.ones(32 * 32)
    return _call("uneven", x, torch.arange(1.0, 33.0), 1, 32)


def _sum(kernel: str) -> Call:
    x = torch.arange(64.0)
    right = torch.Tensor() if kernel == "volatile_sum" else x.sum()[None]
    return _call(kernel, x, right, 1, 32)


def _call(
    kernel: str,
    x: torch.Tensor,
    right: torch.Tensor,
    blocks: int,
    block: int,
    more: tuple[Scalar, ...] = (),
) -> Call:
    """`right`: the correct result; empty for the sum that is known to be wrong."""
    size = right.numel() or 1
    return Call(
        kernel, SOURCE, kernel, (blocks, 1, 1), (block, 1, 1), ("x", "y", *more), {"x": x},
        {"y": TensorSpec.contiguous((size,), torch.float32)},
        {"y": right} if right.numel() else {}, bytes=4 * (x.numel() + size),
    )  # fmt: skip


def _divergence(launch: Dissected) -> tuple[Cell, ...]:
    parted = sum(b.parted for b in launch.branches)
    stores = [a for a in launch.accesses if a.kind == "store"]
    requests = sum(a.requests for a in stores)
    return parted, requests, sum(a.lanes for a in stores) / requests


def _iterations(launch: Dissected) -> tuple[Cell, ...]:
    (load,) = (a for a in launch.accesses if a.kind == "load")
    return load.requests, load.lanes, f"{100 * load.lanes / load.requests / 32:.3g}%"


def _sound(call: Call) -> tuple[str, str]:
    """Whether a sum is right in the emulator's order of lanes, and whether it has races."""
    total = launching.results(call)["y"]
    right = bool(torch.allclose(total, call.inputs["x"].sum()[None]))
    return "right" if right else "wrong", "found" if launching.findings(call) else "none"


def _shared(launch: Dissected) -> int:
    return sum(a.requests for a in launch.accesses if a.memory == "shared")


def _picture(calls: list[Call]) -> Picture:
    drawn: list[strips.Strip] = []
    for name, launch in launching.traced(calls).items():
        kind = "load" if name == "uneven" else "store"
        requests = [r for r in launch.requests if r.kind == kind]
        shown = [requests[i] for i in (0, 7, 15, 23, 31)] if kind == "load" else requests
        for i, r in zip((1, 8, 16, 24, 32), shown, strict=False):
            cells = [float(lane in r.offsets) for lane in range(32)]
            label = f"{name}, turn {i}" if kind == "load" else name
            drawn.append(strips.Strip(label, cells, f"{len(r.offsets)} of 32 lanes", kind))
    return Picture(
        "The lanes that take part in requests of the first warp",
        (
            "A cell is a lane. An instruction with few active lanes takes as long as one with 32.",
            "Brown: stores of the two sides of a branch. Blue: loads of a loop.",
        ),
        tuple(drawn),
    )
