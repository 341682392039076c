"""pad: a tensor inside a larger one that is constant everywhere else."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

RUNGS = (
    Rung(
        "manual",
        "torch",
        "torch_rungs:manual",
        "a fill, then a copy into its box",
        dispatchable=False,
    ),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    rungs.cuda("naive", "", "one element per thread", heuristics.fits, heuristics.THREADS),
    rungs.triton("block", "", "a block per program", heuristics.fits, heuristics.TRITON),
    rungs.cuda("vec16", "", "16-byte stores for any widths", heuristics.fits, heuristics.VEC16),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
_pad = bind(LADDER, gradient=spec.gradient, vmap="leading")


def pad(
    input: torch.Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> torch.Tensor:
    """input with a margin of a constant, as torch.nn.functional.pad.

    Args:
        input: any shape, strides and dtype; float32, float16 and bfloat16 have GPU rungs.
        pad: (before, after) of the last dimension, then of the one before it, and so on; negative
            amounts remove elements.
        mode: must be "constant".
        value: value of the padding, 0 by default; read at each call.

    Returns:
        A contiguous tensor.

    Raises:
        TypeError: input is not a tensor, or pad is not a sequence of integers.
        ValueError: pad has an odd length, has more pairs than input has dimensions, or removes more
            elements than there are.
        NotImplementedError: mode is not "constant".
    """
    arguments.tensor("input", input)
    if mode != "constant":
        raise NotImplementedError(f"mode: {mode!r} is not implemented; use torch.nn.functional")
    amounts = _checked(input, pad)
    arguments.real("value", 0.0 if value is None else value)
    for d, (before, after) in enumerate(spec.amounts(input.ndim, amounts)):
        left = input.shape[d] + min(before, 0) + min(after, 0)
        if left < 0:
            raise ValueError(
                f"pad: takes {-before - after} elements from dimension {d}, which has "
                f"{input.shape[d]}"
            )
        if left < input.shape[d]:
            input = input.narrow(d, max(-before, 0), left)
    return _pad(input, [max(n, 0) for n in amounts], 0.0 if value is None else float(value))


def _checked(input: torch.Tensor, pad: Sequence[int]) -> list[int]:
    """The amounts as a list.

    Raises:
        TypeError, ValueError: as in `pad`.
    """
    if not isinstance(pad, Sequence) or not all(isinstance(n, int) for n in pad):
        raise TypeError(f"pad: must be a sequence of integers, is {pad!r}")
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ValueError(
            f"pad: has {len(pad)} numbers; must have two for each of up to {input.ndim} dimensions"
        )
    return list(pad)
