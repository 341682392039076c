"""Weights of 4 and 8 bits: their memory layout, how they are computed, and the layouts of other
libraries.

A row of k weights is divided into groups of 128; weight = (v - zero) scale, with v and zero in [0,
2**bits). With 8 bits, v are bytes in order. With 4 bits, eight consecutive values v0 ... v7 share
four bytes, as nibbles from the lowest: v0 v2 v4 v6 v1 v3 v5 v7. After a shift by 0, 4, 8 or 12, a
mask of 0x000f000f therefore extracts two consecutive values from a 32-bit word, one in each half.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from kernelwright.contract import arguments

GROUP = 128
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # of eight consecutive values in four bytes
#: Column of each nibble, from the lowest, in AWQ's words of eight columns.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
#: What is added to the zero points stored in each format of GPTQ's checkpoints.
GPTQ_FORMATS = {"gptq": 1, "gptq_v2": 0}


class QuantizedWeight(NamedTuple):
    """A weight (N, K) of a linear layer.

    Attributes:
        packed: shape (N, K * bits / 8), uint8.
        scales: shape (K / 128, N, 2): scale and zero point of each group.
        bits: 4 or 8.
    """

    packed: torch.Tensor
    scales: torch.Tensor
    bits: int

    def dequantized(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The weight as floating-point numbers, by default of the scales' dtype."""
        return dequantized(self.packed, self.scales, self.bits, dtype or self.scales.dtype)


def quantize(
    weight: torch.Tensor, bits: int = 4, dtype: torch.dtype | None = None
) -> QuantizedWeight:
    """Round a weight to the nearest of 16 or 256 evenly spaced values for each group of 128.

    Args:
        weight: shape (N, K), K a multiple of 128; finite.
        bits: 4 or 8.
        dtype: of the scales, and so of the inputs that it is used with; by default the weight's.

    Source: round to nearest, as in Dettmers et al., LLM.int8(), arXiv:2208.07339.

    Raises:
        TypeError: the weight is not a floating-point tensor.
        ValueError: its shape does not fit or it is not finite; or there is no such `bits`.
    """
    arguments.floating("weight", weight)
    if bits not in (4, 8):
        raise ValueError(f"bits: {bits} is neither 4 nor 8")
    if weight.ndim != 2 or weight.shape[1] % GROUP:
        raise ValueError(
            f"weight: has shape {tuple(weight.shape)}, should be (N, K), K a multiple of {GROUP}"
        )
    if not bool(weight.isfinite().all()):
        raise ValueError("weight: has elements that are not finite")
    return QuantizedWeight(*quantized(weight.detach(), bits, dtype or weight.dtype), bits)


