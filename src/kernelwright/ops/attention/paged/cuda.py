"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import struct
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32
from kernelwright.contract.plan import packed
from kernelwright.ops.vision.images import divisor

from .._split_keys import blocks_of

FOLDER = Path(__file__).parent


def split_mma(gpu, config, q, k, v, table, lengths, scale, k_scale, v_scale):
    (b, h, d), (page, heads), dv = q.shape, k.shape[1:3], v.shape[3]
    group, pairs, tokens = h // heads, b * heads, table.shape[1] * page
    of = blocks_of(gpu, config, q.dtype, k.dtype, group, d, dv, pairs, tokens)
    strides = [t.stride(i) * t.dtype.itemsize for t in (k, v) for i in (0, 2)]
    rows = [t.stride(1) * t.dtype.itemsize for t in (k, v)]
    numbers = (
        *q.stride()[:2],
        table.stride(0),
        *strides,
        *rows,
        heads,
        group,
        of.chunks,
        of.splits,
    )
    call = packed(struct.pack("<7q6i", *numbers) + divisor(page) + bytes(4))
    launch = Launch(
        CudaKernel(
            FOLDER / "cuda_split_mma.cu", f"paged_split_mma<{of.name}, {config['blocks']}>"
        ),
        grid=(pairs * of.chunks * of.splits, 1, 1),
        args=("q", "k", "v", "table", "lengths", "y", "lse", "sums", "states", "arrived", call,
              f32("scale"), f32("k_scale"), f32("v_scale")),
        block=(of.warps * 32, 1, 1),
        shared=of.shared,
    )  # fmt: skip
    return Plan((launch,), of.scratch())
