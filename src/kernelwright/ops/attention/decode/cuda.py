"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import struct
from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.plan import packed
from kernelwright.contract.template_args import CTYPE

from .. import _stream_keys
from .._split_keys import blocks_of
from . import heuristics

FOLDER = Path(__file__).parent


def block(gpu, config, **args):
    return _plan("block", 1, config, **args)


def cluster(gpu, config, q, k, k_cache, **others):
    size = heuristics.blocks(gpu, config, q, k, k_cache)
    return _plan("cluster", size, config, q=q, k=k, k_cache=k_cache, **others)


def _plan(kernel, size, config, q, k, v, k_cache, v_cache, lengths, scale):
    (b, h, d), g = q.shape, k.shape[1]
    each = heuristics.queries(q, k)
    chunks = cdiv(h // g, each)
    strides = [n for t in (q, k, v) for n in (*t.stride()[:2], 0)]
    strides += [n for t in (k_cache, v_cache) for n in t.stride()[:3]]
    call = packed(struct.pack("<16q4i", *strides, k_cache.shape[2], g, h // g, chunks, d))
    template = [CTYPE[q.dtype], heuristics.lanes(q), each, config["warps"]]
    template += [size] * (kernel == "cluster") + [config["unroll"]]
    launch = Launch(
        CudaKernel(
            FOLDER / f"cuda_{kernel}.cu",
            f"decode_{kernel}<{', '.join(map(str, template))}>",
            cluster=size,
        ),
        grid=(b * g * chunks * size, 1, 1),
        args=("q", "k", "v", "k_cache", "v_cache", "lengths", "y", call, f32("scale")),
        block=(config["warps"] * 32, 1, 1),
    )
    return Plan((launch,))


def split_mma(gpu, config, q, k, v, k_cache, v_cache, lengths, scale):
    (b, h, d), g = q.shape, k.shape[1]
    of = blocks_of(gpu, config, q.dtype, q.dtype, h // g, d, d, b * g, k_cache.shape[2])
    strides = [n for t in (q, k, v) for n in t.stride()[:2]]
    strides += [n for t in (k_cache, v_cache) for n in t.stride()[:3]]
    sizes = (g, h // g, of.chunks, of.splits)
    launch = Launch(
        CudaKernel(
            FOLDER / "cuda_split_mma.cu", f"decode_split_mma<{of.name}, {config['blocks']}>"
        ),
        grid=(b * g * of.chunks * of.splits, 1, 1),
        args=("q", "k", "v", "k_cache", "v_cache", "lengths", "y", "sums", "states", "arrived",
              *map(i64, (*strides, k_cache.shape[2])), *map(i32, sizes), f32("scale")),
        block=(of.warps * 32, 1, 1),
        shared=of.shared,
    )  # fmt: skip
    return Plan((launch,), of.scratch())


def split_bulk(gpu, config, q, k, v, k_cache, v_cache, lengths, scale):
    (b, h, d), g = q.shape, k.shape[1]
    layout = _stream_keys.layout(k_cache, v_cache, 2, 1)
    of = _stream_keys.blocks_of(gpu, config, q.dtype, q.dtype, layout, g, h // g, d, d, b)
    strides = [n for t in (q, k, v) for n in t.stride()[:2]]
    strides += [n for t in (k_cache, v_cache) for n in t.stride()[:3]]
    launch = Launch(
        CudaKernel(
            FOLDER / "cuda_split_bulk.cu", f"decode_split_bulk<{of.name}, {config['blocks']}>"
        ),
        grid=(of.blocks, 1, 1),
        args=("q", "k", "v", "k_cache", "v_cache", "lengths", "y", "sums", "states", "arrived",
              *map(i64, (*strides, k_cache.shape[2])), *map(i32, (b, g, h // g, of.chunks)),
              f32("scale")),
        block=(of.threads, 1, 1),
        shared=of.shared,
    )  # fmt: skip
    return Plan((launch,), of.scratch())
