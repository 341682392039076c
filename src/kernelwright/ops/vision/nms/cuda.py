"""Launches of the CUDA C++ rungs."""

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
)
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.template_args import CTYPE

from .heuristics import BLOCK

GROUP = 64  # kw::kGroup
LANES, ORDER_BLOCK = 16, 512  # threads that count for a box; threads per block of nms_order


def naive(gpu, config, boxes, scores, iou_threshold):
    n, block = boxes.shape[0], config["block"]
    args = ("sorted", "order", "gone", "keep", "count", i32(n), f32("iou_threshold"))
    one_by_one = Launch(_kernel("naive", f"nms_naive<{block}>"), (1, 1, 1), args, (block, 1, 1))
    gone = Scratch(TensorSpec.contiguous((max(n, 1),), torch.uint8))
    return Plan((_order("naive", boxes, scores), one_by_one), {**_sorted(n), "gone": gone})


def block(gpu, config, boxes, scores, iou_threshold):
    n = boxes.shape[0]
    kernel = _kernel("block", f"nms_block<{CTYPE[boxes.dtype]}, {BLOCK}>")
    threads = max(cdiv(n, 32), 1) * 32
    strides = (i64(_stride(boxes)), i64(_stride(scores)))
    args = ("boxes", "scores", "keep", "count", i32(n), *strides, f32("iou_threshold"))
    return Plan((Launch(kernel, (1, 1, 1), args, (threads, 1, 1)),))


def bitmask(gpu, config, boxes, scores, iou_threshold):
    n, threads, columns = boxes.shape[0], config["block"], config["columns"]
    words = cdiv(n, GROUP)
    bits = Launch(
        _kernel("bitmask", f"nms_bits<{columns}>"),
        (max(cdiv(words, columns), 1), max(words, 1), 1),
        ("sorted", "bits", i32(n), i32(words), f32("iou_threshold")),
        (GROUP * columns, 1, 1),
    )
    room = max(next_power_of_2(words), 64)
    reduce = Launch(
        _kernel("bitmask", f"nms_reduce<{room}, {threads}>"),
        (1, 1, 1),
        ("bits", "order", "keep", "count", i32(n), i32(words)),
        (threads, 1, 1),
    )
    scratch = Scratch(TensorSpec.contiguous((max(n * words, 1),), torch.int64))
    launches = (_order("bitmask", boxes, scores), bits, reduce)
    return Plan(launches, {**_sorted(n), "bits": scratch})


def _order(trick, boxes, scores):
    n = boxes.shape[0]
    strides = (i64(_stride(boxes)), i64(_stride(scores)))
    return Launch(
        _kernel(trick, f"nms_order<{CTYPE[boxes.dtype]}, {LANES}, {ORDER_BLOCK}>"),
        (max(cdiv(n * LANES, ORDER_BLOCK), 1), 1, 1),
        ("boxes", "scores", "sorted", "order", i32(n), *strides),
        (ORDER_BLOCK, 1, 1),
    )


def _sorted(n):
    return {
        "sorted": Scratch(TensorSpec.contiguous((max(n, 1), 4), torch.float32)),
        "order": Scratch(TensorSpec.contiguous((max(n, 1),), torch.int32)),
    }


def _stride(t):
    """Elements between two boxes, or two scores, in the layout "rows"."""
    return t.strides[0]


def _kernel(trick: str, name: str) -> CudaKernel:
    return CudaKernel(Path(__file__).with_name(f"cuda_{trick}.cu"), name)
