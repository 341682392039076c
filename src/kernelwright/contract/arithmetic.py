"""Launch arithmetic that Triton and CUDA planners share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

LONGEST = 256  # rows that a thread adds sequentially
MOST_ABREAST = 65_535  # blocks in a column of a grid


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def gcd(*numbers: Any) -> int:
    """Like math.gcd; also accepts open sizes."""
    divisor = math.gcd(*(n for n in numbers if isinstance(n, int)))
    for n in numbers:
        divisor = divisor if isinstance(n, int) else n.gcd(divisor)
    return divisor


def chunks(sizes: Sequence[int], length: int) -> torch.Tensor:
    """The work of each block when one launch processes a list of tensors: one int32 row per block,
    with the tensor's index in the list and the index of its chunk of `length` elements."""
    per_tensor = torch.tensor([cdiv(n, length) for n in sizes], dtype=torch.int64, device="cpu")
    total = int(per_tensor.sum())
    place = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), per_tensor)
    before = torch.cumsum(per_tensor, 0) - per_tensor
    chunk = torch.arange(total, device="cpu") - before[place]
    return torch.stack((place, chunk), 1).to(torch.int32)


def shares(rows: int, strips: int, blocks: int) -> tuple[int, int]:
    """(parts, rows per part) that distribute the rows evenly, for `strips` strips of columns and
    about `blocks` blocks in total."""
    share = cdiv(rows, max(1, blocks // strips))
    return cdiv(rows, share), share


def abreast(rows: int, down: int, strips: int, blocks: int) -> int:
    """The number of blocks that share a strip of columns, each taking `down` rows at a time, if
    about `blocks` blocks are distributed over `strips` strips. The number is raised, as far as a
    grid allows, until no thread adds more than LONGEST rows, because each addition rounds the sum.
    """
    fewest = cdiv(rows, down * LONGEST)
    return min(max(min(cdiv(rows, down), max(1, blocks // strips)), fewest), MOST_ABREAST)
