"""Results that go where the caller says: `out=` and `inplace=`, as PyTorch's functions take them.

Either costs a copy: the operator writes a temporary of the result's size first.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from kernelwright.contract import arguments


def written(out: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """`out`, which holds the result now.

    Raises:
        TypeError: out is no tensor, or its dtype cannot hold the result's.
        ValueError: out has another shape (an empty one gets the result's) or device.
        RuntimeError: a gradient would be needed, which PyTorch does not give either.
    """
    arguments.tensor("out", out)
    if torch.is_grad_enabled() and (out.requires_grad or result.requires_grad):
        raise RuntimeError("out: gets no gradient; call without out where an argument requires one")
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
    """`input`, which holds `function(input)` now. The gradient is right, and the input's former
    values are kept for it."""
    wanted = torch.is_grad_enabled() and input.requires_grad
    return input.copy_(function(input.clone() if wanted else input))
