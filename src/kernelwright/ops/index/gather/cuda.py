"""Launches of the CUDA C++ rungs. Positions are sorted by the launches of embedding's gradient."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from kernelwright.contract import (
    NULL,
    CudaKernel,
    Launch,
    Plan,
    Scratch,
    TensorSpec,
    i32,
    i64,
    struct_of,
)
from kernelwright.contract.arithmetic import cdiv, gcd
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.embedding.lookup import cuda as lookup

from .heuristics import elements, stride_of, width

ADDED_BEFORE = 8  # positions of a piece that are in flight


def thread(gpu, config, x, index, n):
    kernel = f"gather_thread<{x.itemsize}, {CTYPE[index.dtype]}>"
    count = index.numel()
    args = ("x", "index", "y", i64(count), _fibers(index, n, x))
    return Plan((_each("thread", kernel, count, config["block"], args),))


def vec16(gpu, config, x, index, n):
    return _vec16("x", "y", config, x, index, n)


def vec16_add_backward(gpu, config, gy, index):
    return _vec16("gy", "gsrc", config, gy, index, gy.shape[-2])


def _vec16(x_name, y_name, config, x, index, n):
    block, unroll, w = config["block"], config["unroll"], width(x, index)
    kernel = f"gather_vec16<{x.itemsize}, {CTYPE[index.dtype]}, {w}, {unroll}, {block}>"
    vectors = index.numel() // w
    launch = Launch(
        _kernel("vec16", kernel),
        (cdiv(vectors, block * unroll), 1, 1),
        (x_name, "index", y_name, i64(vectors), _fibers(index, n, x)),
        (block, 1, 1),
    )
    return Plan((launch,))


def atomics_add(gpu, config, x, index, src):
    return _atomics("src", "y", config, x, index, src, x.shape[-2])


def atomics_backward(gpu, config, gy, index, n):
    return _atomics("gy", "gx", config, None, index, gy, n)


def _atomics(src_name, y_name, config, x, index, src, n):
    block, count, numel = config["block"], index.numel(), elements(index, n)
    whole = src.dtype == torch.float32  # sums are added directly to the result
    sum_of = y_name if whole else "sums"
    start = _start("atomics", sum_of, torch.float32, block, x, src.dtype, numel)
    kernel = f"scatter_atomics<{CTYPE[src.dtype]}, {CTYPE[index.dtype]}, {block}>"
    args = ("index", src_name, sum_of, i64(count), i64(stride_of(src)), _fibers(index, n))
    add = _each("atomics", kernel, count, block, args)
    if whole:
        return Plan((start, add))
    w = gcd(numel, 4)
    kernel = f"scatter_narrow<{CTYPE[src.dtype]}, {w}, {block}>"
    narrow = _each("atomics", kernel, numel // w, block, ("sums", y_name, i64(numel // w)))
    return Plan((start, add, narrow), {"sums": _scratch(numel, torch.float32)})


def small_add(gpu, config, x, index, src):
    return _small("src", "y", config, x, index, src, x.shape[-2])


def small_backward(gpu, config, gy, index, n):
    return _small("gy", "gx", config, None, index, gy, n)


def _small(src_name, y_name, config, x, index, src, n):
    block, count = config["block"], index.numel()
    start = _start("small", y_name, src.dtype, block, x, src.dtype, elements(index, n))
    kernel = f"scatter_small<{CTYPE[src.dtype]}, {CTYPE[index.dtype]}, {block}>"
    args = ("index", src_name, y_name, i64(count), i64(stride_of(src)), _fibers(index, n))
    return Plan((start, _each("small", kernel, count, block, args)))


def sorted_add(gpu, config, x, index, src):
    return _sorted("src", "y", config, x, index, src, x.shape[-2])


def sorted_backward(gpu, config, gy, index, n):
    return _sorted("gy", "gx", config, None, index, gy, n)


def _sorted(src_name, y_name, config, x, index, src, n):
    block, piece = config["block"], config["piece"]
    count, numel = index.numel(), elements(index, n)
    pieces = cdiv(count, piece)
    targets = _each(
        "sorted", f"scatter_targets<{CTYPE[index.dtype]}, {block}>", count, block,
        ("index", "targets", i64(count), _fibers(index, n)),
    )  # fmt: skip
    sort, ordered, scratch = lookup._sort(_ints(count), count, numel)
    in_pieces = _each(
        "sorted",
        f"embedding_bwd_pieces<{CTYPE[src.dtype]}, 1, {piece}, {ADDED_BEFORE}, {block}>",
        pieces, block,
        (src_name, ordered, "starts", "partials", i32(count), i32(pieces), i32(1), i32(pieces),
         i64(1)),
    )  # fmt: skip
    by_element = _each(
        "sorted", f"scatter_elements<{CTYPE[src.dtype]}, {piece}, {config['unroll']}, {block}>",
        numel, block,
        (NULL if x is None else "x", src_name, ordered, "starts", "partials", y_name, i32(numel),
         _fibers(index, n, x)),
    )  # fmt: skip
    launches = lookup.in_turn(targets, *map(_of_targets, sort), in_pieces)
    scratch |= {
        "targets": _scratch(count, torch.int32),
        "partials": _scratch(2 * pieces, torch.float32),
    }
    return Plan((*launches, by_element), scratch)


def _of_targets(launch: Launch) -> Launch:
    """A launch of the sort, with the argument that is called `targets` here as its keys."""
    args = tuple("targets" if a == "indices" else a for a in launch.args)
    return replace(launch, kernel=_kernel("order", launch.kernel.name), args=args)


def _start(trick, to, dtype, block, x, x_dtype, numel):
    """Writes x, or zeros, as `dtype` to `to`."""
    columns, stride, w = numel, 0, gcd(numel, 16 // dtype.itemsize)
    if x is not None:
        if not x.is_contiguous():
            columns, stride = x.shape[-1], stride_of(x)
        w = gcd(w, x.align // x.itemsize, columns, stride)
    kernel = f"scatter_start<{CTYPE[x_dtype]}, {CTYPE[dtype]}, {w}, {block}>"
    args = (NULL if x is None else "x", to, i64(numel // w), i64(columns), i64(stride))
    return _each(trick, kernel, numel // w, block, args)


def _fibers(index, n, x=None):
    """kw::Fibers; `stride` is used only if x is given."""
    m, columns = index.shape[-2:]
    stride = 0 if x is None else stride_of(x)
    return struct_of("<5q", n, m, columns, stride, stride_of(index))


def _each(trick, kernel, count, block, args):
    """One thread for each of `count`."""
    return Launch(_kernel(trick, kernel), (max(1, cdiv(count, block)), 1, 1), args, (block, 1, 1))


def _kernel(trick: str, name: str) -> CudaKernel:
    return CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), name)


def _ints(count: int) -> TensorSpec:
    return TensorSpec.contiguous((count,), torch.int32)


def _scratch(count: int, dtype: torch.dtype) -> Scratch:
    return Scratch(TensorSpec.contiguous((count,), dtype))
