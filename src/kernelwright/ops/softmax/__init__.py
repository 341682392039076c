"""softmax along one dimension: the ladder from five kernels to one pass at DRAM speed."""

from __future__ import annotations

import torch
from torch.nn.functional import _get_softmax_dim

from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import bind

from . import choose, spec


def _rungs(backward: str = "") -> tuple[Rung, ...]:
    """The ladder from the bottom up; `backward` is the suffix of the backward's entries."""
    return (
        Rung(
            "manual",
            "torch",
            f"torch_rungs:manual{backward}",
            "the formula, a kernel a line",
            serves=False,
        ),
        Rung("native", "torch", f"torch_rungs:native{backward}", "PyTorch's own operator"),
        Rung(
            "compiled",
            "inductor",
            f"torch_rungs:manual{backward}",
            "the formula, fused by torch.compile",
        ),
        Rung(
            "triton_row",
            "triton",
            f"triton_row:plan{backward}",
            "one row, or several short ones, in a program's registers",
            supports=choose.fits_triton_row,
            configs=choose.ROW_CONFIGS,
            heuristic=choose.choose_triton_row,
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, choose.order, choose.bucket, "peers:PEERS")
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, choose.order, choose.bucket, "peers:PEERS"
)
_softmax = bind(LADDER, LADDER_BACKWARD)


def softmax(
    input: torch.Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """exp(x - max x) / sum(exp(x - max x)) along `dim`, as torch.nn.functional.softmax.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types are
            served by PyTorch.
        dim: the dimension whose elements sum to 1. None warns and guesses, as PyTorch does.
        dtype: cast the input to it first. Under CUDA autocast, 16-bit input is cast to float32.

    Returns:
        A tensor of the input's shape. A row that is all -inf, or holds +inf or NaN, is NaN.

    Raises:
        TypeError: input is not floating point.
        IndexError: dim is out of range.
    """
    ndim = input.ndim
    if dim is None:
        dim = _get_softmax_dim("softmax", ndim, _stacklevel)
    if not -ndim <= dim < ndim:
        if ndim == 0 and dim in (-1, 0):
            return softmax(input.unsqueeze(0), 0, dtype=dtype).squeeze(0)
        raise IndexError(f"dim: {dim} is out of range for a tensor of {ndim} dimensions")
    if dtype is None and torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
        dtype = torch.float32
    if dtype is not None:
        input = input.to(dtype)
    if not input.is_floating_point():
        raise TypeError(f"input: must be floating point, is {input.dtype}")
    if dim >= 0:
        dim -= (
            ndim  # counted from the back, a batch dimension that vmap puts in front changes nothing
        )
    if dim != -1 and input.stride(dim) == 1:
        return _softmax(input.movedim(dim, -1), -1).movedim(-1, dim)
    return _softmax(input, dim)
