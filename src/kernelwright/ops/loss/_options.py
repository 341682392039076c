"""Checks of the arguments that losses over classes share; each error begins with its name."""

from __future__ import annotations

import torch

from kernelwright.contract import arguments

from ._terms import Form

REDUCTIONS = ("none", "mean", "sum")


def classes(shape, dtype, target, weight, reduction):
    """(target, weight) for logits of a shape and dtype, as kernels read them."""
    arguments.tensor("target", target)
    if target.is_floating_point():
        raise TypeError("target: class probabilities are not implemented, give class indices")
    if target.dtype not in (torch.int64, torch.int32):
        if target.dtype != torch.uint8:
            raise TypeError(f"target: must be int64, int32 or uint8, is {target.dtype}")
        target = target.long()
    if target.shape != shape[:-1]:
        raise ValueError(f"target: has shape {tuple(target.shape)}, should be {tuple(shape[:-1])}")
    if weight is not None:
        if weight.shape != shape[-1:]:
            raise ValueError(
                f"weight: has shape {tuple(weight.shape)}, should be {tuple(shape[-1:])}"
            )
        weight = weight.detach().to(torch.promote_types(dtype, torch.float32))
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: must be one of {', '.join(REDUCTIONS)}, is {reduction!r}")
    return target.contiguous(), weight


def form(ignore_index, label_smoothing, z_loss, softcap) -> Form:
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"label_smoothing: must be between 0 and 1, is {label_smoothing}")
    if softcap is not None and not softcap > 0:
        raise ValueError(f"softcap: must be positive, is {softcap}")
    return Form(
        ignore_index,
        label_smoothing,
        z_loss,
        softcap or 0.0,
        smooth=label_smoothing != 0,
        cap=softcap is not None,
    )
