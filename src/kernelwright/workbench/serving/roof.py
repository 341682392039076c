"""The least time of a run: the bytes that its steps must read, at the memory's measured rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.infer.serve import sizing
from kernelwright.machine import clock, random_state
from kernelwright.machine.stats import median
from kernelwright.workbench.bench import roofs

from .drive import Run, Served

_BYTES = {"cuda": 1 << 30, "cpu": 256 << 20}  # that are read to measure the rate


@dataclass(frozen=True)
class Roof:
    """What a model's steps read, and how fast the memory is.

    Attributes:
        weights: bytes that each step reads.
        token: bytes of a token's keys and values in all layers.
        windows: of each layer: how many tokens a token attends to; 0 for all.
        rate: bytes per second.
    """

    weights: int
    token: int
    windows: tuple[int, ...]
    rate: float

    def share(self, run: Run) -> float:
        """The least seconds of the run's steps over those that they took."""
        layers = Counter(self.windows)
        keys = sum(n * keys_read(r, w) for w, n in layers.items() for r in run.requests)
        least = run.steps * self.weights + keys * self.token / len(self.windows)
        return least / self.rate / run.stepping


def keys_read(request: Served, window: int) -> int:
    """Tokens whose keys and values a layer reads at least: those of the prompt once for the first
    token, and all in the window again for each further token."""
    seen = range(request.prompt + 1, request.prompt + request.tokens)
    return request.prompt + sum(min(n, window) if window else n for n in seen)


def of(model: Any, cache_dtype: str) -> Roof:
    """The roof of a model on its device."""
    device = model.head_VC.device
    config = model.config
    windows = getattr(config, "windows", ()) or (0,) * config.layers
    token = sizing.token_bytes(model, cache_dtype)
    return Roof(weight_bytes(model), token, windows, read_rate(device))


def weight_bytes(model: Any) -> int:
    """Bytes of all tensors of which a step reads every element. Of an embedding that is not the
    output layer, it reads only the rows of its tokens."""
    tensors: Iterable[tuple[str, torch.Tensor]] = [
        *model.named_parameters(),
        *model.named_buffers(),
    ]
    looked_up = {"positions", "cos_SD", "sin_SD"} | (set() if model.config.tied else {"tokens"})
    return sum(t.nbytes for name, t in tensors if name not in looked_up)


@random_state.preserved()
def read_rate(device: torch.device) -> float:
    """Bytes per second at which a large tensor is read, measured now."""
    nbytes = _BYTES[device.type]
    rule = clock.QUICK if device.type == "cuda" else clock.CPU_QUICK
    with clock.session(device):
        times = clock.measure(roofs.roof_candidates("r1w0", nbytes, device), device, rule).times
    return nbytes / (min(median(t.cold) for t in times.values() if t.cold) * 1e-6)
