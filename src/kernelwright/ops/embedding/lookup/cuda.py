"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64, rows_view
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .heuristics import vector

ITEMS = 8  # keys that a thread sorts


def vec16(gpu, config, weight, indices, num_weights, padding_idx=-1):
    block, unroll, width = config["block"], config["unroll"], vector(weight)
    vectors = weight.shape[1] // width
    grid, chunk = _cells(indices.numel(), vectors, block * unroll)
    launch = Launch(
        _kernel("vec16", "embedding_fwd_vec16", weight, indices, width, unroll, block),
        grid,
        args=(
            *("weight", "indices", "y", i64(indices.numel()), i32(vectors), i32(chunk)),
            *(i64(num_weights), i64(_stride(weight))),
        ),
        block=(block, 1, 1),
    )
    return Plan((launch,))


def sliced(gpu, config, weight, indices, num_weights, padding_idx=-1):
    block, unroll, width = config["block"], config["unroll"], vector(weight)
    vectors, slice_ = weight.shape[1] // width, config["slice"] // 16
    launch = Launch(
        _kernel("sliced", "embedding_fwd_sliced", weight, indices, width, unroll, block),
        grid=(cdiv(indices.numel() * slice_, block * unroll), cdiv(vectors, slice_), 1),
        args=(
            *("weight", "indices", "y", i64(indices.numel()), i32(vectors), i32(slice_)),
            *(i64(num_weights), i64(_stride(weight))),
        ),
        block=(block, 1, 1),
    )
    return Plan((launch,))


def atomics(gpu, config, gy, indices, num_weights, padding_idx=-1):
    block, width, count = config["block"], vector(gy), num_weights * gy.shape[-1]
    vectors = gy.shape[-1] // width
    whole = gy.dtype == torch.float32  # sums are added directly to the gradient
    sum_of = "gweight" if whole else "sums"
    chunk = max(config["chunk"], cdiv(vectors, 65535))
    add = Launch(
        _kernel("atomics", "embedding_bwd_atomics", gy, indices, width, config["tile"], block),
        grid=(cdiv(indices.numel(), config["tile"]), cdiv(vectors, chunk), 1),
        args=(
            *("gy", "indices", sum_of, i64(indices.numel()), i32(vectors), i32(chunk)),
            *(i64(num_weights), i64(_stride(gy)), i64(padding_idx)),
        ),
        block=(block, 1, 1),
    )
    each = {"grid": (cdiv(count, 4 * block), 1, 1), "block": (block, 1, 1)}
    zero = Launch(
        CudaKernel(_source("atomics"), f"embedding_zero<{block}>"),
        args=(sum_of, i64(count)),
        **each,
    )
    if whole:
        return Plan(in_turn(zero, add))
    narrow = Launch(
        CudaKernel(_source("atomics"), f"embedding_narrow<{CTYPE[gy.dtype]}, {block}>"),
        args=("sums", "gweight", i64(count)),
        **each,
    )
    sums = TensorSpec.contiguous((num_weights, gy.shape[-1]), torch.float32)
    return Plan(in_turn(zero, add, narrow), {"sums": Scratch(sums)})


def sorted_(gpu, config, gy, indices, num_weights, padding_idx=-1):
    """Sorts positions by index, then adds in that order."""
    n, block, piece = indices.numel(), config["block"], config["piece"]
    sort, ordered, scratch = _sort(indices, n, num_weights)
    width = vector(gy)
    vectors, pieces = gy.shape[-1] // width, cdiv(n, piece)

    def add(kernel, rows, unroll, *args):
        grid, chunk = _cells(rows, vectors, block)
        name = f"{kernel}<{CTYPE[gy.dtype]}, {width}, {piece}, {unroll}, {block}>"
        return Launch(
            CudaKernel(_source("sorted"), name),
            grid,
            args=tuple(i32(chunk) if a == "chunk" else a for a in args),
            block=(block, 1, 1),
        )

    stride = i64(_stride(gy))
    in_pieces = add(
        "embedding_bwd_pieces", pieces, 8, "gy", ordered, "starts", "partials", i32(n), i32(pieces),
        i32(vectors), "chunk", stride,
    )  # fmt: skip
    by_row = add(
        "embedding_bwd_rows", num_weights, config["unroll"], "gy", ordered, "starts", "partials",
        "gweight", i64(num_weights), i32(vectors), "chunk", stride, i64(padding_idx),
    )  # fmt: skip
    partials = TensorSpec.contiguous((pieces, 2, gy.shape[-1]), torch.float32)
    launches = in_turn(*sort, in_pieces, by_row)
    return Plan(launches, {**scratch, "partials": Scratch(partials)})


def _sort(indices, n: int, rows: int):
    """(launches, name of the sorted pairs, scratch). Digits have eight bits, or nine if that saves
    a pass."""
    key_bits = max(1, (rows - 1).bit_length())
    passes = cdiv(key_bits, 9)
    bits = 8 if 8 * passes >= key_bits else 9
    block = 1 << bits
    tiles = cdiv(n, block * ITEMS)
    launches, source, dtype = [], "indices", indices.dtype
    for k in range(passes):
        target = f"pairs{k % 2}"
        kind = CTYPE[dtype] if source == "indices" else "unsigned long long"
        args = (i32(n), i32(bits * k), i64(rows))
        launches += [
            _order(f"embedding_count<{kind}, {bits}, {ITEMS}, {block}>", tiles, block,
                   source, "counts", *args),
            _order("embedding_scan<256>", cdiv(block, 8), 256, "counts", "totals", i32(tiles)),
            _order(f"embedding_place<{kind}, {bits}, {ITEMS}, {block}>", tiles, block,
                   source, "counts", "totals", target, *args),
        ]  # fmt: skip
        source = target
    launches.append(
        _order(
            "embedding_starts<256>", cdiv(rows + 1, 256), 256, source, "starts", i32(n), i32(rows)
        )
    )
    scratch = {f"pairs{k}": ((n,), torch.int64) for k in range(min(passes, 2))}
    scratch |= {
        "counts": ((block * tiles,), torch.int32),
        "totals": ((block,), torch.int32),
        "starts": ((rows + 1,), torch.int32),
    }
    return launches, source, {k: Scratch(TensorSpec.contiguous(*v)) for k, v in scratch.items()}


def _order(name, blocks, block, *args):
    return Launch(CudaKernel(_source("order"), name), (blocks, 1, 1), args, (block, 1, 1))


def in_turn(first: Launch, *others: Launch) -> tuple[Launch, ...]:
    """Launches with overlap: each starts early and waits on the GPU for the previous one to end."""
    return first, *(replace(launch, overlaps=True) for launch in others)


def _cells(rows: int, vectors: int, per_block: int):
    """(grid, rows per blockIdx.y), with one vector of a row per thread, as `kw::Cell` counts
    them."""
    chunk = max(1, min(rows, (2**32 - per_block) // vectors, 2**31 - 1))
    return (cdiv(chunk * vectors, per_block), cdiv(rows, chunk), 1), chunk


def _kernel(trick, name, x, indices, *numbers):
    template = (CTYPE[x.dtype], CTYPE[indices.dtype], *map(str, numbers))
    return CudaKernel(_source(trick), f"{name}<{', '.join(template)}>")


def _source(trick: str) -> Path:
    return Path(__file__).with_name(f"cuda_{trick}.cu")


def _stride(rows) -> int:
    return rows_view(rows.shape, rows.stride())[2]
