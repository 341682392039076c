"""GELU and SwiGLU."""

from __future__ import annotations

import torch

from kernelwright.ops.elementwise.gelu import gelu
from kernelwright.ops.elementwise.glu import swiglu


class GELU(torch.nn.GELU):
    """torch.nn.GELU with `kw.gelu`: the same arguments, no parameters.

    Shape:
        input: any; the result has the same shape and dtype.

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if approximate is neither "none" nor "tanh".
    """

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return gelu(input, self.approximate)


class SwiGLU(torch.nn.Module):
    """silu(gate) * up of the two halves of the input, with `kw.swiglu`; no parameters.

    The halves are not copied, so a model can compute them with one linear layer. Like torch.nn.GLU,
    the module takes the dimension to split, but the activation is applied to the first half, as in
    Llama's MLP.

    Args:
        dim: the dimension to split into halves.

    Shape:
        input: (*, 2 D, *), 2 D in dimension dim; the result is (*, D, *).

    Raises:
        TypeError: in the forward, if the input is not floating point.
        ValueError: in the forward, if the dimension is odd.
    """

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        if input.shape[self.dim] % 2:
            raise ValueError(
                f"input: dimension {self.dim} must be even, is {input.shape[self.dim]}"
            )
        gate, up = input.chunk(2, self.dim)
        return swiglu(gate, up)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
