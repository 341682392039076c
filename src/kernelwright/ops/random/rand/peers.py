"""PyTorch's own operators. They draw from PyTorch's generator: peers, not rungs."""

from __future__ import annotations

import torch

from kernelwright.contract.peer import Peer


def uniform(state, size, threads, dtype):
    return lambda: torch.rand(tuple(size), dtype=dtype, device=state.device)


def normal(state, size, threads, dtype):
    return lambda: torch.randn(tuple(size), dtype=dtype, device=state.device)


def bernoulli_p(state, size, threads, p, dtype):
    return lambda: torch.empty(tuple(size), dtype=dtype, device=state.device).bernoulli_(p)


def bernoulli(state, p):
    return lambda: torch.bernoulli(p)


PEERS = tuple(
    Peer("torch", name, make, "torch", random=True)
    for name, make in (
        ("rand", uniform),
        ("randn", normal),
        ("bernoulli_p", bernoulli_p),
        ("bernoulli", bernoulli),
    )
)
