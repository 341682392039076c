"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path
from struct import pack

from kernelwright.contract import CudaKernel, Launch, Plan, i64, packed
from kernelwright.contract.arithmetic import cdiv

from .heuristics import blocks_of, width
from .tiling import Dim, tiles, walk

ONE = Dim(1, 0, 0)


def naive(gpu, config, x, dims):
    *outer, row = walk(x, tuple(dims))
    column = outer.pop() if outer else ONE
    args = ("x", "y", *map(i64, (x.numel(), row.size, row.x, column.size, column.x)))
    kernel = _kernel("naive", x.itemsize)
    grid = blocks_of(x.numel(), config["block"])
    return _plan(kernel, grid, (config["block"], 1, 1), (*args, _packed(outer)))


def rows(gpu, config, x, dims):
    *outer, row = walk(x, tuple(dims))
    column, w = outer.pop() if outer else ONE, width(x, dims)
    args = ("x", "y", *map(i64, (x.numel(), row.size, column.size, column.x)))
    kernel = _kernel("rows", x.itemsize, w, config["block"])
    grid = blocks_of(x.numel() // w, config["block"])
    return _plan(kernel, grid, (config["block"], 1, 1), (*args, _packed(outer)))


def tile(gpu, config, x, dims):
    return _square("tile", config, x, dims)


def padded(gpu, config, x, dims):
    return _square("padded", config, x, dims)


def _square(rung, config, x, dims):
    kernel = _kernel(rung, x.itemsize, config["down"])
    return _tiled(kernel, 32, (32, config["down"], 1), x, dims)


def swizzled(gpu, config, x, dims):
    side = 128 // x.itemsize
    kernel = _kernel("swizzled", x.itemsize, config["block"])
    return _tiled(kernel, side, (config["block"], 1, 1), x, dims)


def _tiled(kernel, side, block, x, dims):
    t = tiles(x, tuple(dims))
    across = cdiv(t.column.size, side)
    of_matrix = across * cdiv(t.row.size, side)
    grid = blocks_of(of_matrix * math.prod(d.size for d in t.outer), 1)
    args = (t.row.size, t.row.x, t.column.size, t.column.y, across, of_matrix)
    return _plan(kernel, grid, block, ("x", "y", *map(i64, args), _packed(t.outer)))


def _packed(outer):
    """kw::Outer: the outer dimensions, the innermost first."""
    three = [*reversed(outer), ONE, ONE, ONE][:3]
    return packed(pack("<9q", *(value for of in zip(*three, strict=True) for value in of)))


def _kernel(trick, *template):
    source = Path(__file__).with_name(f"cuda_{trick}.cu")
    return CudaKernel(source, f"permute_{trick}<{', '.join(map(str, template))}>")


def _plan(kernel, grid, block, args):
    return Plan((Launch(kernel, grid, args, block),))
