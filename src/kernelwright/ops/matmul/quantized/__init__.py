"""quantized_linear: products with weights of 4 and 8 bits, for few rows of x."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import Rule, bind
from kernelwright.ops.matmul.gemm import matmul
from kernelwright.ops.matmul.gemm.few_rows import cluster_choice
from kernelwright.ops.matmul.gemm.few_rows.tiling import CONFIGS
from kernelwright.ops.matmul.gemm.stream import tiling
from kernelwright.ops.reduce.sum import sum

from . import heuristics, spec, stream_choice
from .weights import GROUP, QuantizedWeight, dequantized, quantize, read_awq, read_gptq

__all__ = [
    "LADDER",
    "QuantizedWeight",
    "quantize",
    "quantized_linear",
    "read_awq",
    "read_gptq",
]

RUNGS = (
    *rungs.pytorch(
        manual="a float32 weight in memory, then a product",
        native="a weight of x's dtype in memory, then cuBLAS",
        compiled="the same under torch.compile",
    ),
    rungs.cuda(
        "warp",
        "",
        "few rows: one warp per row of the weight, converted to float32 in registers",
        heuristics.fits_warp,
        ({},),
        dispatchable=False,
    ),
    rungs.cuda(
        "few_rows",
        "",
        "up to 64 rows: tensor cores; the weight's integers are converted in registers",
        heuristics.fits_tensor_cores,
        CONFIGS,
    ),
    Rung(
        "cuda_few_rows_cluster",
        "cuda",
        "cuda_cluster:plan",
        "up to 64 rows: k shared by a cluster, each lane copies what it multiplies",
        supports=heuristics.fits_cluster,
        configs=cluster_choice.CONFIGS,
        sources=("cuda_few_rows_cluster.cu",),
        heuristic=heuristics.choose_cluster,
    ),
    Rung(
        "cuda_few_rows_wgmma",
        "cuda",
        "cuda_cluster:wgmma",
        "up to 64 rows: Hopper's tensor cores, the weight in registers, x in shared memory",
        supports=heuristics.fits_wgmma,
        configs=cluster_choice.WGMMA_CONFIGS,
        sources=("cuda_few_rows_wgmma.cu",),
        heuristic=heuristics.choose_wgmma,
    ),
    Rung(
        "cuda_few_rows_stream",
        "cuda",
        "cuda_stream:plan",
        "up to 64 rows: one warp streams the weight by the copy engine",
        supports=stream_choice.fits,
        configs=tiling.CONFIGS,
        sources=("cuda_few_rows_stream.cu",),
        heuristic=stream_choice.choose,
    ),
)
LADDER = Ladder(
    spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket, "peers:PEERS"
)


def _save(ctx, inputs, output):
    x, packed, scales, _, ctx.bits = inputs
    ctx.save_for_backward(packed, scales)
    ctx.dtype = x.dtype


def _backward(ctx, gy):
    packed, scales = ctx.saved_tensors
    of_x, _, _, of_bias = ctx.needs_input_grad[:4]
    gx = matmul(gy, dequantized(packed, scales, ctx.bits, ctx.dtype)) if of_x else None
    return gx, None, None, sum(gy, 0) if of_bias else None, None


_forward = bind(LADDER, rule=Rule(_save, _backward), vmap="loop", differentiable="native")


def quantized_linear(
    input: torch.Tensor, weight: QuantizedWeight, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """input weight^T + bias, as torch.nn.functional.linear, with a weight of 4 or 8 bits.

    Args:
        input: shape (*, K).
        weight: of shape (N, K), from `quantize`, `read_awq` or `read_gptq`.
        bias: shape (N,).

    Returns:
        Shape (*, N), of the input's dtype, or autocast's dtype under autocast. Differentiable with
        respect to `input` and `bias`; the weight is constant.

    Raises:
        TypeError: an argument has another type or dtype.
        ValueError: a shape does not fit.
    """
    arguments.floating("input", input)
    if not isinstance(weight, QuantizedWeight):
        raise TypeError(f"weight: must be a QuantizedWeight, is a {type(weight).__name__}")
    packed, scales, bits = weight
    n, k = packed.shape[0], packed.shape[1] * 8 // bits
    if input.ndim == 0 or input.shape[-1] != k:
        raise ValueError(f"input: has shape {tuple(input.shape)}, should be (*, {k})")
    if tuple(scales.shape) != (k // GROUP, n, 2):
        raise ValueError(f"weight: scales have shape {tuple(scales.shape)}")
    if bias is not None:
        arguments.floating("bias", bias)
        if tuple(bias.shape) != (n,):
            raise ValueError(f"bias: has shape {tuple(bias.shape)}, should be ({n},)")
    input, bias = autocast.cast(input, input, bias)
    if bias is not None and bias.dtype != input.dtype:
        raise TypeError(f"bias: is {bias.dtype}, should be {input.dtype} as the input")
    rows = math.prod(input.shape[:-1])
    x = input.reshape(rows, k)
    y = _forward(x, packed, scales, bias, bits)
    return y.view(*input.shape[:-1], n)
