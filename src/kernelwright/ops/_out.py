"""Results that are written to a given tensor: `out=` and `inplace=`, as in PyTorch's functions.

Either costs a copy, because the operator first writes a temporary of the size of the result.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelwright.contract import arguments
from kernelwright.dispatch import recorded


def written(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """`out`, after `result` has been copied to it.

    Raises:
        TypeError: out is not a tensor, or its dtype cannot hold the dtype of the result.
        ValueError: out has another shape (an empty one is resized) or another device.
        RuntimeError: a gradient would be needed, which PyTorch does not support here either.
    """
    arguments.tensor("out", out)
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise RuntimeError("out: is not differentiable; call without out if a gradient is required")
    if not torch.can_cast(result.dtype, out.dtype):
        raise TypeError(f"out: is {out.dtype}, which cannot hold a result of {result.dtype}")
    if out.device != result.device:
        raise ValueError(f"out: is on {out.device}, the result on {result.device}")
    if out.shape != result.shape:
        if out.numel():
            raise ValueError(
                f"out: has shape {tuple(out.shape)}, should be {tuple(result.shape)} or empty"
            )
        out.resize_(result.shape)
    return out.copy_(result)


def replaced(input: torch.Tensor, function: Callable) -> torch.Tensor:
    """`input`, after `function(input)` has been copied to it. Its gradient is correct; for this the
    former values of the input are saved."""
    return input.copy_(function(input.clone() if recorded(input) else input))
