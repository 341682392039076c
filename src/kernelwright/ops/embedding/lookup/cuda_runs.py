"""Launches of the CUDA C++ rungs that find each row's run of positions without a sort."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .cuda import _cells, _stride, in_turn
from .heuristics import vector

FOLDER = Path(__file__).parent
CURSORS = 4
BUCKET = 16  # a row's count and its first positions, as in kw::Bucket
SHORT = BUCKET - 1
COUNT, ITEMS = 256, 4  # threads that count, and positions per thread
ORDER = 256  # threads that order a longer run


def scatter(gpu, config, weight, indices, num_weights, padding_idx=-1):
    block, width, piece = config["block"], vector(weight), config["piece"]
    vectors = weight.shape[1] // width
    pieces = _pieces(indices, SHORT, piece)
    runs, scratch = _runs(indices, num_weights, -1, SHORT, piece)

    def copy(kernel, template, grid, *args):
        name = f"{kernel}<{CTYPE[weight.dtype]}, {template}, {block}>"
        return Launch(CudaKernel(FOLDER / "cuda_scatter.cu", name), grid, args, (block, 1, 1))

    in_pieces = copy(
        "embedding_fwd_scatter_pieces", f"{CTYPE[indices.dtype]}, {width}",
        _all(gpu, pieces * vectors, block),
        *("weight", "indices", "cursors", "pieces", "positions", "y"),
        *(i32(vectors), i64(_stride(weight))),
    )  # fmt: skip
    grid, chunk = _cells(num_weights, vectors, block)
    by_row = copy(
        "embedding_fwd_scatter_rows", width, grid, "weight", "buckets", "y",
        *(i64(num_weights), i32(vectors), i32(chunk), i64(_stride(weight))),
    )  # fmt: skip
    return Plan(in_turn(*runs, *([in_pieces] if pieces else []), by_row), scratch)


def slots(gpu, config, gy, indices, num_weights, padding_idx=-1):
    block, width, piece = config["block"], vector(gy), config["piece"]
    n, vectors = indices.numel(), gy.shape[-1] // width
    step = cdiv(vectors, config["each"])
    pieces, listed = _pieces(indices, piece, piece), _listed(indices)
    runs, scratch = _runs(indices, num_weights, padding_idx, piece, piece)

    def add(kernel, template, grid, *args):
        name = f"{kernel}<{CTYPE[gy.dtype]}, {template}, {block}>"
        return Launch(CudaKernel(FOLDER / "cuda_slots.cu", name), grid, args, (block, 1, 1))

    order = Launch(
        CudaKernel(FOLDER / "cuda_runs.cu", f"embedding_order<{ORDER}>"),
        (min(listed, 6 * gpu.sms), 1, 1),
        ("cursors", "listed", "positions", "ordered", i32(n)),
        (ORDER, 1, 1),
    )
    in_pieces = add(
        "embedding_bwd_slots_pieces", width, _all(gpu, pieces * vectors, block),
        *("gy", "cursors", "pieces", "ordered", "partials", i32(vectors), i64(_stride(gy))),
    )  # fmt: skip
    grid, chunk = _cells(num_weights, step, block)
    by_row = add(
        "embedding_bwd_slots_rows",
        f"{width}, {piece}, {config['each']}, {config['resident']}", grid,
        *("gy", "buckets", "places", "ordered", "partials", "gweight"),
        *(i64(num_weights), i32(vectors), i32(step), i32(chunk), i64(_stride(gy))),
    )  # fmt: skip
    long = (*([order] if listed else []), *([in_pieces] if pieces else []))
    partials = TensorSpec.contiguous((pieces, gy.shape[-1]), torch.float32)
    scratch |= {"ordered": _ints(n), "partials": Scratch(partials)}
    return Plan(in_turn(*runs, *long, by_row), scratch)


def _runs(indices, rows: int, padding: int, whole: int, piece: int):
    """(launches that find runs, scratch). Runs of more than `whole` positions are divided."""
    n, listed, index = indices.numel(), _listed(indices), CTYPE[indices.dtype]

    def each(kernel, template, count, *args):
        name = CudaKernel(FOLDER / "cuda_runs.cu", f"embedding_{kernel}<{template}{COUNT}>")
        return Launch(name, (cdiv(count, COUNT), 1, 1), args, (COUNT, 1, 1))

    clear = each("clear", "", max(4 * rows, CURSORS), "buckets", "cursors", i32(rows))
    count = each(
        "count", f"{index}, {whole}, {piece}, {ITEMS}, ", cdiv(n, ITEMS),
        *("indices", "buckets", "slots", "cursors", "listed", "places", "pieces"),
        *(i32(n), i64(rows), i64(padding)),
    )  # fmt: skip
    place = each(
        "place", f"{index}, ", n,
        *("indices", "buckets", "slots", "cursors", "listed", "places", "positions", i32(n)),
    )  # fmt: skip
    scratch = {
        "buckets": _ints(rows, BUCKET),
        "cursors": _ints(CURSORS),
        "slots": _ints(n),
        "listed": _ints(listed, 4),
        "places": _ints(rows, 2),
        "pieces": _ints(_pieces(indices, whole, piece), 2),
        "positions": _ints(n),
    }
    return (clear, count, *([place] if listed else [])), scratch


def _listed(indices) -> int:
    """The largest possible number of rows with more positions than a bucket holds."""
    return indices.numel() // (SHORT + 1)


def _pieces(indices, whole: int, piece: int) -> int:
    """The largest possible number of pieces: full ones, and the last one of each divided run."""
    return indices.numel() // piece + indices.numel() // (whole + 1)


def _all(gpu, items: int, block: int):
    """A grid of as many threads as the GPU holds, which iterate over at most that many items."""
    return max(1, min(cdiv(items, block), 2048 // block * gpu.sms)), 1, 1


def _ints(*shape: int) -> Scratch:
    return Scratch(TensorSpec.contiguous(shape, torch.int32))
