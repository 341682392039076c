"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import (
    BackwardCall,
    Call,
    block_forward,
    block_walk,
    cluster_forward,
    cluster_forward_walk,
    cluster_walk,
    clusters_of,
    warp_forward,
    warp_walk,
)

WARP_THREADS = 128  # norm_fwd_warp's kThreads


def warp(gpu, config, **args):
    c = Call(args)
    shape, rows = warp_forward(c, config)
    of_block = WARP_THREADS // shape.threads * rows
    whole = c.vectors == shape.vectors * shape.threads and c.rows % of_block == 0
    kernel = _kernel("fwd_warp", c, shape.vectors, shape.threads, rows, boolean(whole))
    return _forward(c, kernel, cdiv(c.rows, of_block), WARP_THREADS)


def block(gpu, config, **args):
    c = Call(args)
    shape = block_forward(c, config)
    whole = c.vectors == shape.vectors * shape.threads
    kernel = _kernel("fwd_block", c, shape.vectors, shape.threads, boolean(whole))
    return _forward(c, kernel, c.rows, shape.threads)


def cluster(gpu, config, **args):
    c = Call(args)
    if "items" in config:
        return _cluster_walk(gpu, c, config)
    shape, rows = cluster_forward(c, config)
    kernel = _kernel("fwd_cluster", c, *shape, rows, cluster=shape.blocks)
    return _forward(c, kernel, cdiv(c.rows, rows) * shape.blocks, shape.threads)


def _cluster_walk(gpu, c, config):
    walk = cluster_forward_walk(gpu, c, config)
    shape = walk.shape
    whole = c.vectors == shape.vectors * shape.threads * shape.blocks
    constants = (*shape, walk.rows, walk.blocks, boolean(whole))
    kernel = _kernel("fwd_walk_cluster", c, *constants, cluster=shape.blocks)
    clusters = min(c.rows, clusters_of(gpu, shape.blocks) * walk.blocks)
    return _forward(c, kernel, clusters * shape.blocks, shape.threads, walk.shared)


def warp_backward(gpu, config, **args):
    c = BackwardCall(args)
    walk = warp_walk(gpu, c, config)
    shape = walk.shape
    kernel = _kernel(
        "bwd_warp", c, shape.vectors, shape.threads, walk.rows, walk.threads, walk.blocks
    )
    parts = min(cdiv(c.rows, walk.threads // shape.threads * walk.rows), gpu.sms * walk.blocks)
    return _backward(c, kernel, walk, parts, 1)


def block_backward(gpu, config, **args):
    c = BackwardCall(args)
    walk = block_walk(gpu, c, config)
    shape = walk.shape
    kernel = _kernel("bwd_block", c, shape.vectors, shape.threads, walk.rows, walk.blocks)
    parts = min(cdiv(c.rows, walk.rows), gpu.sms * walk.blocks)
    return _backward(c, kernel, walk, parts, 1)


def cluster_backward(gpu, config, **args):
    c = BackwardCall(args)
    walk = cluster_walk(gpu, c, config)
    shape = walk.shape
    kernel = _kernel("bwd_cluster", c, *shape, walk.rows, walk.blocks, cluster=shape.blocks)
    at_once = clusters_of(gpu, shape.blocks) * walk.blocks
    return _backward(c, kernel, walk, min(c.rows, at_once), shape.blocks)


def _kernel(name, c, *constants, cluster=1):
    flags = (c.center, c.add)
    norm = ", ".join([CTYPE[c.dtype], CTYPE[c.parameter_dtype], *map(boolean, flags)])
    values = ", ".join(map(str, (c.width, *constants)))
    source = Path(__file__).parent / f"cuda_{name.rpartition('_')[2]}.cu"
    return CudaKernel(source, f"norm_{name}<kw::Norm<{norm}>, {values}>", cluster)


def _forward(c, kernel, blocks, threads, shared=0):
    args = (*c.pointers, *c.numbers, f32("eps"), c.offset, c.given)
    return Plan((Launch(kernel, (blocks, 1, 1), args, (threads, 1, 1), shared),))


def _backward(c, kernel, walk, parts, blocks):
    """`parts` teams in `blocks` blocks process the rows; a second launch adds their partial
    sums."""
    first = Launch(
        kernel,
        (parts * blocks, 1, 1),
        (*c.pointers, *c.numbers, c.offset, c.given),
        (walk.threads, 1, 1),
        walk.shared,
    )
    if not c.parameters:
        return Plan((first,))
    # four columns per lane if this still leaves blocks for every multiprocessor
    width = 4 if c.cols % 4 == 0 and c.cols >= 8192 else 1
    warps = min(32, next_power_of_2(cdiv(parts, 4)))
    second = Launch(
        CudaKernel(
            Path(__file__).parent / "cuda_parts.cu",
            f"norm_bwd_parts<{CTYPE[c.parameter_dtype]}, {width}, {16 // width}>",
        ),
        (cdiv(c.cols, 32 * width), len(c.parameters), 1),
        (*c.parts_and_sums, i64(parts), i64(c.cols)),
        (32 * warps, 1, 1),
        overlaps=True,
    )
    return Plan((first, second), c.scratch(parts))
