"""dot: one sum of products, from 16-bit atomic additions to block partials."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec


def _atomics(trick: str, idea: str) -> Rung:
    return rungs.cuda(
        trick, "", idea, heuristics.fits_atomics, heuristics.ATOMICS,
        sources=("dot.cuh",), dispatchable=False, deterministic=False,
    )  # fmt: skip


RUNGS = (
    *rungs.pytorch(manual="products in memory, and their sum", compiled=None),
    _atomics("atomics", "each block adds its sum with a 16-bit atomic"),
    _atomics("half2", "two 16-bit numbers of a block in one atomic"),
    _atomics("fast_atomic", "one 16-bit number as half of a pair"),
    rungs.cuda(
        "last_block",
        "",
        "the last block adds the blocks' sums, in float32",
        heuristics.fits,
        heuristics.BLOCKS,
    ),
)
RUNGS_BACKWARD = (
    *rungs.pytorch("_backward", native="two products", compiled=None),
    rungs.cuda(
        "vec16", "_backward", "both products in one pass", heuristics.fits, heuristics.THREADS
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, RUNGS_BACKWARD, __name__, heuristics.order_backward, heuristics.bucket
)
_dot = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def dot(
    input: torch.Tensor, tensor: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The sum of the products of two one-dimensional tensors, as torch.dot.

    Args:
        input, tensor: one-dimensional, of the same size and dtype. float32, float16 and bfloat16
            have GPU rungs, which accumulate in float32. Under CUDA autocast, both are cast to
            float32 if one of them is float32.
        out: a 0-d tensor, or an empty one, to which the result is copied; no gradient is possible
            with it.

    Returns:
        A 0-d tensor of the inputs' dtype.

    Raises:
        TypeError: an argument is not a tensor, or the dtypes differ.
        ValueError: an argument is not one-dimensional, or the sizes differ.
    """
    arguments.tensor("input", input)
    arguments.tensor("tensor", tensor)
    for name, t in (("input", input), ("tensor", tensor)):
        if t.ndim != 1:
            raise ValueError(f"{name}: must have one dimension, has {t.ndim}")
    if input.shape != tensor.shape:
        raise ValueError(f"tensor: has {tensor.numel()} elements, input {input.numel()}")
    input, tensor = autocast.widest(input, tensor)
    if input.dtype != tensor.dtype:
        raise TypeError(f"tensor: is {tensor.dtype}, input {input.dtype}")
    y = _dot(input, tensor)
    return y if out is None else written(out, y)
