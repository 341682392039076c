"""Launches of the rungs for Hopper's tensor cores."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .call import Call
from .hopper_tiling import GROUP_ROWS, ROWS, rows_map, wide

FOLDER = Path(__file__).parent
THREADS = 384


def wgmma(gpu, config, **args):
    c = Call(args)
    d, cols, stages = wide(c.d, c.dv), config["cols"], config["stages"]
    template = f"{CTYPE[c.dtype]}, {d}, {cols}, {stages}, {boolean(c.causal)}"
    kernel = CudaKernel(FOLDER / "cuda_wgmma.cu", f"attention_wgmma<{template}>", emulated=False)
    maps = (
        rows_map("q", c.specs["q"], ROWS),
        rows_map("k", c.specs["k"], cols),
        rows_map("v", c.specs["v"], cols),
        rows_map("y", c.specs["y"], GROUP_ROWS),
    )
    numbers = (c.h, c.group, c.length, c.s)
    shared = (ROWS + 2 * stages * cols) * d * 2 + 1024
    grid = (cdiv(c.length, ROWS) * c.b * c.h, 1, 1)
    given = (*maps, "lse", *map(i32, numbers), f32("scale"))
    return Plan((Launch(kernel, grid, given, (THREADS, 1, 1), shared),))
