"""The rungs for few rows, from the bottom up, and when they are chosen."""

from __future__ import annotations

import torch

from kernelwright.contract import Rung

from . import few_rows_tiling as shape
from . import hopper_choice


def _rung(trick: str, entry: str, idea: str, supports, **more) -> Rung:
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"cuda_few_rows:{entry}",
        idea,
        supports=supports,
        sources=(f"few_rows/cuda_{trick}.cu",),
        **more,
    )


RUNGS = (
    _rung("gemv_thread", "thread", "few rows: a thread for each result", shape.fits_thread,
          serves=False),
    _rung("gemv_warp", "warp", "few rows: a warp for each row of the weight", shape.fits_vectors,
          serves=False),
    _rung("gemv_split", "split", "few rows: warps share k, a thread loads eight rows ahead",
          shape.fits_vectors),
    _rung("few_rows", "tensor_cores", "up to 64 rows: tensor cores, k shared by all blocks",
          shape.fits_tensor_cores, configs=shape.CONFIGS),
)  # fmt: skip
LINEAR_RUNGS = (
    _rung("gemv_split", "split_linear", "few rows: warps share k, a thread loads eight rows ahead",
          shape.fits_linear),
    _rung("few_rows", "tensor_cores_linear", "up to 64 rows: tensor cores, k shared by all blocks",
          shape.fits_linear_tensor_cores, configs=shape.CONFIGS),
)  # fmt: skip


def order(gpu, a, b, tf32=False):
    """A ladder's order: few rows first, then what suits more of them."""
    rest = hopper_choice.order(gpu, a, b, tf32)
    if shape.fits_vectors(gpu, a, b) is None and _split(a, min(a.shape[0], b.shape[1])):
        return ("cuda_gemv_split", *rest)
    return rest


def order_linear(gpu, x, weight, **others):
    rest = hopper_choice.order_linear(gpu, x, weight, **others)
    if shape.fits_linear(gpu, x, weight, **others) is None and _split(x, x.shape[0]):
        return ("cuda_gemv_split", *rest)
    return rest


def _split(t, rows: int) -> bool:
    """Whether cuda_gemv_split is faster than cuBLAS, on an H200: for one row of 16-bit types, 1.09
    to 1.47 times, for two 0.99 to 1.18 times; of more rows it converts and multiplies too much. For
    up to 8 rows of float32, 1.29 to 2.04 times. cuda_few_rows is at 0.86 to 0.99 of cuBLAS up to
    32 rows."""
    return rows <= (shape.FEW if t.dtype == torch.float32 else 2)
