"""Preserves the states of PyTorch's random generators, which belong to the user's program.

`torch.manual_seed` seeds the CPU and every GPU, those too that are initialized only later, and
`torch.random.fork_rng` restores only the devices that it is given. Functions that draw numbers in
the process of a user therefore use `preserved` or `cpu_seed`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

import torch


@contextmanager
def preserved() -> Generator[None]:
    """Restore the generators of the CPU and of every GPU after the block, or after each call of a
    function that this decorates. Initializes CUDA if there is a GPU, because a seed for GPUs that
    are not initialized cannot be taken back."""
    with torch.random.fork_rng(devices=gpus()):
        yield


@contextmanager
def cpu_seed(seed: int) -> Generator[None]:
    """Seed the CPU's generator for the block, and restore it afterwards. No generator of a GPU is
    touched, and CUDA is not initialized."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


def gpus() -> Sequence[int]:
    """Indices of the GPUs that this process can use; none in a process forked from one that used
    them, where `torch.manual_seed` does not touch them either."""
    forked = torch.cuda._is_in_bad_fork()
    return range(torch.cuda.device_count()) if torch.cuda.is_available() and not forked else ()
