"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i32, i64
from kernelwright.contract.plan import packed
from kernelwright.contract.symbolic_int import fixed
from kernelwright.ops._divisor import divisor

from .. import _stream_keys
from .._split_keys import blocks_of

FOLDER = Path(__file__).parent
MERGE_WARPS = 4  # of a query, whose parts they share


def split_mma(gpu, config, q, k, v, table, lengths, scale, k_scale, v_scale):
    (b, h, d), (page, heads), dv = q.shape, k.shape[1:3], v.shape[3]
    group, pairs, tokens = h // heads, b * heads, table.shape[1] * page
    of = blocks_of(gpu, config, q.dtype, k.dtype, group, d, dv, pairs, tokens)
    strides = [n * t.dtype.itemsize for t in (k, v) for n in t.stride()[:3]]
    sizes = (heads, group, of.chunks, of.splits)
    launch = Launch(
        CudaKernel(
            FOLDER / "cuda_split_mma.cu", f"paged_split_mma<{of.name}, {config['blocks']}>"
        ),
        grid=(pairs * of.chunks * of.splits, 1, 1),
        args=("q", "k", "v", "table", "lengths", "y", "lse", "sums", "states", "arrived",
              *map(i64, (*q.stride()[:2], table.stride(0), *strides)), *map(i32, sizes),
              packed(divisor(fixed(page))), f32("scale"), f32("k_scale"), f32("v_scale")),
        block=(of.warps * 32, 1, 1),
        shared=of.shared,
    )  # fmt: skip
    return Plan((launch,), of.scratch())


def split_bulk(gpu, config, q, k, v, table, lengths, scale, k_scale, v_scale):
    (b, h, d), (page, heads), dv = q.shape, k.shape[1:3], v.shape[3]
    group = h // heads
    of = _stream_keys.blocks_of(
        gpu, config, q.dtype, k.dtype, _stream_keys.layout(k, v, 1, 2), heads, group, d, dv, b
    )
    strides = [n * t.dtype.itemsize for t in (k, v) for n in t.stride()[:3]]
    source, sizes = FOLDER / "cuda_split_bulk.cu", (b, heads, group, of.chunks)
    stream = Launch(
        CudaKernel(source, f"paged_split_bulk<{of.name}, {config['blocks']}>"),
        grid=(of.blocks, 1, 1),
        args=("q", "k", "v", "table", "lengths", "y", "lse", "sums", "states",
              *map(i64, (*q.stride()[:2], table.stride(0), *strides)), *map(i32, sizes),
              packed(divisor(fixed(page))), f32("scale"), f32("k_scale"), f32("v_scale")),
        block=(of.threads, 1, 1),
        shared=of.shared,
    )  # fmt: skip
    merge = Launch(
        CudaKernel(source, f"paged_merge_bulk<{of.name}, {MERGE_WARPS}>"),
        grid=(b * h, 1, 1),
        args=("lengths", "y", "lse", "sums", "states", *map(i32, (*sizes, of.blocks)),
              f32("v_scale")),
        block=(32 * MERGE_WARPS, 1, 1),
        overlaps=True,
    )  # fmt: skip
    scratch = of.scratch()
    return Plan((stream, merge), {name: scratch[name] for name in ("sums", "states")})
