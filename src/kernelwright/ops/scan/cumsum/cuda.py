"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .tiling import columns_of, rows_of, tiles_of

CLEAR = 256  # threads that clear words


def _serial(config, source, result, x, exclusive, reverse):
    r, block = rows_of(x), config["block"]
    kernel = _kernel("serial", x, boolean(exclusive), boolean(reverse))
    args = (source, result, i64(r.rows), i64(r.n), i64(r.strides[0]))
    return _plan(kernel, cdiv(r.rows, block), block, args)


def _hillis_steele(config, source, result, x, exclusive, reverse):
    return _row_each("hillis_steele", config, source, result, x, exclusive, reverse)


def _blelloch(config, source, result, x, exclusive, reverse):
    return _row_each("blelloch", config, source, result, x, exclusive, reverse)


def _row_each(rung, config, source, result, x, exclusive, reverse):
    r = rows_of(x)
    kernel = _kernel(rung, x, boolean(exclusive), boolean(reverse), config["block"])
    return _plan(kernel, r.rows, config["block"], (source, result, i64(r.n), i64(r.strides[0])))


def _warp(config, source, result, x, exclusive, reverse):
    r, block = rows_of(x), config["block"]
    kernel = _kernel("warp", x, boolean(exclusive), boolean(reverse), block)
    args = (source, result, i64(r.rows), i64(r.n), i64(r.strides[0]))
    return _plan(kernel, cdiv(r.rows, block // 32), block, args)


def _block(config, source, result, x, exclusive, reverse, starts=None):
    r = rows_of(*_present(x, starts), reverse=reverse)
    t = tiles_of(r, config)
    name = "block_sums" if starts is None else "block_segments"
    options = (boolean(exclusive), boolean(reverse), r.width, t.vecs, t.block)
    args = (*_named(source, starts), result, i64(r.n), *map(i64, r.strides))
    return _plan(_kernel("block", x, *options, name=name), r.rows, t.block, args)


def _three_pass(config, source, result, x, exclusive, reverse):
    r = rows_of(x, reverse=reverse)
    t = tiles_of(r, config)
    blocks, shape = r.rows * t.count, (r.width, t.vecs, t.block)
    common = (i64(r.n), i64(t.count), i64(r.strides[0]))
    carried = _carried(x)
    launches = (
        Launch(
            _kernel("three_pass", x, boolean(reverse), *shape, name="totals"),
            (blocks, 1, 1), (source, "totals", *common), (t.block, 1, 1),
        ),
        Launch(
            CudaKernel(_source("three_pass"), f"scan_of_totals<{CTYPE[carried]}, 256>"),
            (r.rows, 1, 1), ("totals", i64(t.count)), (256, 1, 1),
        ),
        Launch(
            _kernel("three_pass", x, boolean(exclusive), boolean(reverse), *shape, name="from"),
            (blocks, 1, 1), (source, "totals", result, *common), (t.block, 1, 1),
        ),
    )  # fmt: skip
    return Plan(launches, {"totals": Scratch(TensorSpec.contiguous((blocks,), carried))})


def _lookback(config, source, result, x, exclusive, reverse):
    r = rows_of(x, reverse=reverse)
    t = tiles_of(r, config)
    options = (boolean(exclusive), boolean(reverse), r.width, t.vecs, t.block)
    args = (source, "words", result, i64(r.n), i64(t.count), i64(r.strides[0]))
    launch = Launch(
        _kernel("lookback", x, *options), (r.rows * t.count, 1, 1), args, (t.block, 1, 1),
        overlaps=True,
    )  # fmt: skip
    return _cleared("lookback", launch, r.rows * t.count * 2)


def _tree(config, source, result, x, exclusive, reverse, starts=None):
    r = rows_of(*_present(x, starts), reverse=reverse)
    t = tiles_of(r, config)
    name = "tree_sums" if starts is None else "tree_segments"
    options = (boolean(exclusive), boolean(reverse), r.width, t.vecs, t.block)
    return _tree_plan(
        _kernel("tree", x, *options, name=name), r, t, _named(source, starts), result,
        2 if starts is None else 4,
    )  # fmt: skip


def _tree_plan(kernel, r, t, sources, result, words):
    """`words` 32-bit words per state."""
    several = t.count > 1
    args = (*sources, "words", result, i64(r.n), i32(t.count), *map(i64, r.strides))
    launch = Launch(kernel, (r.rows * t.count, 1, 1), args, (t.block, 1, 1), overlaps=several)
    count = r.rows * (t.count + t.count // 32 + t.count // 1024) * words
    if several:
        return _cleared("tree", launch, count)
    return Plan((launch,), {"words": _words(1)})


def _cleared(rung, launch, count):
    """A launch, preceded by one that sets its words to zero."""
    clear = Launch(
        CudaKernel(_source(rung), f"scan_clear_words<{CLEAR}>"),
        (cdiv(count, CLEAR), 1, 1), ("words", i64(count)), (CLEAR, 1, 1),
    )  # fmt: skip
    return Plan((clear, launch), {"words": _words(count)})


def _words(count):
    return Scratch(TensorSpec.contiguous((count,), torch.int64))


def _columns(config, source, result, x, exclusive, reverse, dim, starts=None):
    c = columns_of(x, dim)
    name = "columns_sums" if starts is None else "columns_segments"
    options = (boolean(exclusive), boolean(reverse), config["down"], config["each"])
    kernel = _kernel("columns", x, *options, name=name)
    strides = (_between(t, dim, c.inner) for t in _present(x, starts))
    args = (*_named(source, starts), result, i64(c.n), i64(c.inner), *map(i64, strides))
    return _columns_plan(kernel, config, c, args)


def _columns_plan(kernel, config, c, args):
    grid = (cdiv(c.inner, 32), c.outer, 1)
    return Plan((Launch(kernel, grid, args, (32, config["down"], 1)),))


def _between(t, dim, inner):
    """Elements between neighbors along the dimension: rows may have a stride of their own."""
    return rows_of(t).strides[0] if dim == -2 else inner


def block_product(gpu, config, x, dim):
    r = rows_of(x)
    t = tiles_of(r, config)
    kernel = _kernel("block", x, r.width, t.vecs, t.block, name="block_products")
    return _plan(kernel, r.rows, t.block, ("x", "y", i64(r.n), i64(r.strides[0])))


def block_product_backward(gpu, config, gy, x, y, dim):
    r = rows_of(gy, x, y, reverse=True)
    t = tiles_of(r, config)
    kernel = _kernel("block", gy, r.width, t.vecs, t.block, name="block_factors")
    args = ("gy", "x", "y", "gx", i64(r.n), *map(i64, r.strides))
    return _plan(kernel, r.rows, t.block, args)


def tree_product(gpu, config, x, dim):
    r = rows_of(x)
    t = tiles_of(r, config)
    kernel = _kernel("tree", x, r.width, t.vecs, t.block, name="tree_products")
    return _tree_plan(kernel, r, t, ("x",), "y", 2)


def tree_product_backward(gpu, config, gy, x, y, dim):
    r = rows_of(gy, x, y, reverse=True)
    t = tiles_of(r, config)
    kernel = _kernel("tree", gy, r.width, t.vecs, t.block, name="tree_factors")
    return _tree_plan(kernel, r, t, ("gy", "x", "y"), "gx", 4)


def columns_product(gpu, config, x, dim):
    c = columns_of(x, dim)
    kernel = _kernel("columns", x, config["down"], config["each"], name="columns_products")
    args = ("x", "y", i64(c.n), i64(c.inner), i64(_between(x, dim, c.inner)))
    return _columns_plan(kernel, config, c, args)


def _entries(planned, *more):
    """The entries of a rung's forward and backward, which differ in names and direction only.
    `more`: further arguments that the rung reads."""

    def forward(gpu, config, x, starts, dim, exclusive=False, reverse=False):
        given = {"starts": starts, "dim": dim}
        taken = {k: given[k] for k in more}
        return planned(config, "x", "y", x, exclusive, reverse, **taken)

    def backward(gpu, config, gy, starts, dim, exclusive=False, reverse=False):
        given = {"starts": starts, "dim": dim}
        taken = {k: given[k] for k in more}
        return planned(config, "gy", "gx", gy, exclusive, not reverse, **taken)

    return forward, backward


serial = _entries(_serial)[0]
hillis_steele = _entries(_hillis_steele)[0]
blelloch = _entries(_blelloch)[0]
warp, warp_backward = _entries(_warp)
block, block_backward = _entries(_block, "starts")
three_pass = _entries(_three_pass)[0]
lookback = _entries(_lookback)[0]
tree, tree_backward = _entries(_tree, "starts")
columns, columns_backward = _entries(_columns, "starts", "dim")


def _present(x, starts):
    return (x,) if starts is None else (x, starts)


def _named(source, starts):
    return (source,) if starts is None else (source, "starts")


def _carried(x):
    return x.dtype if x.itemsize == 8 else torch.float64


def _source(rung):
    return Path(__file__).with_name(f"cuda_{rung}.cu")


def _kernel(rung, x, *template, name=None):
    arguments = ", ".join(map(str, (CTYPE[x.dtype], *template)))
    return CudaKernel(_source(rung), f"scan_{name or rung}<{arguments}>")


def _plan(kernel, blocks, block, args):
    return Plan((Launch(kernel, (blocks, 1, 1), args, (block, 1, 1)),))
