"""Checks of the arguments that losses over classes share; each error begins with its name."""

from __future__ import annotations

import warnings

import torch

from kernelwright.contract import arguments

from ._terms import Form

REDUCTIONS = ("none", "mean", "sum")


def classes(shape, dtype, target, weight, reduction):
    """(target, weight) in the form that kernels read, for logits of a given shape and dtype."""
    arguments.tensor("target", target)
    if target.is_floating_point():
        raise TypeError("target: must be class indices here, kw.cross_entropy takes probabilities")
    if target.dtype not in (torch.int64, torch.int32):
        if target.dtype != torch.uint8:
            raise TypeError(f"target: must be int64, int32 or uint8, is {target.dtype}")
        target = target.long()
    if target.shape != shape[:-1]:
        raise ValueError(f"target: has shape {tuple(target.shape)}, should be {tuple(shape[:-1])}")
    if weight is not None:
        class_weight(weight, shape[-1])
        if weight.requires_grad:
            raise ValueError("weight: is not differentiable; detach it")
        weight = weight.to(torch.promote_types(dtype, torch.float32))
    if reduction not in REDUCTIONS:
        check_reduction(reduction)
    return target.contiguous(), weight


def no_ignored_class(ignore_index) -> None:
    """Raise ValueError if a class is to be ignored among class probabilities, as PyTorch does."""
    if ignore_index is not None and ignore_index >= 0:
        raise ValueError(
            f"ignore_index: {ignore_index} names a class, but target is class probabilities"
        )


def not_jagged(input) -> None:
    """Raise NotImplementedError for a nested input: a loss is computed over all tokens."""
    if input.is_nested:
        raise NotImplementedError("input: is jagged; pass values() of the input and of the target")


def class_weight(weight, classes) -> None:
    """Raise ValueError unless weight is one number per class, or None."""
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"weight: has shape {tuple(weight.shape)}, should be {(classes,)}")


def check_reduction(reduction) -> None:
    """Raise ValueError unless reduction is known."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction: must be one of {', '.join(REDUCTIONS)}, is {reduction!r}")


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that PyTorch's deprecated arguments specify, if one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    warnings.warn("size_average and reduce: are deprecated, use reduction", stacklevel=3)
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def form(ignore_index, label_smoothing, z_loss, softcap) -> Form:
    for name, value in (("label_smoothing", label_smoothing), ("z_loss", z_loss)):
        if type(value) is not float:
            arguments.real(name, value)
    if softcap is not None:
        arguments.real("softcap", softcap)
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
