"""Template arguments of CUDA C++ kernels, as written in kernel names."""

from __future__ import annotations

import torch

#: The C++ type of each dtype that a kernel is instantiated for.
CTYPE = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.int64: "long long",
    torch.int32: "int",
}


def boolean(value: bool) -> str:
    return "true" if value else "false"
