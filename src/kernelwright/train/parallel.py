"""Processes that share a step: groups of torchrun, DDP and FSDP2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

from kernelwright.support.errors import UsageError


@dataclass(frozen=True)
class Processes:
    """This process among those of a run.

    Attributes:
        kind: "none", "ddp" or "fsdp".
        rank, count: its number, and the number of processes.
        device: the device it computes on.
    """

    kind: str
    rank: int
    count: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def mean(self, t: torch.Tensor) -> torch.Tensor:
        """The mean over processes, in place."""
        if self.count > 1:
            distributed.all_reduce(t)
            t /= self.count
        return t

    def agree(self, value: Any) -> Any:
        """The first process's value."""
        if self.count == 1:
            return value
        box = [value]
        distributed.broadcast_object_list(box, 0, device=self.device)
        return box[0]

    def gather(self, value: Any) -> list[Any]:
        """Every process's value, by rank."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        distributed.all_gather_object(values, value)
        return values


@contextlib.contextmanager
def joined(kind: str, device: torch.device) -> Generator[Processes]:
    """The processes of torchrun, or this one alone.

    Args:
        kind: "none", "ddp" or "fsdp"; under torchrun "none" means "ddp".
        device: of a single process; under torchrun each process uses the GPU of its local rank.

    Raises:
        UsageError: FSDP is requested without torchrun.
    """
    if "LOCAL_RANK" not in os.environ:
        if kind != "none":
            raise UsageError(
                f"parallel: {kind} needs torchrun: "
                f"torchrun --nproc-per-node 2 -m kernelwright train --parallel {kind}"
            )
        yield Processes("none", 0, 1, device)
        return
    kind = "ddp" if kind == "none" else kind
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    distributed.init_process_group(backend)
    try:
        rank, count = distributed.get_rank(), distributed.get_world_size()
        yield Processes(kind, rank, count, device)
    finally:
        distributed.destroy_process_group()


def share(model: nn.Module, processes: Processes) -> nn.Module:
    """The model that a process calls: wrapped by DDP, or with parameters split by FSDP2."""
    if processes.kind == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        ids = [processes.device.index] if processes.device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
    if processes.kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(processes.device.type, (processes.count,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def accumulating(model: nn.Module, processes: Processes, last: bool) -> AbstractContextManager[Any]:
    """A context for a forward and its backward: only the last of a step exchanges gradients."""
    if processes.kind == "ddp" and not last:
        return model.no_sync()
    if processes.kind == "fsdp":
        model.set_requires_gradient_sync(last)
    return contextlib.nullcontext()


def settle(model: nn.Module, processes: Processes) -> None:
    """Call after a forward without a backward: FSDP2 splits the parameters again, which otherwise
    the backward does."""
    if processes.kind == "fsdp":
        model.reshard()
