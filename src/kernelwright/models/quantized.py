"""Linear layers whose weight stays quantized, for inference.

Letters at the end of a name are its shape: M tokens, K inputs, N outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from kernelwright.ops.matmul.quantized import QuantizedWeight, quantized_linear
from kernelwright.ops.matmul.scaled import quantize_fp8, scaled_mm

BLOCK = 128


class ScaledWeight(NamedTuple):
    """A weight (N, K) of 8-bit floating-point numbers.

    Attributes:
        values_NK: float8_e4m3fn.
        scale: float32: (N, 1), or for blocks of 128 x 128, (ceil(N / 128), ceil(K / 128)).
        blocked: which of these.
    """

    values_NK: torch.Tensor
    scale: torch.Tensor
    blocked: bool


class QuantizedLinear(nn.Module):
    """A linear layer with a weight of integers of 4 or 8 bits. Its scales have the model's dtype.

    Args:
        weights: are stacked along N; all of the same bits.
        bias: (N,), or None.
    """

    packed: torch.Tensor
    scales: torch.Tensor

    def __init__(self, weights: Sequence[QuantizedWeight], bias: torch.Tensor | None):
        super().__init__()
        self.bits = weights[0].bits
        self.register_buffer("packed", torch.cat([w.packed for w in weights]))
        self.register_buffer("scales", torch.cat([w.scales for w in weights], 1))
        self.bias = None if bias is None else nn.Parameter(bias)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.packed.shape[0], self.packed.shape[1] * 8 // self.bits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(*, N) from (*, K)."""
        weight = QuantizedWeight(self.packed, self.scales, self.bits)
        return quantized_linear(x, weight, self.bias)


class ScaledLinear(nn.Module):
    """A linear layer with a weight of 8-bit floating-point numbers. Its input is converted to such
    numbers too, with a scale per token, or per token and 128 inputs if the weight has blocks; the
    product is rounded to bfloat16. It has no gradient.

    Args:
        weights: are stacked along N; with blocks, the N of all but the last is a multiple of 128.
        bias: (N,), or None.
    """

    bytes_NK: torch.Tensor
    scale: torch.Tensor

    def __init__(self, weights: Sequence[ScaledWeight], bias: torch.Tensor | None):
        super().__init__()
        self.blocked = weights[0].blocked
        values_NK = torch.cat([w.values_NK.view(torch.uint8) for w in weights])
        self.register_buffer("bytes_NK", values_NK)  # as bytes, which no cast of a model changes
        self.register_buffer("scale", torch.cat([w.scale for w in weights]))
        self.bias = None if bias is None else nn.Parameter(bias)

    @property
    def shape(self) -> tuple[int, int]:
        """(N, K)."""
        return self.bytes_NK.shape[0], self.bytes_NK.shape[1]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:
        scale = self.scale
        super()._apply(fn, recurse)
        self.scale = scale.to(self.bytes_NK.device)  # always float32
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(*, N) from (*, K).

        Raises:
            RuntimeError: x requires a gradient.
        """
        if x.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("a layer of 8-bit numbers has no gradient; use torch.no_grad()")
        values_MK, scale_M = quantize_fp8(x.flatten(0, -2), "block" if self.blocked else "row")
        weight_NK = self.bytes_NK.view(torch.float8_e4m3fn)
        y_MN = scaled_mm(values_MK, weight_NK.t(), scale_M, self.scale.t()).to(x.dtype)
        y_MN = y_MN if self.bias is None else y_MN + self.bias
        return y_MN.unflatten(0, x.shape[:-1])


def layer(
    weights: Sequence[QuantizedWeight | ScaledWeight], bias: torch.Tensor | None
) -> QuantizedLinear | ScaledLinear:
    """The layer of weights that are stacked along N.

    Raises:
        ValueError: they cannot be stacked.
    """
    scaled = [w for w in weights if isinstance(w, ScaledWeight)]
    integers = [w for w in weights if isinstance(w, QuantizedWeight)]
    if integers:
        if scaled or len({w.bits for w in integers}) > 1:
            raise ValueError("weights of one layer have different numbers of bits")
        if len({w.packed.shape[1] for w in integers}) > 1:
            raise ValueError("weights of one layer have different numbers of inputs")
        return QuantizedLinear(integers, bias)
    if len({w.blocked for w in scaled}) > 1:
        raise ValueError("weights of one layer have scales of different kinds")
    if len({w.values_NK.shape[1] for w in scaled}) > 1:
        raise ValueError("weights of one layer have different numbers of inputs")
    if scaled[0].blocked and any(len(w.values_NK) % BLOCK for w in scaled[:-1]):
        sizes = ", ".join(str(len(w.values_NK)) for w in scaled)
        raise ValueError(f"blocks of {BLOCK} rows do not fit stacked weights of {sizes} rows")
    return ScaledLinear(scaled, bias)
