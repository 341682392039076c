"""Microseconds of configs and of cuBLAS: CUDA-graph replays over rotated operands, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch

from kernelwright.machine import nvml
from kernelwright.machine.facts import uuid

FOOTPRINT = 180_000_000  # bytes of operands that replays rotate over: three times L2
SETS = 64
REPLAY = 0.8e-3  # seconds of a replay, at least
TOO_FAR = 5e-3  # part by which a config may differ from cuBLAS, by norm: bf16 rounds by 1.7e-3


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
    """{"times": microseconds of a call by provider, "mhz" and "watts": read once a round, while it
    runs}."""
    for graph in graphs.values():
        graph.replay()
    names, times = list(graphs), {name: [] for name in graphs}
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
            times[name].append(round(start.elapsed_time(end) * 1e3 / calls, 4))
        if reading is not None:
            mhz.append(reading.sm_mhz)
            watts.append(reading.watts)
    return {"times": times, "mhz": mhz, "watts": watts}
