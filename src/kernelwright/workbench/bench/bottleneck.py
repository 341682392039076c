"""What limits a launch: launch overhead, memory bandwidth, arithmetic, or latency."""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.contract import Cost
from kernelwright.machine import clock, gpu_facts, gpu_of, stats

from . import roofs


def bound(
    cold_us: float,
    roof_us: float | None,
    launch_us: float,
    cost: Cost,
    device: torch.device,
    products_us: float | None = None,
) -> str:
    """What limits a launch, from its time alone.

    "launch": at most twice the time of an empty launch. "bandwidth": at least three quarters of the
    memory roof. "compute": at least three quarters of the matrix-product roof, at which the
    products take `products_us`, or half of the arithmetic peak. "latency": none of these: too few
    accesses are in flight, or the kernel does more work than necessary. "" if the roofs are
    unknown.
    """
    if cold_us <= 2 * launch_us:
        return "launch"
    if roof_us and roof_us >= 0.75 * cold_us:
        return "bandwidth"
    if products_us is not None:
        return "compute" if products_us >= 0.75 * cold_us else "latency"
    gpu = gpu_of(device)
    mhz = gpu_facts(torch.cuda.current_device()).sm_mhz if gpu else None
    if gpu is None or not mhz:
        return ""
    lanes = 64 if gpu.capability == (8, 0) else 128
    peak = 2.0 * lanes * gpu.sms * mhz  # float32 operations per microsecond
    return "compute" if cost.flops / cold_us >= 0.5 * peak else "latency"


def launch_us(device: torch.device, rule: clock.StoppingRule) -> float:
    """The time of an empty launch in microseconds; 0 if it cannot be measured."""
    with clock.session(device):
        candidate = roofs.launch_candidate(device)
        times = clock.measure([candidate], device, replace(rule, seconds=0.2)).times["launch"]
    return stats.median(times.cold) if times.cold else 0.0
