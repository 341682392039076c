"""bias_gelu: gelu(x + bias) in one pass; the gradients of x and of the bias in another."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec, torch_rungs


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(
            side,
            manual="the formula, one kernel per operator",
            native="PyTorch's addition, then its gelu",
        ),
        rungs.triton(
            "rows",
            side,
            "a tile of rows per program, column sums in registers",
            heuristics.fits,
            heuristics.ROWS_CONFIGS,
        ),
        rungs.cuda(
            "vec16",
            side,
            "16-byte vectors; in the backward, one strip of columns per block",
            heuristics.fits_strips if side else heuristics.fits_vec16,
            heuristics.STRIPS_CONFIGS if side else heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_strips if side else heuristics.choose_vec16,
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket
)
# with a batch dimension in front, each sample would have a bias of its own
_bias_gelu = bind(LADDER, LADDER_BACKWARD, formula=torch_rungs.native, vmap="loop")


def bias_gelu(input: torch.Tensor, bias: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """gelu(input + bias), the bias along the last dimension.

    Args:
        input: any shape but 0-d. float32, float16 and bfloat16 have GPU rungs; other floating types
            use PyTorch's kernels. Rows may have any stride.
        bias: of shape (input.shape[-1],).
        approximate: "none" for the error function, "tanh" for its approximation by tanh.

    Returns:
        A contiguous tensor of the input's shape and the promoted dtype; rounded once.

    Raises:
        TypeError: input or bias is not floating point.
        ValueError: bias is not one row of the input, or approximate is neither "none" nor "tanh".

    Source: gelu, Hendrycks and Gimpel, arXiv:1606.08415; its fusion, Megatron-LM, arXiv:1909.08053.
    """
    arguments.floating("input", input)
    arguments.floating("bias", bias)
    if bias.shape != input.shape[-1:] or not input.ndim:
        raise ValueError(
            f"bias: shape {tuple(bias.shape)} is not that of one row of input {tuple(input.shape)}"
        )
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: must be "none" or "tanh", is {approximate!r}')
    return _bias_gelu(input, bias, approximate)
