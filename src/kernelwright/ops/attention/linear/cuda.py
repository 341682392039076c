"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import struct
from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, f32
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.plan import packed
from kernelwright.contract.template_args import CTYPE

from .spec import outputs

FOLDER = Path(__file__).parent
COLUMNS, WARPS = 32, 8  # of cuda_recurrent.cu


def recurrent(gpu, config, q, k, v, g, state, want_final, scale):
    b, h, length, d = q.shape
    dv, y = v.shape[3], outputs(q, k, v, g, state, want_final, scale)[0]
    none = (0, 0, 0, 0)
    strides = [
        n
        for t in (q, k, v, y, state)
        for n in (none if t is None else t.stride())
    ] + list(none[:3] if g is None else g.stride())  # fmt: skip
    call = packed(struct.pack("<23q4i", *strides, h, length, d, dv))
    name = f"linear_recurrent<{CTYPE[q.dtype]}, {next_power_of_2(cdiv(d, WARPS))}>"
    given = (
        "q", "k", "v", NULL if g is None else "g", NULL if state is None else "state", "y",
        "final" if want_final else NULL, call, f32("scale"),
    )  # fmt: skip
    kernel = CudaKernel(FOLDER / "cuda_recurrent.cu", name)
    grid = (cdiv(dv, COLUMNS) * b * h, 1, 1)
    return Plan((Launch(kernel, grid, given, (COLUMNS * WARPS, 1, 1)),))
