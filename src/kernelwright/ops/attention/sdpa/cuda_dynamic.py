"""Launches of the rungs for Hopper with a counter of tiles, and with heads of up to 256."""

from __future__ import annotations

import struct
from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.plan import Scalar, packed
from kernelwright.contract.template_args import CTYPE, boolean

from .call import Call
from .dynamic_tiling import WIDE, dynamic_tile, wide_cols
from .hopper_tiling import GROUP_ROWS, ROWS, rows_map, wide

FOLDER = Path(__file__).parent


def dynamic(gpu, config, **args):
    c = Call(args)
    d = wide(c.d, c.dv)
    groups, cols, stages = dynamic_tile(config, d)
    rows = groups * GROUP_ROWS
    template = f"{CTYPE[c.dtype]}, {d}, {cols}, {stages}, {groups}, {boolean(c.causal)}"
    kernel = CudaKernel(
        FOLDER / "cuda_wgmma_dynamic.cu", f"attention_dynamic<{template}>", emulated=False
    )
    count = cdiv(c.length, rows) * c.b * c.h
    shared = (2 * rows + 2 * stages * cols) * d * 2 + 1024
    numbers = (i32(c.length), i32(c.s), f32("scale"))
    given = (*_maps(c, rows, cols), "lse", "counters", _order(gpu, c, count), *numbers)
    launch = Launch(kernel, (min(gpu.sms, count), 1, 1), given, (128 * (1 + groups), 1, 1), shared)
    counters = TensorSpec.contiguous((2,), torch.int32)
    return Plan((launch,), {"counters": Scratch(counters, zero=True)})


def wgmma_wide(gpu, config, **args):
    c = Call(args)
    cols = wide_cols(c.causal)
    template = f"{CTYPE[c.dtype]}, {WIDE}, {cols}, 2, {boolean(c.causal)}"
    kernel = CudaKernel(
        FOLDER / "cuda_wgmma_wide.cu", f"attention_wgmma<{template}>", emulated=False
    )
    numbers = map(i32, (c.h, c.group, c.length, c.s))
    shared = (ROWS + 4 * cols) * WIDE * 2 + 1024
    given = (*_maps(c, ROWS, cols), "lse", *numbers, f32("scale"))
    return Plan((Launch(kernel, (cdiv(c.length, ROWS) * c.b * c.h, 1, 1), given,
                        (384, 1, 1), shared),))  # fmt: skip


def _maps(c: Call, rows: int, cols: int):
    return (
        rows_map("q", c.specs["q"], rows),
        rows_map("k", c.specs["k"], cols),
        rows_map("v", c.specs["v"], cols),
        rows_map("y", c.specs["y"], GROUP_ROWS),
    )


def _order(gpu, c: Call, count: int) -> Scalar:
    """attention::Tiles of hopper/tiles.cuh. With a causal mask a section of heads has keys and
    values of half of L2; otherwise all blocks of a head have as many keys, and a section is a
    head."""
    of_head = c.s * (c.d + c.dv) * c.dtype.itemsize
    section = c.group * max(1, gpu.l2_bytes // 2 // max(1, of_head)) if c.causal else 1
    heads = c.b * c.h
    sizes = (count // heads if heads else 0, heads, min(section, max(1, heads)), c.h, c.group)
    return packed(struct.pack("<I5i", count, *sizes))
