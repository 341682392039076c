"""Microseconds of configs and of cuBLAS: CUDA-graph replays over rotated operands, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.machine import nvml
from kernelwright.machine.facts import uuid

from .configs import Config
from .epilogues import Epilogue
from .launch import Launch

FOOTPRINT = 180_000_000  # bytes of operands that replays rotate over: three times L2
SETS = 64
REPLAY = 0.8e-3  # seconds of a replay, at least
TOO_FAR = 5e-3  # part by which a config may differ from cuBLAS, by norm: bf16 rounds by 1.7e-3

Set = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def times(
    shape: tuple[int, int, int],
    layout: str,
    configs: list[Config],
    rounds: int,
    generator: random.Random,
    kind: str = "plain",
) -> dict[str, Any]:
    """{"times": samples by provider, "mhz" and "watts": read once a round, while it runs}. cuBLAS
    is timed twice: the second is a control."""
    m, n, k = shape
    epilogue = Epilogue.random(kind, n, torch.bfloat16)
    footprint = 2 * (m * k + k * n + m * n)
    sets = [operands(*shape, layout) for _ in range(min(SETS, max(1, -(-FOOTPRINT // footprint))))]
    expected = epilogue.cublas(*sets[0]).float().clone()
    guess = max(2 * m * n * k / 650e12, footprint / 3.5e12, 5e-6)
    again = min(200, int(REPLAY / guess / len(sets)) + 1)
    library = [lambda s=s: epilogue.cublas(*s) for s in sets] * again
    graphs = {"cublas": recorded(library), "cublas again": recorded(library)}
    for config in configs:
        launches = [Launch(config, *s, epilogue) for s in sets]
        agree(launches[0], sets[0][2], expected, f"{config} {layout} {m}x{n}x{k} {kind}")
        graphs[str(config)] = recorded([x.run for x in launches] * again)
    return replayed(graphs, len(sets) * again, rounds, generator)


def operands(m: int, n: int, k: int, layout: str) -> Set:
    def matrix(rows: int, cols: int, by_rows: bool) -> torch.Tensor:
        shape = (rows, cols) if by_rows else (cols, rows)
        made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
        return made if by_rows else made.t()

    a, b = matrix(m, k, layout[0] == "N"), matrix(k, n, layout[1] == "N")
    return a, b, torch.empty(m, n, device="cuda", dtype=torch.bfloat16)


def agree(launch: Launch, c: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """No time without a right result, on the same operands and launch."""
    c.fill_(float("nan"))
    launch.run()
    error = ((c.float() - expected).norm() / expected.norm()).item()
    if not error < TOO_FAR:
        raise RuntimeError(f"{what}: differs from cuBLAS by {error:.2g}")


def recorded(calls: list[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    calls[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def replayed(
    graphs: dict[str, torch.cuda.CUDAGraph], calls: int, rounds: int, generator: random.Random
) -> dict[str, Any]:
    for graph in graphs.values():
        graph.replay()
    names, found = list(graphs), {name: [] for name in graphs}
    mhz, watts = [], []
    for _ in range(rounds):
        generator.shuffle(names)
        marks = {name: [torch.cuda.Event(enable_timing=True) for _ in range(2)] for name in names}
        for name in names:
            marks[name][0].record()
            graphs[name].replay()
            marks[name][1].record()
        reading = nvml.read(uuid(torch.cuda.current_device()))  # while they run
        torch.cuda.synchronize()
        for name, (start, end) in marks.items():
            found[name].append(round(start.elapsed_time(end) * 1e3 / calls, 4))
        if reading is not None:
            mhz.append(reading.sm_mhz)
            watts.append(reading.watts)
    return {"times": found, "mhz": mhz, "watts": watts}
