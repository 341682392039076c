"""grouped_mm and grouped_swiglu: groups of rows, each multiplied by its own matrix."""

from __future__ import annotations

import torch

from kernelwright.contract import arguments

from .derivatives import product, swiglu
from .ladder import LADDER, LADDER_SWIGLU

__all__ = ["LADDER", "LADDER_SWIGLU", "grouped_mm", "grouped_swiglu"]


def grouped_mm(input: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """Rows offsets[e - 1] to offsets[e] of the input times weight[e], as torch.nn.functional's
    grouped_mm of a matrix by a batch of matrices. Source: as torch.nn.functional.grouped_mm.

    Args:
        input: shape (T, K).
        weight: shape (E, K, N), in any order of memory.
        offsets: shape (E,), int32, ascending: the ends of the groups. The last one must be T. On a
            GPU this is not checked, because the host would have to wait, and rows after the last
            offset are not written.

    Returns:
        Shape (T, N).

    Raises:
        TypeError: an argument has another dtype.
        ValueError: a shape does not fit.
    """
    _check(input, weight, offsets)
    return product(input, weight, offsets)


def grouped_swiglu(
    input: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor
) -> torch.Tensor:
    """silu(g) u, where g and u are the halves of the columns of `grouped_mm`. Source: as
    torch.nn.functional's grouped_mm, chunk and silu, rounded once.

    Args:
        input: shape (T, K).
        weight: shape (E, K, 2 N): the columns of the gate, then those of the values.
        offsets: as in `grouped_mm`.

    Returns:
        Shape (T, N).

    Raises:
        TypeError: an argument has another dtype.
        ValueError: a shape does not fit.
    """
    _check(input, weight, offsets)
    if weight.shape[2] % 2:
        raise ValueError(f"weight: {weight.shape[2]} columns cannot be halved into gate and values")
    return swiglu(input, weight, offsets)


def _check(input: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor) -> None:
    arguments.floating("input", input)
    arguments.floating("weight", weight)
    arguments.tensor("offsets", offsets)
    if input.ndim != 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2")
    if weight.ndim != 3 or weight.shape[1] != input.shape[1]:
        raise ValueError(
            f"weight: has shape {tuple(weight.shape)}, should be (E, {input.shape[1]}, N)"
        )
    if weight.dtype != input.dtype:
        raise TypeError(f"weight: is {weight.dtype}, should be {input.dtype} as the input")
    if offsets.dtype != torch.int32:
        raise TypeError(f"offsets: is {offsets.dtype}, should be torch.int32")
    if tuple(offsets.shape) != (weight.shape[0],) or weight.shape[0] == 0:
        raise ValueError(f"offsets: has shape {tuple(offsets.shape)}, should be ({len(weight)},)")
    if offsets.device.type == "cpu" and not _plain_check(offsets, input.shape[0]):
        raise ValueError(f"offsets: should ascend to {input.shape[0]}, the rows of the input")


def _plain_check(offsets: torch.Tensor, rows: int) -> bool:
    """Check offsets whose values the host can read; under tracing it cannot."""
    if torch.compiler.is_compiling() or type(offsets) is not torch.Tensor:
        return True
    bounds = [0, *offsets.tolist()]
    return bounds == sorted(bounds) and bounds[-1] == rows
