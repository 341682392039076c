"""Launches of the CUDA C++ rungs."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from kernelwright.contract import CudaKernel, Launch, Plan, Scratch, TensorSpec, i32, i64, rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.template_args import CTYPE, boolean

from .heuristics import parts, width


def sorted_(gpu, config, x, columns, k, largest=True):
    rows, _, stride = rows_view(x.shape, x.strides)
    size = max(64, next_power_of_2(columns))
    name = f"topk_sorted<{CTYPE[x.dtype]}, {boolean(largest)}, {size}, {config['block']}>"
    args = ("x", "values", "indices", i32(columns), i32(k), i64(stride))
    return Plan((_launch("sorted", name, (rows, 1, 1), config, args),))


def warp(gpu, config, x, columns, k, largest=True):
    rows, _, stride = rows_view(x.shape, x.strides)
    each, block = next_power_of_2(cdiv(columns, 32)), config["block"]
    name = f"topk_warp<{CTYPE[x.dtype]}, {boolean(largest)}, {each}, {block}>"
    args = ("x", "values", "indices", i64(rows), i32(columns), i32(k), i64(stride))
    return Plan((_launch("warp", name, (cdiv(rows, block // 32), 1, 1), config, args),))


def select(gpu, config, x, columns, k, largest=True):
    rows, _, stride = rows_view(x.shape, x.strides)
    vec, size = width(x), max(2, next_power_of_2(k))
    types = f"{CTYPE[x.dtype]}, {boolean(largest)}"
    shape = f"{types}, {vec}, {config['vecs']}"
    count = parts(gpu, x, columns)
    if count == 1:
        name = f"topk_select<{shape}, {size}, {config['block']}>"
        args = ("x", "values", "indices", i32(columns), i32(k), i64(stride))
        return Plan((_launch("select", name, (rows, 1, 1), config, args),))
    length = cdiv(cdiv(columns, count), vec) * vec
    count = cdiv(columns, length)
    part = _launch(
        "select", f"topk_select_part<{shape}, {config['block']}>", (rows, count, 1), config,
        ("x", "kept", i32(columns), i32(length), i32(k), i64(stride)),
    )  # fmt: skip
    merge = _launch(
        "select", f"topk_select_merge<{types}, {size}, {config['block']}>", (rows, 1, 1), config,
        ("x", "kept", "values", "indices", i32(count * k), i32(k), i64(stride)),
    )  # fmt: skip
    kept = Scratch(TensorSpec.contiguous((rows, count, k), torch.int64))
    return Plan((part, merge), {"kept": kept})


def zeros_backward(gpu, config, gvalues, indices, columns):
    rows, k, stride = rows_view(gvalues.shape, gvalues.strides)
    vec = math.gcd(16 // gvalues.itemsize, columns)
    count = parts(gpu, TensorSpec.contiguous((rows, columns), gvalues.dtype), columns)
    length = cdiv(cdiv(columns, count), vec) * vec
    name = f"topk_bwd_zeros<{CTYPE[gvalues.dtype]}, {vec}, {config['block']}>"
    args = ("gvalues", "indices", "gx", i64(columns), i64(length), i32(k), i64(stride))
    grid = (rows, cdiv(columns, length), 1)
    return Plan((_launch("zeros", name, grid, config, args),))


def _launch(file, name, grid, config, args):
    kernel = CudaKernel(Path(__file__).with_name(f"cuda_{file}.cu"), name)
    return Launch(kernel, grid, args, (config["block"], 1, 1))
