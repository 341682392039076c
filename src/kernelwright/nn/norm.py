"""LayerNorm and RMSNorm."""

from __future__ import annotations

import torch

from kernelwright.ops.norm.layer_norm import layer_norm, rms_norm


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm with `kw.layer_norm`: the same arguments, parameters and state_dict.

    Shape:
        input: (*, *normalized_shape); the result has the same shape and dtype.

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if its shape does not end in normalized_shape.
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm with `kw.rms_norm`: the same arguments, parameters and state_dict.

    Shape:
        input: (*, *normalized_shape); the result has the same shape and dtype.

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if its shape does not end in normalized_shape.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)
