"""gelu: the ladder from eleven kernels to one at copy speed."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments
from kernelwright.dispatch import bind

from . import choose, spec


def _rungs(backward: str = "") -> tuple[Rung, ...]:
    """The ladder from the bottom up; `backward` is the suffix of the backward's entries."""
    return (
        Rung(
            "manual",
            "torch",
            f"torch_rungs:manual{backward}",
            "the formula, a kernel an operator",
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
            "numba_thread",
            "numba",
            f"numba_thread:plan{backward}",
            "one element a thread, in Python",
            supports=choose.fits_numba,
            configs=choose.THREAD_CONFIGS,
            serves=False,
        ),
        Rung(
            "cuda_thread",
            "cuda",
            f"cuda:thread{backward}",
            "one element a thread",
            supports=choose.fits_flat,
            configs=choose.THREAD_CONFIGS,
            sources=("cuda_thread.cu",),
        ),
        Rung(
            "triton_block",
            "triton",
            f"triton_block:plan{backward}",
            "a block of elements a program, vectorised by the compiler",
            supports=choose.fits_flat,
            configs=choose.BLOCK_CONFIGS,
            heuristic=choose.choose_block,
        ),
        Rung(
            "cuda_vec16",
            "cuda",
            f"cuda:vec16{backward}",
            "16-byte vectors, several in flight, one exponential instead of erf or tanh",
            supports=choose.fits_vec16,
            configs=choose.VEC16_CONFIGS,
            heuristic=choose.choose_vec16,
            sources=("cuda_vec16.cu",),
        ),
    )


LADDER = Ladder(spec.FORWARD, _rungs(), __name__, choose.order, choose.bucket)
LADDER_BACKWARD = Ladder(spec.BACKWARD, _rungs("_backward"), __name__, choose.order, choose.bucket)


def _formula(x, approximate):
    """What torch.compile sees: Inductor decomposes it and fuses it with its neighbours."""
    return torch.nn.functional.gelu(x, approximate=approximate)


_gelu = bind(LADDER, LADDER_BACKWARD, formula=_formula)


def gelu(input: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """x Phi(x), Phi the normal distribution, as torch.nn.functional.gelu.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types are
            served by PyTorch.
        approximate: "none" for the error function, "tanh" for its approximation by tanh.

    Returns:
        A tensor of the input's shape, dtype and, where it is dense, strides.

    Raises:
        TypeError: input is not floating point.
        ValueError: approximate is neither "none" nor "tanh".
    """
    arguments.floating("input", input)
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: must be "none" or "tanh", is {approximate!r}')
    return _gelu(input, approximate)
