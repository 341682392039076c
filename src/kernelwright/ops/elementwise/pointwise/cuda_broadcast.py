"""Launches of the CUDA C++ rung that broadcasts, for every operator of two arguments.

Entries are named as those of cuda.py, for example `broadcast_add` or `broadcast_mul_backward`.
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .spec import TABLE
from .tiling import Broadcast, broadcast

SOURCE = Path(__file__).parent / "cuda_broadcast.cu"
WARP = 32


def forward(formula, gpu, config, x, other):
    found = broadcast(x, other)
    assert isinstance(found, Broadcast)
    width, block, unroll = 16 // x.itemsize, config["block"], config["unroll"]
    along = ", ".join(f"Along::{a.kind}" for a in found.operands)
    template = ", ".join(
        (
            along,
            boolean(_whole(found, (x, other), width)),
            f"{block}, {unroll}, {boolean(config['stream'])}",
        )
    )
    sizes = i64(found.rows), i32(found.cols), *(i64(a.stride) for a in found.operands)
    tile = block * unroll * width
    return Plan((
        Launch(
            _kernel("elementwise_broadcast", f"kw::{formula}, {CTYPE[x.dtype]}, {template}"),
            grid=(cdiv(found.rows * found.cols, tile), 1, 1),
            block=(block, 1, 1),
            args=("x", "other", "y", *sizes),
        ),
    ))  # fmt: skip


def backward(formula, gpu, config, gy, x, other):
    cols = other.numel()
    rows, itemsize = x.numel() // cols, x.itemsize
    aligned = min(t.align for t in (gy, x, other)) // itemsize
    width = math.gcd(16 // itemsize, aligned, cols)
    down, unroll = config["down"], config["unroll"]
    strips = cdiv(cols, WARP * width)
    share = cdiv(rows, max(1, config["blocks_per_sm"] * gpu.sms // strips))
    parts = cdiv(rows, share)
    stream = boolean(config["stream"] and width * itemsize == 16)
    template = f"kw::{formula}, {CTYPE[x.dtype]}, {width}, {down}, {unroll}, {stream}"
    walk = Launch(
        _kernel("elementwise_broadcast_backward", template),
        grid=(strips, parts, 1),
        block=(WARP, down, 1),
        args=("gy", "x", "other", "gx", "part", i64(rows), i32(cols), i64(share)),
    )
    add = Launch(
        _kernel("elementwise_broadcast_parts", CTYPE[x.dtype]),
        grid=(cdiv(cols, WARP), 1, 1),
        block=(WARP, 8, 1),
        args=("part", "gother", i32(parts), i32(cols)),
    )
    part = TensorSpec.contiguous((parts, cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})


def _whole(found, tensors, width: int) -> bool:
    """Whether vectors end where rows end, and the vectors of a common row are aligned."""
    rows = [(t, a) for t, a in zip(tensors, found.operands, strict=True) if a.kind == "kRow"]
    return found.cols % width == 0 and all(t.align == 16 and a.stride % width == 0 for t, a in rows)


def _kernel(name, template):
    return CudaKernel(SOURCE, f"{name}<{template}>")


def __getattr__(entry: str):
    trick, _, rest = entry.partition("_")
    name = rest.removesuffix("_backward")
    if trick != "broadcast" or name not in TABLE or not TABLE[name].binary:
        raise AttributeError(f"module {__name__!r} has no attribute {entry!r}")
    formula = "".join(word.capitalize() for word in rest.split("_"))
    return partial(forward if rest == name else backward, formula)
