"""A trainer's state as named tensors, read and written by any number of processes."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from kernelwright.models import pretrained, tensor_file
from kernelwright.support.errors import UsageError

from . import checkpoint
from .trainer import Trainer

_STATES = ("step", "exp_avg", "exp_avg_sq", "master")


def optimizer_tensors(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The optimizer's states by parameter and name."""
    return {f"{name}.{which}": t for name, which, t in _states(trainer)}


def on_cpu(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Copies that training does not change."""
    return {name: t.detach().to("cpu", copy=True) for name, t in tensors.items()}


def random_states(device: torch.device) -> dict[str, str]:
    """The states of PyTorch's generators of this process."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {n: base64.b64encode(t.numpy().tobytes()).decode() for n, t in states.items()}


def set_random_states(states: dict[str, str], device: torch.device) -> None:
    def state(name: str) -> torch.Tensor:
        return torch.frombuffer(bytearray(base64.b64decode(states[name])), dtype=torch.uint8)

    torch.set_rng_state(state("cpu"))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(state("cuda"), device)


def save_shards(trainer: Trainer, folder: Path) -> None:
    """Write this process's shards of an FSDP model; to be called by every process."""
    from torch.distributed import checkpoint as dcp

    dcp.save(_named(trainer), checkpoint_id=folder / checkpoint.SHARDS)


def restore(trainer: Trainer, path: Path) -> None:
    """Set weights and the optimizer's states to those of a checkpoint, however it was written.

    Raises:
        UsageError: the checkpoint's model has other sizes.
    """
    if (path / checkpoint.SHARDS).is_dir():
        from torch.distributed import checkpoint as dcp

        _make_states(trainer)
        named = _named(trainer)
        dcp.load(named, checkpoint_id=path / checkpoint.SHARDS)
        return  # the tensors are read in place
    config = trainer.model.config
    if (path / pretrained.CONFIG).read_bytes() != pretrained.document(config):
        raise UsageError(f"{path} contains a model of other sizes than this run's")
    weights = pretrained.ours(config, tensor_file.read(path / checkpoint.MODEL), path)
    states = tensor_file.read(path / checkpoint.OPTIMIZER)
    if states:
        _make_states(trainer)
    with torch.no_grad():
        for name, p in trainer.model.named_parameters():
            _set(p, weights[name])
        for name, which, t in _states(trainer):
            _set(t, states[f"{name}.{which}"])


def whole(trainer: Trainer) -> dict[str, torch.Tensor]:
    """The model's parameters, gathered if they are split; to be called by every process."""
    tensors: dict[str, torch.Tensor] = {}
    for name, p in trainer.model.named_parameters():
        t = p.detach()
        tensors[name] = (t.full_tensor() if isinstance(t, DTensor) else t).to("cpu", copy=True)
    return tensors


def _states(trainer: Trainer) -> Iterator[tuple[str, str, torch.Tensor]]:
    for name, p in trainer.model.named_parameters():
        for which in _STATES:
            if which in trainer.optimizer.state.get(p, {}):
                yield name, which, trainer.optimizer.state[p][which]


def _named(trainer: Trainer) -> dict[str, Any]:
    model = {f"model.{name}": p.detach() for name, p in trainer.model.named_parameters()}
    return model | {f"optimizer.{n}": t for n, t in optimizer_tensors(trainer).items()}


def _make_states(trainer: Trainer) -> None:
    """Create the states that the optimizer has after its first step, as zeros."""
    wide = trainer.settings.precision == "bfloat16"
    for p in trainer.model.parameters():
        if trainer.optimizer.state[p]:
            continue
        dtype = torch.float32 if wide else p.dtype
        state = {n: torch.zeros_like(p, dtype=dtype) for n in ("exp_avg", "exp_avg_sq")}
        state["step"] = torch.zeros((), dtype=torch.float32, device=p.device)
        if wide:
            state["master"] = torch.zeros_like(p, dtype=torch.float32)
        trainer.optimizer.state[p] = state


def _set(t: torch.Tensor, value: torch.Tensor) -> None:
    if isinstance(t, DTensor):
        on_device = value.to(t.device)
        value = distribute_tensor(on_device, t.device_mesh, t.placements, src_data_rank=None)
    t.copy_(value)
