"""Collectives between processes, for operators whose result depends on the part of each process.

Operators use torch.distributed through this module only. A `group` is a process group; None is the
group of all processes. Every process of a group must make the same calls in the same order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import distributed

# the name from torch 2.13 on, where the older name warns
_GATHER = "all_gather_single"


def processes(group: Any = None) -> int:
    """The number of processes in a group; 1 if torch.distributed is not initialized."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size(group)


def gather(t: torch.Tensor, group: Any = None) -> torch.Tensor:
    """The t of every process, stacked: (processes, *t.shape). All must have the same shape and not
    be 0-d. One collective."""
    count = processes(group)
    gathered = t.new_empty((count * t.shape[0], *t.shape[1:]))
    into = getattr(distributed, _GATHER, None) or distributed.all_gather_into_tensor
    into(gathered, t.contiguous(), group=group)
    return gathered.unflatten(0, (count, t.shape[0]))


def add(t: torch.Tensor, group: Any = None) -> torch.Tensor:
    """The sum of each process's t, in a new tensor. One collective."""
    total = t.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(total, group=group)
    return total