def quantized(w: torch.Tensor, bits: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """(packed, scales) of a weight. Zero is one of the values of each group, and values are rounded
    for the scale as it is stored."""
    n, k = w.shape
    most = 2**bits - 1
    groups = w.float().view(n, k // GROUP, GROUP)
    low, high = groups.amin(-1).clamp(max=0), groups.amax(-1).clamp(min=0)
    scale = ((high - low) / most).to(dtype)
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    by = scale.float()
    zero = (-low / by).round().clamp(0, most)
    v = ((groups / by.unsqueeze(-1)).round() + zero.unsqueeze(-1)).clamp(0, most)
    scales = torch.stack((scale.t(), zero.to(dtype).t()), -1).contiguous()
    return packed_of(v.view(n, k).to(torch.uint8), bits), scales


def packed_of(v: torch.Tensor, bits: int) -> torch.Tensor:
    """Values (N, K), uint8, in their memory layout."""
    if bits == 8:
        return v.contiguous()
    n, k = v.shape
    nibbles = v.view(n, k // 8, 8)[..., ORDER].reshape(n, k // 2, 2)
    return nibbles[..., 0] | nibbles[..., 1] << 4


def values_of(packed: torch.Tensor, bits: int) -> torch.Tensor:
    """The inverse of `packed_of`."""
    if bits == 8:
        return packed
    n, half = packed.shape
    nibbles = torch.stack((packed & 15, packed >> 4), -1).view(n, half // 4, 8)
    eight = [nibbles[..., ORDER.index(i)] for i in range(8)]  # a list as an index would be copied
    return torch.stack(eight, -1).reshape(n, 2 * half)


def dequantized(
    packed: torch.Tensor, scales: torch.Tensor, bits: int, dtype: torch.dtype
) -> torch.Tensor:
    """(v - zero) scale, computed in float32, or in float64 for float64."""
    v = values_of(packed, bits)
    n, k = v.shape
    wide = torch.promote_types(dtype, torch.float32)
    scale, zero = scales.to(wide).permute(2, 1, 0).unsqueeze(-1)
    return ((v.view(n, k // GROUP, GROUP) - zero) * scale).view(n, k).to(dtype)


def read_awq(qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor) -> QuantizedWeight:
    """A weight of 4 bits as AWQ's checkpoints store it ("version": "gemm").

    Args:
        qweight: shape (K, N / 8), int32: eight columns of the transposed weight in each word, in
            the order 0 2 4 6 1 3 5 7.
        qzeros: shape (K / 128, N / 8), int32, packed likewise.
        scales: shape (K / 128, N).

    Source: AutoAWQ's WQLinear_GEMM.

    Raises:
        TypeError: an argument is not a tensor of the right kind.
        ValueError: shapes do not fit, or the group size is not 128.
    """
    _, groups = _shapes(qweight, qzeros, scales, qweight.shape[0])
    back = [AWQ_ORDER.index(i) for i in range(8)]
    v = _unpacked(qweight, 4)[..., back].flatten(1).t()
    zeros = _unpacked(qzeros, 4)[..., back].reshape(groups, -1)
    return _made(v, zeros, scales, 4)


def read_gptq(
    qweight: torch.Tensor,
    qzeros: torch.Tensor,
    scales: torch.Tensor,
    g_idx: torch.Tensor | None = None,
    *,
    checkpoint_format: str = "gptq",
) -> QuantizedWeight:
    """A weight of 4 or 8 bits as GPTQ's checkpoints store it.

    Args:
        qweight: shape (K * bits / 32, N), int32: neighbors along k in each word.
        qzeros: shape (K / 128, N * bits / 32), int32: zero points along N, in "gptq" less one.
        scales: shape (K / 128, N).
        g_idx: shape (K,): the group of each k. Only consecutive groups of 128 are supported: a
            weight whose columns were reordered by activation ("desc_act") is refused.
        checkpoint_format: "gptq" or "gptq_v2", as in the checkpoint's quantization_config; the
            tensors do not tell them apart.

    Source: GPTQModel's QuantLinear, Frantar et al., arXiv:2210.17323.

    Raises:
        TypeError: an argument is not a tensor of the right kind.
        ValueError: shapes do not fit, groups are not 128 consecutive elements, or the format is
            another one.
    """
    if checkpoint_format not in GPTQ_FORMATS:
        known = " or ".join(map(repr, GPTQ_FORMATS))
        raise ValueError(f"checkpoint_format: must be {known}, is {checkpoint_format!r}")
    for name, t in (("qweight", qweight), ("qzeros", qzeros)):
        arguments.tensor(name, t)
    arguments.floating("scales", scales)
    if scales.ndim != 2 or qzeros.ndim != 2 or scales.shape[1] == 0 or qzeros.shape[1] == 0:
        raise ValueError(f"scales: has shape {tuple(scales.shape)}, should be (K / 128, N)")
    bits = 32 * qzeros.shape[1] // scales.shape[1]
    if bits not in (4, 8):
        raise ValueError(f"qzeros: has {bits} bits for each column, should have 4 or 8")
    k, groups = _shapes(qweight, qzeros, scales, qweight.shape[0] * 32 // bits, bits)
    if g_idx is not None:
        in_order = torch.arange(k, device=g_idx.device) // GROUP
        if g_idx.shape != in_order.shape or not bool((g_idx == in_order).all()):
            raise ValueError("g_idx: groups are not 128 consecutive rows in order (desc_act)")
    v = _unpacked(qweight.t(), bits).flatten(1)
    zeros = _unpacked(qzeros, bits).reshape(groups, -1) + GPTQ_FORMATS[checkpoint_format]
    zeros &= 2**bits - 1
    return _made(v, zeros, scales, bits)


def _shapes(
    qweight: torch.Tensor, qzeros: torch.Tensor, scales: torch.Tensor, k: int, bits: int = 4
) -> tuple[int, int]:
    """(k, groups), after checks of the shapes."""
    for name, t in (("qweight", qweight), ("qzeros", qzeros)):
        arguments.tensor(name, t)
        if t.dtype != torch.int32 or t.ndim != 2:
            raise ValueError(f"{name}: should be a matrix of int32, is {t.ndim}-d of {t.dtype}")
    arguments.floating("scales", scales)
    groups, n = scales.shape
    if k != groups * GROUP:
        raise ValueError(f"scales: has {groups} groups for {k} inputs, not groups of {GROUP}")
    if tuple(qzeros.shape) != (groups, n * bits // 32) or k * n * bits != 32 * qweight.numel():
        raise ValueError(
            f"qzeros, qweight: have shapes {tuple(qzeros.shape)} and {tuple(qweight.shape)}, which "
            f"do not fit scales of shape {tuple(scales.shape)}"
        )
    return k, groups


def _unpacked(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The values in int32 words, from the lowest bits on, in one more dimension."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    return words.unsqueeze(-1) >> shifts & 2**bits - 1


def _made(v: torch.Tensor, zeros: torch.Tensor, scales: torch.Tensor, bits: int) -> QuantizedWeight:
    packed = packed_of(v.to(torch.uint8).contiguous(), bits)
    both = torch.stack((scales, zeros.to(scales.dtype)), -1).contiguous()
    return QuantizedWeight(packed, both, bits)
