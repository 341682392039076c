"""Launches of the CUDA C++ rungs. Runs of positions are found by the launches of embedding's
gradient."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import (
    CudaKernel,
    Launch,
    Plan,
    Scratch,
    TensorSpec,
    f32,
    i32,
    i64,
    rows_view,
)
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE
from kernelwright.ops.embedding.lookup import cuda as lookup
from kernelwright.ops.embedding.lookup import cuda_runs as runs

from .heuristics import vector

ALPHA = f32("alpha")


def atomics(gpu, config, x, index, source, alpha=1.0):
    block, count = config["block"], x.numel()
    width = min(config["vec"], vector(x, source))
    vectors, whole = x.shape[1] // width, x.dtype == torch.float32
    sum_of = "y" if whole else "sums"
    widen = _each(
        "atomics", f"widen<{CTYPE[x.dtype]}, {width}, {block}>", count // width, block,
        "x", sum_of, i64(x.shape[0]), i64(vectors), i64(_stride(x)),
    )  # fmt: skip
    add = _each(
        "atomics", f"atomics<{CTYPE[x.dtype]}, {CTYPE[index.dtype]}, {width}, {block}>",
        index.numel() * vectors, block, "index", "source", sum_of,
        *map(i64, (index.numel(), x.shape[0], vectors, _stride(source))), ALPHA,
    )  # fmt: skip
    if whole:
        return Plan(lookup.in_turn(widen, add))
    narrow = _each(
        "atomics", f"narrow<{CTYPE[x.dtype]}, {block}>", count, block, "sums", "y", i64(count)
    )
    sums = Scratch(TensorSpec.contiguous(x.shape, torch.float32))
    return Plan(lookup.in_turn(widen, add, narrow), {"sums": sums})


def small(gpu, config, x, index, source, alpha=1.0):
    block, width, n = config["block"], vector(x, source), index.numel()
    vectors = x.shape[1] // width
    copy = _each(
        "small", f"copy<{CTYPE[x.dtype]}, {width}, {block}>", x.numel() // width, block,
        "x", "y", i64(x.shape[0]), i64(vectors), i64(_stride(x)),
    )  # fmt: skip
    name = f"index_add_small<{CTYPE[x.dtype]}, {CTYPE[index.dtype]}, {width}, {block}>"
    add = Launch(
        CudaKernel(_source("small"), name), (n, 1, 1),
        ("x", "index", "source", "y", i32(n), i64(x.shape[0]), i32(vectors), i64(_stride(x)),
         i64(_stride(source)), ALPHA),
        (block, 1, 1),
    )  # fmt: skip
    return Plan(lookup.in_turn(copy, add) if n else (copy,))


def ordered(gpu, config, x, index, source, alpha=1.0):
    block, width, piece = config["block"], vector(x, source), config["piece"]
    n, vectors, rows = index.numel(), x.shape[1] // width, x.shape[0]
    step = cdiv(vectors, config["each"])
    pieces, listed = runs._pieces(index, piece, piece), runs._listed(index)
    launches, scratch = _runs_of(index, rows, piece)
    order = Launch(
        CudaKernel(_source("find_runs"), f"embedding_order<{runs.ORDER}>"),
        (min(listed, 6 * gpu.sms), 1, 1),
        ("cursors", "listed", "positions", "ordered", i32(n)),
        (runs.ORDER, 1, 1),
    )
    name = f"embedding_bwd_slots_pieces<{CTYPE[x.dtype]}, {width}, {block}>"
    in_pieces = Launch(
        CudaKernel(_source("ordered"), name), runs._all(gpu, pieces * vectors, block),
        ("source", "cursors", "pieces", "ordered", "partials", i32(vectors), i64(_stride(source))),
        (block, 1, 1),
    )  # fmt: skip
    grid, chunk = lookup._cells(rows, step, block)
    shape = f"{width}, {piece}, {config['each']}, {config['resident']}, {block}"
    by_row = Launch(
        CudaKernel(_source("ordered"), f"index_add_rows<{CTYPE[x.dtype]}, {shape}>"), grid,
        ("x", "source", "buckets", "places", "ordered", "partials", "y", i64(rows), i32(vectors),
         i32(step), i32(chunk), i64(_stride(x)), i64(_stride(source)), ALPHA),
        (block, 1, 1),
    )  # fmt: skip
    long = (*([order] if listed else []), *([in_pieces] if pieces else []))
    partials = TensorSpec.contiguous((pieces, x.shape[1]), torch.float32)
    scratch |= {"ordered": runs._ints(n), "partials": Scratch(partials)}
    return Plan(lookup.in_turn(*launches, *long, by_row), scratch)


def _runs_of(index, rows, piece):
    """The launches that find runs of the argument `index`, which embedding calls `indices`."""
    launches, scratch = runs._runs(index, rows, -1, piece, piece)
    renamed = (
        Launch(
            CudaKernel(_source("find_runs"), step.kernel.name),
            step.grid,
            tuple("index" if a == "indices" else a for a in step.args),
            step.block,
        )
        for step in launches
    )
    return tuple(renamed), scratch


def vec16_backward(gpu, config, gy, index, alpha=1.0):
    block, unroll, width = config["block"], config["unroll"], vector(gy)
    vectors = gy.shape[1] // width
    grid, chunk = lookup._cells(index.numel(), vectors, block * unroll)
    types = f"{CTYPE[gy.dtype]}, {CTYPE[index.dtype]}"
    launch = Launch(
        CudaKernel(_source("vec16"), f"index_add_bwd_vec16<{types}, {width}, {unroll}, {block}>"),
        grid,
        ("gy", "index", "gsource", i64(index.numel()), i32(vectors), i32(chunk),
         i64(gy.shape[0]), i64(_stride(gy)), ALPHA),
        (block, 1, 1),
    )  # fmt: skip
    return Plan((launch,))


def _each(file, kernel, count, block, *args):
    """One thread for each of `count`."""
    grid = (max(1, cdiv(count, block)), 1, 1)
    return Launch(CudaKernel(_source(file), f"index_add_{kernel}"), grid, args, (block, 1, 1))


def _source(trick: str) -> Path:
    return Path(__file__).with_name(f"cuda_{trick}.cu")


def _stride(rows) -> int:
    return rows_view(rows.shape, rows.stride())[2]
