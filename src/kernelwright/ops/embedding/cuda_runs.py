"""Launches of the CUDA C++ rungs that find each row's run of positions without a sort."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv

from .choose import vector
from .cuda import CTYPE, _cells, _stride

FOLDER = Path(__file__).parent
CURSORS = 3
SHORT = 32  # positions of a run that who adds them also puts in order
ORDER = 256  # threads that put a longer one in order


def scatter(gpu, config, weight, indices, num_weights, padding_idx=-1):
    piece, index = config["piece"], CTYPE[indices.dtype]
    pieces = _pieces(indices, piece)
    runs, scratch = _runs(config, indices, num_weights, -1, short=2**31 - 1)
    by_row = _each_vector(
        "embedding_fwd_scatter_rows", f"{piece}, ", config, weight, num_weights,
        "weight", "runs", "positions", "y",
    )  # fmt: skip
    in_pieces = _each_vector(
        "embedding_fwd_scatter_pieces", "", config, weight, pieces,
        "weight", "indices", "cursors", "pieces", "positions", "y", index=f"{index}, ",
    )  # fmt: skip
    return Plan((*runs, by_row, *([in_pieces] if pieces else [])), scratch)


def slots(gpu, config, gy, indices, num_weights, padding_idx=-1):
    n, piece = indices.numel(), config["piece"]
    pieces, listed = _pieces(indices, piece), n // (SHORT + 1)
    runs, scratch = _runs(config, indices, num_weights, padding_idx, SHORT)
    order = Launch(
        CudaKernel(FOLDER / "cuda_runs.cu", f"embedding_order<{ORDER}>"),
        (min(listed, 6 * gpu.sms), 1, 1),
        ("cursors", "runs", "listed", "positions", "ordered", i32(n)),
        (ORDER, 1, 1),
    )
    in_pieces = _each_vector(
        "embedding_bwd_slots_pieces", "", config, gy, pieces,
        "gy", "cursors", "pieces", "ordered", "partials",
    )  # fmt: skip
    by_row = _each_vector(
        "embedding_bwd_slots_rows", f"{SHORT}, {piece}, ", config, gy, num_weights,
        "gy", "runs", "positions", "ordered", "counts", "partials", "gweight",
    )  # fmt: skip
    long = (*([order] if listed else []), *([in_pieces] if pieces else []))
    partials = TensorSpec.contiguous((pieces, gy.shape[-1]), torch.float32)
    scratch |= {"ordered": _ints(n), "partials": Scratch(partials)}
    return Plan((*runs, *long, by_row), scratch)


def _runs(config, indices, rows: int, padding: int, short: int):
    """(launches that make runs, scratch). Runs of more than `short` positions are listed."""
    n, block, piece = indices.numel(), config["block"], config["piece"]
    index = CTYPE[indices.dtype]

    def each(kernel, template, count, *args):
        name = CudaKernel(FOLDER / "cuda_runs.cu", f"embedding_{kernel}<{template}{block}>")
        return Launch(name, (cdiv(count, block), 1, 1), args, (block, 1, 1))

    launches = (
        each("clear", "", rows, "counts", "cursors", i32(rows)),
        each("count", f"{index}, ", n,
             "indices", "counts", "slots", i32(n), i64(rows), i64(padding)),
        each("starts", f"{short}, {piece}, ", rows,
             "counts", "cursors", "runs", "listed", "pieces", i32(rows)),
        each("place", f"{index}, ", n,
             "indices", "slots", "runs", "positions", i32(n), i64(padding)),
    )  # fmt: skip
    scratch = {
        "counts": _ints(rows),
        "cursors": _ints(CURSORS),
        "slots": _ints(n),
        "runs": _ints(rows, 2),
        "listed": _ints(n // (short + 1)),
        "pieces": _ints(_pieces(indices, piece), 2),
        "positions": _ints(n),
    }
    return launches, scratch


def _pieces(indices, piece: int) -> int:
    """The most there can be: a run that is cut is longer than a piece, and its last one shorter."""
    return 2 * (indices.numel() // piece)


def _each_vector(kernel, template, config, x, rows: int, *args, index=""):
    """A launch with a thread for each vector of so many rows of x's length."""
    block, width = config["block"], vector(x)
    vectors = x.shape[-1] // width
    grid, chunk = _cells(rows, vectors, block)
    trick = kernel.split("_")[2]
    name = f"{kernel}<{CTYPE[x.dtype]}, {index}{width}, {template}{block}>"
    sizes = i64(rows), i32(vectors), i32(chunk), i64(_stride(x))
    return Launch(
        CudaKernel(FOLDER / f"cuda_{trick}.cu", name), grid, (*args, *sizes), (block, 1, 1)
    )


def _ints(*shape: int) -> Scratch:
    return Scratch(TensorSpec.contiguous(shape, torch.int32))
