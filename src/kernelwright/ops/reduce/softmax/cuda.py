"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .tiling import block_shape, cluster_shape, rows_of, warp_shape, words

WARP_THREADS = 128  # cuda_warp.cu's kThreads
ONLINE_THREADS = 512  # cuda_online.cu's kThreads


def _naive(side, config, out, **ins):
    r, threads = rows_of(*ins.values()), config["threads"]
    kernel = _kernel("naive", side, ins)
    args = (*ins, out, i64(r.rows), i64(r.cols), *map(i64, r.strides))
    return _plan(kernel, cdiv(r.rows, threads), threads, args)


def _warp(side, config, out, **ins):
    r = rows_of(*ins.values())
    shape = warp_shape(r, config, _itemsize(ins))
    kernel = _kernel("warp", side, ins, r.width, *shape)
    at_once = WARP_THREADS // shape.lanes * shape.rows
    args = (*ins, out, i64(r.rows), i32(r.cols), *map(i64, r.strides))
    return _plan(kernel, cdiv(r.rows, at_once), WARP_THREADS, args)


def _block(side, config, out, **ins):
    r = rows_of(*ins.values())
    shape = block_shape(r.vectors, config, words(r.width, _itemsize(ins)))
    kernel = _kernel("block", side, ins, r.width, shape.vectors, shape.threads)
    args = (*ins, out, i32(r.cols), *map(i64, r.strides))
    return _plan(kernel, r.rows, shape.threads, args, _shared(shape, r, ins))


def _cluster(side, config, out, **ins):
    r = rows_of(*ins.values())
    shape = cluster_shape(r.vectors, config, words(r.width, _itemsize(ins)))
    kernel = _kernel("cluster", side, ins, r.width, *shape, cluster=shape.blocks)
    args = (*ins, out, i32(r.cols), *map(i64, r.strides))
    return _plan(kernel, r.rows * shape.blocks, shape.threads, args, _shared(shape, r, ins))


def _online(side, config, out, **ins):
    r = rows_of(*ins.values())
    kernel = _kernel("online", side, ins, r.width, config["vectors"])
    args = (*ins, out, i64(r.cols), *map(i64, r.strides))
    return _plan(kernel, r.rows, ONLINE_THREADS, args)


def _kernel(rung, side, ins, *constants, cluster=1):
    t = next(iter(ins.values()))
    parameters = ", ".join(map(str, (CTYPE[t.dtype], *constants)))
    source = Path(__file__).parent / f"cuda_{rung}.cu"
    return CudaKernel(source, f"softmax_{side}_{rung}<{parameters}>", cluster)


def _plan(kernel, blocks, threads, args, shared=0):
    return Plan((Launch(kernel, (blocks, 1, 1), args, (threads, 1, 1), shared),))


def _itemsize(ins):
    return next(iter(ins.values())).itemsize


def _shared(shape, r, ins):
    """Bytes of shared memory, in which the backward keeps gy."""
    return 0 if len(ins) == 1 else shape.vectors * shape.threads * r.width * _itemsize(ins)


def _entries(planned):
    """The entries of a rung's forward and backward, which differ only in the names of arguments."""

    def forward(gpu, config, x, dim):
        return planned("fwd", config, "y", x=x)

    def backward(gpu, config, gy, y, dim):
        return planned("bwd", config, "gx", gy=gy, y=y)

    return forward, backward


naive, naive_backward = _entries(_naive)
warp, warp_backward = _entries(_warp)
block, block_backward = _entries(_block)
cluster, cluster_backward = _entries(_cluster)
online, online_backward = _entries(_online)
