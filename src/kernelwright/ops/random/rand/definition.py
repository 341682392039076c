"""The random numbers in PyTorch's integer operators: what every rung computes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from .._philox import CHUNK
from .._sequences import philox
from .grid import WORDS

TURN = 2.0**-32 * 6.2831855  # per unit of an angle's word


def uniform(state, size, threads, dtype):
    def half_open(words):
        value = unit(words).to(dtype)
        return value.masked_fill(value == 1, 0)

    return _grid(state, size, threads, half_open)


def normal(state, size, threads, dtype):
    return _grid(state, size, threads, lambda words: box_muller(words))


def radius(state, size, threads):
    def of_pairs(words):
        return _radius(words[..., ::2]).repeat_interleave(2, -1)

    return _grid(state, size, threads, of_pairs)


def bernoulli_p(state, size, threads, p, dtype):
    return _grid(state, size, threads, lambda words: (unit(words) < p).to(dtype))


def bernoulli(state, p):
    """One chunk of sequences at a time."""
    flat, drawn = p.reshape(-1), []
    for first in range(0, max(flat.numel(), 1), WORDS * CHUNK):
        part = flat[first : first + WORDS * CHUNK]
        calls = torch.arange(-(-part.numel() // WORDS), device=p.device)
        words = philox(state[:1], _position(state, 0).expand_as(calls), calls + first // WORDS)
        drawn.append((unit(words.flatten()[: part.numel()]) <= part.float()).to(p.dtype))
    return torch.cat(drawn).view(p.shape)


def unit(words):
    """(word + 1/2) / 2^32 in float32, in (0, 1]: the word is rounded, and so is the sum."""
    return words.float() * 2.0**-32 + 2.0**-33


def box_muller(words):
    """Two numbers from two words, in float64 from rounded words."""
    angle = (words[..., 1::2].float().double() * _single(TURN) + _single(TURN) / 2).float()
    radii = _radius(words[..., ::2])
    return torch.stack((radii * angle.double().sin(), radii * angle.double().cos()), -1).flatten(-2)


def _radius(words):
    return (-2 * unit(words).double().log()).sqrt()


def _single(x: float) -> float:
    return torch.tensor(x, dtype=torch.float32, device="cpu").item()


def _position(state, step: int):
    return (state[1:] >> 2) + step


def _grid(state, size, threads: int, made: Callable) -> torch.Tensor:
    """A tensor of this size, step by step of the grid; `made` converts a call's words to values."""
    n = math.prod(size)
    sequence = torch.arange(threads, device=state.device)
    steps = [
        made(philox(state[:1], _position(state, step).expand(threads), sequence)).T.flatten()
        for step in range(max(1, -(-n // (WORDS * threads))))
    ]
    return torch.cat(steps)[:n].view(tuple(size))
