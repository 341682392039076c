"""scaled_mm: products of 8-bit floating-point operands with scales."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec
from .spec import BLOCK, FP8, KINDS, MOST

__all__ = ["LADDER", "quantize_fp8", "scaled_mm"]

RUNGS = (
    *rungs.pytorch(
        manual="float32 operands in memory, then a product",
        native="cuBLAS's product of 8-bit operands",
        compiled=None,
    ),
    Rung(
        "cuda_wgmma",
        "cuda",
        "cuda:wgmma",
        "Hopper's tensor cores with their 14-bit sums; scales applied to the result",
        supports=heuristics.fits_fast,
        configs=heuristics.FAST_CONFIGS,
        heuristic=heuristics.choose_fast,
        sources=("cuda_wgmma.cu",),
    ),
    Rung(
        "cuda_promoted",
        "cuda",
        "cuda:promoted",
        "sums of 128 products are added in float32, scaled per block if needed",
        supports=heuristics.fits_promoted,
        configs=heuristics.PROMOTED_CONFIGS,
        heuristic=heuristics.choose_promoted,
        sources=("cuda_wgmma.cu",),
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket)
_product = bind(LADDER, vmap="loop")


def scaled_mm(
    input: torch.Tensor,
    other: torch.Tensor,
    scale_input: torch.Tensor,
    scale_other: torch.Tensor,
    *,
    fast_accum: bool = False,
) -> torch.Tensor:
    """(scale_input input) (scale_other other), as torch._scaled_mm: float8_e4m3fn to bfloat16.

    Args:
        input: shape (M, K).
        other: shape (K, N), usually a transposed weight; fast if K is contiguous.
        scale_input, scale_other: float32. One element each; shapes (M, 1) and (1, N); or, for
            blocks of 128 along K and N, (M, ceil(K / 128)) and (ceil(K / 128), ceil(N / 128)).
        fast_accum: accumulate over all of K on the tensor cores, which keep about 14 bits.
            Otherwise, and always with scales per block, sums are added in float32 after at most 128
            products.

    Raises:
        TypeError: an argument has another dtype.
        ValueError: a shape does not fit.
    """
    for name, t, dtype in (("input", input, FP8), ("other", other, FP8),
                           ("scale_input", scale_input, torch.float32),
                           ("scale_other", scale_other, torch.float32)):  # fmt: skip
        arguments.tensor(name, t)
        if t.dtype != dtype:
            raise TypeError(f"{name}: is {t.dtype}, should be {dtype}")
    if input.ndim != 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2")
    if other.ndim != 2 or other.shape[0] != input.shape[1]:
        raise ValueError(
            f"other: has shape {tuple(other.shape)}, which does not fit the input's "
            f"{tuple(input.shape)}"
        )
    kind = _kind(input, other, scale_input, scale_other)
    of_other = scale_other.t()
    if kind == "tensor":
        scale_input, of_other = scale_input.view(1, 1), scale_other.view(1, 1)
    return _product(input, other.t(), scale_input, of_other.contiguous(), kind, fast_accum)


def _kind(a, b, scale_a, scale_b) -> str:
    (m, k), n = a.shape, b.shape[1]
    blocks = -(-k // BLOCK)
    if scale_a.numel() == scale_b.numel() == 1:
        return "tensor"
    expected = {"row": ((m, 1), (1, n)), "block": ((m, blocks), (blocks, -(-n // BLOCK)))}
    for kind, shapes in expected.items():
        if (tuple(scale_a.shape), tuple(scale_b.shape)) == shapes:
            return kind
    raise ValueError(
        f"scale_input, scale_other: have shapes {tuple(scale_a.shape)} and {tuple(scale_b.shape)}, "
        f"should be one element each, {expected['row']} or {expected['block']}"
    )


def quantize_fp8(input: torch.Tensor, per: str = "tensor") -> tuple[torch.Tensor, torch.Tensor]:
    """Convert a matrix to float8_e4m3fn values and scales, whose product approximates the input.

    Source: the largest magnitude of each group becomes 448, as in NVIDIA's Transformer Engine
    ("current scaling").

    Args:
        input: shape (M, K).
        per: "tensor": one scale, of shape (1, 1). "row": one per row, (M, 1). "block": one per 1 x
            128 elements, (M, ceil(K / 128)). "tile": one per 128 x 128 elements of a weight,
            (ceil(M / 128), ceil(K / 128)).

    Returns:
        The 8-bit values and the float32 scales. Pass them to `scaled_mm` unchanged for its input,
        and transposed for its other operand.

    Raises:
        TypeError: the input is not floating point.
        ValueError: it is not a matrix, or there is no such `per`.
    """
    arguments.floating("input", input)
    if input.ndim != 2:
        raise ValueError(f"input: has {input.ndim} dimensions, should have 2")
    m, k = input.shape
    sizes = {"tensor": (m, k), "row": (1, k), "block": (1, BLOCK), "tile": (BLOCK, BLOCK)}
    if per not in sizes:
        raise ValueError(f"per: {per!r} is not one of {', '.join(sizes)}")
    high, wide = (max(s, 1) for s in sizes[per])
    down, across = -(-m // high), -(-k // wide)
    down, across = max(down, int(per == "tensor")), max(across, int(per in KINDS[:2]))
    padded = input.new_zeros(down * high, across * wide, dtype=torch.float32)
    padded[:m, :k] = input
    groups = padded.view(down, high, across, wide)
    largest = groups.abs().amax((1, 3))
    scale = torch.where(largest > 0, largest / MOST, torch.ones_like(largest))
    values = (groups / scale[:, None, :, None]).clamp(-MOST, MOST).to(FP8)
    return values.view(down * high, across * wide)[:m, :k].contiguous(), scale
