"""accumulate_weight_grad_: the gradient of a linear layer's weight, added to float32 sums."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

__all__ = ["LADDER", "accumulate_weight_grad_"]

RUNGS = (
    *rungs.pytorch(
        manual="a float32 product, then an addition",
        native="cuBLAS with a float32 result, then an addition",
        compiled=None,
    ),
    Rung(
        "cuda_wgmma",
        "cuda",
        "cuda:wgmma",
        "Hopper's tensor cores; the epilogue adds the sums to memory",
        supports=heuristics.fits,
        configs=heuristics.CONFIGS,
        heuristic=heuristics.choose,
        sources=("cuda_wgmma.cu",),
    ),
    Rung(
        "cuda_reduce",
        "cuda",
        "cuda_reduce:reduce",
        "the L2 cache adds the sums to memory",
        supports=heuristics.fits,
        configs=heuristics.REDUCE_CONFIGS,
        heuristic=heuristics.choose_reduce,
        sources=("cuda_reduce.cu",),
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket)
_accumulate = bind(LADDER, vmap="loop")


def accumulate_weight_grad_(
    main_grad: torch.Tensor, grad_output: torch.Tensor, input: torch.Tensor
) -> torch.Tensor:
    """main_grad += grad_output^T input, in float32. Source: as Megatron-LM's gradient accumulation
    fusion (wgrad_gemm_accum_fp32).

    Args:
        main_grad: shape (N, K), float32; changed in place.
        grad_output: shape (*, N). float16 and bfloat16 have a GPU rung.
        input: shape (*, K), of grad_output's dtype.

    Returns:
        main_grad.

    Raises:
        TypeError: an argument is not floating point, or of another dtype.
        ValueError: a shape does not fit, or main_grad requires a gradient.
    """
    for name, t in (("main_grad", main_grad), ("grad_output", grad_output), ("input", input)):
        arguments.floating(name, t)
    if main_grad.dtype != torch.float32:
        raise TypeError(f"main_grad: is {main_grad.dtype}, should be torch.float32")
    if input.dtype != grad_output.dtype:
        raise TypeError(f"input: is {input.dtype}, should be {grad_output.dtype} as grad_output")
    if main_grad.requires_grad and torch.is_grad_enabled():
        raise ValueError("main_grad: requires a gradient, and would be changed in place")
    if grad_output.ndim == 0 or grad_output.shape[:-1] != input.shape[:-1]:
        raise ValueError(
            f"input: has shape {tuple(input.shape)}, which does not fit grad_output's "
            f"{tuple(grad_output.shape)}"
        )
    expected = (grad_output.shape[-1], input.shape[-1])
    if tuple(main_grad.shape) != expected:
        raise ValueError(f"main_grad: has shape {tuple(main_grad.shape)}, should be {expected}")
    tokens = grad_output.shape[:-1].numel()
    rows = (t.detach().reshape(tokens, t.shape[-1]) for t in (grad_output, input))
    _accumulate(main_grad, *rows)
    return main_grad
