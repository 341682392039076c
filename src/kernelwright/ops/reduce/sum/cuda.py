"""Launch plans of the CUDA rungs. The kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i64
from kernelwright.contract.arithmetic import cdiv, gcd, next_power_of_2
from kernelwright.contract.template_args import CTYPE

from .spec import result_dtype
from .tiling import reduction


def interleaved(gpu, config, x, dim, to=None):
    return _passes("interleaved", config, x, to, per_thread=1, shared=True)


def strided(gpu, config, x, dim, to=None):
    return _passes("strided", config, x, to, per_thread=1, shared=True)


def sequential(gpu, config, x, dim, to=None):
    return _passes("sequential", config, x, to, per_thread=1, shared=True)


def first_add(gpu, config, x, dim, to=None):
    return _passes("first_add", config, x, to, per_thread=2, shared=True)


def last_warp(gpu, config, x, dim, to=None):
    return _passes("last_warp", config, x, to, per_thread=2, shared=True)


def unrolled(gpu, config, x, dim, to=None):
    return _passes("unrolled", config, x, to, config["block"], per_thread=2)


def grid_stride(gpu, config, x, dim, to=None):
    return _passes("grid_stride", config, x, to, config["block"], per_thread=config["items"])


def shuffle(gpu, config, x, dim, to=None):
    return _passes("shuffle", config, x, to, config["block"], per_thread=config["items"])


def vec16(gpu, config, x, dim, to=None):
    block, vecs = config["block"], config["vecs"]
    return _passes("vec16", config, x, to, block, vecs, vectors=vecs)


def two_pass(gpu, config, x, dim, to=None):
    block, vecs = config["block"], config["vecs"]
    return _passes(
        "two_pass",
        config,
        x,
        to,
        block,
        vecs,
        vectors=vecs,
        limit=gpu.sms * config["blocks_per_sm"],
    )


def _passes(
    trick, config, x, to, *template, per_thread=0, vectors=0, shared=False, limit=None
) -> Plan:
    """Launches the same kernel over its own results until one is left.

    Args:
        template: the kernel's template arguments after the types that it reads and writes.
        per_thread, vectors: elements, or 16-byte vectors, per thread.
        shared: whether the kernel needs one accumulator per thread in dynamic shared memory.
        limit: maximum number of blocks of a launch, for kernels in which threads loop.
    """
    accumulator = _accumulator(x)
    source, dtype, n, launches, scratch = "x", x.dtype, x.numel(), [], {}
    while source != "y":
        tile = config["block"] * (per_thread or vectors * 16 // dtype.itemsize)
        # after a loop has reduced the input to one partial sum per block, one block is enough
        blocks = 1 if limit and launches else min(cdiv(n, tile), limit or n)
        target = "y" if blocks == 1 else f"partials{len(launches)}"
        to_type = result_dtype(x, to) if blocks == 1 else accumulator
        arguments = ", ".join((CTYPE[dtype], CTYPE[to_type], *map(str, template)))
        launches.append(
            Launch(
                _kernel(trick, arguments),
                grid=(blocks, 1, 1),
                block=(config["block"], 1, 1),
                args=(source, target, i64(n)),
                shared=config["block"] * accumulator.itemsize if shared else 0,
            )
        )
        if blocks > 1:
            scratch[target] = Scratch(TensorSpec.contiguous((blocks,), accumulator))
        source, dtype, n = target, accumulator, blocks
    return Plan(tuple(launches), scratch)


def atomics(gpu, config, x, dim, to=None):
    launch = Launch(
        _kernel("atomics", _stream_template(config, x, to)),
        grid=(_stream_blocks(gpu, config, x, x.numel()), 1, 1),
        block=(config["block"], 1, 1),
        args=("x", "sum_of_blocks", "arrived", "y", i64(x.numel())),
    )
    scratch = {
        "sum_of_blocks": Scratch(TensorSpec.contiguous((1,), _accumulator(x)), zero=True),
        "arrived": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True),
    }
    return Plan((launch,), scratch)


def last_block(gpu, config, x, dim, to=None):
    r = reduction(x, tuple(dim))
    blocks = _stream_blocks(gpu, config, x, r.n, r.outer)
    launch = Launch(
        _kernel("last_block", _stream_template(config, x, to)),
        grid=(blocks, r.outer, 1),
        block=(config["block"], 1, 1),
        args=("x", "partials", "arrived", "y", i64(r.n), i64(r.x_outer), i64(r.y_outer)),
    )
    return Plan((launch,), _counted(x, r.outer * blocks, r.outer))


def flagged(gpu, config, x, dim, to=None):
    r = reduction(x, tuple(dim))
    blocks = _stream_blocks(gpu, config, x, r.n, r.outer)
    launch = Launch(
        _kernel("flagged", _stream_template(config, x, to)),
        grid=(blocks, r.outer, 1),
        block=(config["block"], 1, 1),
        args=("x", "words", "y", i64(r.n), i64(r.x_outer), i64(r.y_outer)),
    )
    words = r.outer * blocks * _accumulator(x).itemsize // 4
    return Plan((launch,), {"words": Scratch(TensorSpec.contiguous((words,), torch.int64), True)})


def rows(gpu, config, x, dim, to=None):
    r = reduction(x, tuple(dim))
    block, lanes, vecs = config["block"], config["lanes"], config["vecs"]
    types = f"{CTYPE[x.dtype]}, {CTYPE[result_dtype(x, to)]}"
    launch = Launch(
        _kernel("rows", f"{types}, {block}, {lanes}, {vecs}"),
        grid=(cdiv(r.outer, block // lanes), 1, 1),
        block=(block, 1, 1),
        args=("x", "y", i64(r.outer), i64(r.n), i64(r.x_outer), i64(r.y_outer)),
    )
    return Plan((launch,))


def columns(gpu, config, x, dim, to=None):
    r = reduction(x, tuple(dim))
    block, vecs = config["block"], config["vecs"]
    width = gcd(16 // x.itemsize, x.align // x.itemsize, r.inner, r.x_n, r.x_outer)
    across = min(config["x"], next_power_of_2(cdiv(r.inner, width)))
    down = block // across
    tiles = cdiv(r.inner, across * width)
    wanted = gpu.sms * config["blocks_per_sm"] // (r.outer * tiles)
    splits = max(1, min(wanted, cdiv(r.n, down * vecs)))
    types = f"{CTYPE[x.dtype]}, {CTYPE[result_dtype(x, to)]}"
    launch = Launch(
        _kernel("columns", f"{types}, {block}, {width}, {vecs}"),
        grid=(r.outer * tiles, splits, 1),
        block=(across, down, 1),
        args=(
            *("x", "partials", "arrived", "y", i64(r.n), i64(r.inner), i64(tiles)),
            *(i64(r.x_outer), i64(r.x_n), i64(r.y_outer), i64(r.y_inner)),
        ),
    )
    shared = r.outer * tiles if splits > 1 else 1
    partials = shared * splits * across * width if splits > 1 else 1
    return Plan((launch,), _counted(x, partials, shared))


def _kernel(trick: str, arguments: str) -> CudaKernel:
    source = Path(__file__).with_name(f"cuda_{trick}.cu")
    return CudaKernel(source, f"sum_{trick}<{arguments}>")


def _accumulator(x: TensorSpec) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _stream_template(config, x, to) -> str:
    types = f"{CTYPE[x.dtype]}, {CTYPE[result_dtype(x, to)]}"
    return f"{types}, {config['block']}, {config['vecs']}"


def _stream_blocks(gpu, config, x, n: int, rows: int = 1) -> int:
    """Blocks for a row of n elements: as many as it has tiles, but at most its share of the GPU."""
    tile = config["block"] * config["vecs"] * 16 // x.itemsize
    return max(1, min(cdiv(n, tile), gpu.sms * config["blocks_per_sm"] // rows))


def _counted(x: TensorSpec, partials: int, counters: int) -> dict[str, Scratch]:
    """Partial sums, and counters of the blocks that have stored theirs; they return to zero."""
    return {
        "partials": Scratch(TensorSpec.contiguous((partials,), _accumulator(x))),
        "arrived": Scratch(TensorSpec.contiguous((counters,), torch.int32), zero=True),
    }
