"""gelu: the ladder from eleven kernels to one at copy speed."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(side, manual="the formula, one kernel per operator"),
        rungs.numba(
            "thread",
            side,
            "one element per thread, in Python",
            heuristics.fits_numba,
            heuristics.THREAD_CONFIGS,
        ),
        rungs.cuda(
            "thread",
            side,
            "one element per thread",
            heuristics.fits_flat,
            heuristics.THREAD_CONFIGS,
        ),
        rungs.triton(
            "block",
            side,
            "a block of elements per program, vectorized by the compiler",
            heuristics.fits_flat,
            heuristics.BLOCK_CONFIGS,
            heuristic=heuristics.choose_block,
        ),
        rungs.cuda(
            "vec16",
            side,
            "16-byte vectors, several in flight, one exponential instead of erf or tanh",
            heuristics.fits_vec16,
            heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_vec16,
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket
)


def _formula(x, approximate):
    """The formula that torch.compile sees: Inductor decomposes it and fuses it with adjacent
    operators."""
    return torch.nn.functional.gelu(x, approximate=approximate)


_gelu = bind(LADDER, LADDER_BACKWARD, formula=_formula)


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x Phi(x), where Phi is the normal distribution function, as torch.nn.functional.gelu.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types use
            PyTorch's kernels.
        approximate: "none" for the error function, "tanh" for its approximation by tanh.

    Returns:
        A tensor of the input's shape and dtype, and of its strides if it is dense.

    Raises:
        TypeError: input is not floating point.
        ValueError: approximate is neither "none" nor "tanh".
    """
    arguments.floating("input", input)
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: must be "none" or "tanh", is {approximate!r}')
    return _gelu(input, approximate)
