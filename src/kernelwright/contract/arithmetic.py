"""Launch arithmetic that Triton and CUDA planners share."""

from __future__ import annotations

from collections.abc import Sequence

import torch

LONGEST = 256  # rows that a thread adds up, one after another
MOST_ABREAST = 65_535  # blocks in a column of a grid


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def chunks(sizes: Sequence[int], length: int) -> torch.Tensor:
    """Which block works on what, where one launch serves a list of tensors: a row of int32 for
    each block, the tensor's place in the list and the chunk of `length` elements in it."""
    per_tensor = torch.tensor([cdiv(n, length) for n in sizes], dtype=torch.int64, device="cpu")
    total = int(per_tensor.sum())
    place = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), per_tensor)
    before = torch.cumsum(per_tensor, 0) - per_tensor
    chunk = torch.arange(total, device="cpu") - before[place]
    return torch.stack((place, chunk), 1).to(torch.int32)


def shares(rows: int, strips: int, blocks: int) -> tuple[int, int]:
    """(parts, rows of a part) where `strips` strips of columns and some `blocks` blocks in all
    share the rows evenly."""
    share = cdiv(rows, max(1, blocks // strips))
    return cdiv(rows, share), share


def abreast(rows: int, down: int, strips: int, blocks: int) -> int:
    """How many blocks go down a strip of columns side by side, `down` rows at a time each, where
    some `blocks` share `strips` of them: as many more, if a grid has them, as it takes that no
    thread adds up more than LONGEST rows, each of which rounds the sum."""
    fewest = cdiv(rows, down * LONGEST)
    return min(max(min(cdiv(rows, down), max(1, blocks // strips)), fewest), MOST_ABREAST)
