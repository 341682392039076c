"""What becomes of a product's results: in the kernel, in float64, and in cuBLAS."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import torch
import torch.nn.functional as F

CPP = {torch.bfloat16: "__nv_bfloat16", torch.float16: "__half"}


def cpp(kind: str, dtype: str) -> str:
    """The C++ type of an epilogue on a C++ type."""
    names = {"bias": f"kw::Bias<{dtype}>", "gelu": f"kw::BiasGelu<{dtype}, true>"}
    return names.get(kind, "kw::Plain")


@dataclass(frozen=True)
class Epilogue:
    """kind: "plain", "bias", or "gelu" for bias and the tanh form of GELU."""

    kind: str
    bias: torch.Tensor

    @staticmethod
    def random(kind: str, n: int, dtype: torch.dtype) -> Epilogue:
        return Epilogue(kind, torch.randn(n, device="cuda", dtype=dtype))

    @property
    def cpp(self) -> str:
        return cpp(self.kind, CPP[self.bias.dtype])

    @property
    def argument(self) -> bytes:
        """The kernel's parameter; of Plain, an empty struct, a byte that is not read."""
        if self.kind == "plain":
            return b"\0"
        return struct.pack("Qi4x", self.bias.data_ptr(), len(self.bias))

    def exact(self, product: torch.Tensor) -> torch.Tensor:
        """Of a product in float64."""
        if self.kind == "plain":
            return product
        sums = product + self.bias.double()
        return sums if self.kind == "bias" else F.gelu(sums, approximate="tanh")

    def cublas(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """One kernel of cuBLAS; GELU's has no `out`."""
        if self.kind == "plain":
            return torch.mm(a, b, out=out)
        if self.kind == "bias":
            return torch.addmm(self.bias, a, b, out=out)
        return torch._addmm_activation(self.bias, a, b, use_gelu=True)
