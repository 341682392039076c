"""Launches of the rungs for Hopper's tensor cores."""

from __future__ import annotations

from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .call import Call
from .hopper_tiling import GROUP_ROWS, ROWS, persistent_tile, rows_map, wide

FOLDER = Path(__file__).parent
THREADS = 384
DOT_THREADS, DOT_SHARE = 256, 16  # of cuda_bwd_dot.cu


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


def persistent(gpu, config, **args):
    c = Call(args)
    d = wide(c.d, c.dv)
    groups, cols = persistent_tile(config, d, c.causal)
    rows = groups * GROUP_ROWS
    template = f"{CTYPE[c.dtype]}, {d}, {cols}, 2, {groups}, {boolean(c.causal)}"
    kernel = _kernel("persistent", f"attention_persistent<{template}>")
    maps = (
        rows_map("q", c.specs["q"], rows),
        rows_map("k", c.specs["k"], cols),
        rows_map("v", c.specs["v"], cols),
        rows_map("y", c.specs["y"], GROUP_ROWS),
    )
    numbers = (c.b * c.h, c.h, c.group, c.length, c.s)
    shared = (2 * rows + 4 * cols) * d * 2 + 1024
    grid = (min(gpu.sms, cdiv(c.length, rows) * c.b * c.h), 1, 1)
    given = (*maps, "lse", *map(i32, numbers), f32("scale"))
    return Plan((Launch(kernel, grid, given, (128 * (1 + groups), 1, 1), shared),))


def wgmma_backward(gpu, config, **args):
    c = Call(args)
    d, kind = wide(c.d, c.dv), CTYPE[c.dtype]
    padded = cdiv(c.length, ROWS) * ROWS
    spec = TensorSpec.contiguous((c.b * c.h, padded), torch.float32)
    return Plan(
        (_dot(c, kind, padded), _keys(c, config, kind, d, padded),
         _queries(c, config, kind, d, padded)),
        {"dot": Scratch(spec), "lse2": Scratch(spec)},
    )  # fmt: skip


def _dot(c, kind, padded) -> Launch:
    rows = c.b * c.h * padded
    strides = [i64(s) for name in ("gy", "y") for s in c.specs[name].stride()[:3]]
    kernel = CudaKernel(FOLDER / "cuda_bwd_dot.cu", f"attention_bwd_dot<{kind}>")
    numbers = (*map(i32, (c.h, c.length, padded, c.dv)), i64(rows))
    grid = (cdiv(rows, DOT_THREADS // DOT_SHARE), 1, 1)
    return Launch(
        kernel, grid, ("gy", "y", "lse", "dot", "lse2", *strides, *numbers), (DOT_THREADS, 1, 1)
    )


def _keys(c, config, kind, d, padded) -> Launch:
    stages = config["queries"]
    template = f"{kind}, {d}, {stages}, {boolean(c.causal)}"
    kernel = _kernel("keys", f"attention_bwd_keys<{template}>")
    kept = (rows_map(n, c.specs[n], ROWS) for n in ("k", "v"))
    passing = [rows_map(n, c.specs[n], GROUP_ROWS) for n in ("q", "gy")]
    maps = (rows_map(n, c.specs[n], GROUP_ROWS) for n in ("gk", "gv"))
    numbers = map(i32, (c.h, c.group, c.s, padded))
    given = (passing[0], *kept, passing[1], *maps, "lse2", "dot", *numbers, f32("scale"))
    grid = (cdiv(c.s, ROWS) * c.b * c.hk, 1, 1)
    return Launch(kernel, grid, given, (THREADS, 1, 1), 2 * d * (2 * ROWS + 2 * stages * 64) + 1024)


def _queries(c, config, kind, d, padded) -> Launch:
    cols, stages = config["cols"], config["keys"]
    template = f"{kind}, {d}, {cols}, {stages}, {boolean(c.causal)}"
    kernel = _kernel("queries", f"attention_bwd_queries<{template}>")
    maps = (
        rows_map("q", c.specs["q"], ROWS),
        rows_map("k", c.specs["k"], cols),
        rows_map("v", c.specs["v"], cols),
        rows_map("gy", c.specs["gy"], ROWS),
        rows_map("gq", c.specs["gq"], GROUP_ROWS),
    )
    numbers = map(i32, (c.h, c.group, c.length, c.s, padded))
    grid = (cdiv(c.length, ROWS) * c.b * c.h, 1, 1)
    shared = 2 * d * (2 * ROWS + 2 * stages * cols) + 1024
    given = (*maps, "lse2", "dot", *numbers, f32("scale"))
    return Launch(kernel, grid, given, (THREADS, 1, 1), shared)


def _kernel(file, name) -> CudaKernel:
    return CudaKernel(FOLDER / f"cuda_wgmma_{file}.cu", name, emulated=False)
