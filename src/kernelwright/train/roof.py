"""The rate of matrix products on this machine, and the operations of training on a token."""

from __future__ import annotations

from typing import Any

import torch

from kernelwright.machine import random_state
from kernelwright.machine.clock import Candidate, StoppingRule, measure, session
from kernelwright.machine.stats import median

_SIDE = {"cuda": 8192, "cpu": 1024}


@random_state.preserved()
def products(device: torch.device, precision: str) -> float:
    """Operations per second of a large square product, measured now, in the dtype of a run's
    products."""
    side = _SIDE[device.type]
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    with session(device):
        a, b, out = (torch.randn(side, side, device=device).to(dtype) for _ in range(3))
        product = Candidate("product", [lambda: torch.mm(a, b, out=out)])
        rule = StoppingRule(least=4, most=12, width=0.02, seconds=0.3)
        times = measure([product], device, rule).times["product"]
    if times.error:
        raise RuntimeError(f"the roof of matrix products cannot be measured: {times.error}")
    return 2 * side**3 / (median(times.cold) * 1e-6)


def of_token(model: Any) -> float:
    """Operations of training on one token: products with weights, 2 operations per weight forward
    and 4 backward, and the products of attention, half of which a causal mask removes."""
    config = model.config
    weights = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2)
    weights -= model.tokens.numel() if not config.tied else 0  # the embedding is looked up
    weights -= model.positions.numel() if hasattr(model, "positions") else 0
    attention = config.layers * config.heads * config.head_width * config.context
    return 6.0 * weights + 6.0 * attention
