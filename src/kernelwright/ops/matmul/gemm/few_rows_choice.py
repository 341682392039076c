"""When the rungs for few rows are dispatched. Imports no kernel language."""

from __future__ import annotations

import torch

from . import hopper_choice
from .few_rows_tiling import FEW, Sides, fits_linear, fits_vectors, sides

#: Of a row of the weight: shorter ones have not been timed.
LEAST_BYTES = 1024


def order(gpu, a, b, tf32=False):
    """Names of rungs, the fastest first; where rows are many, those of hopper_choice.py."""
    if a.ndim == 2 and (a.shape[0] <= FEW or b.shape[1] <= FEW):
        found = sides(a, b, FEW)
        if isinstance(found, Sides) and _few(found) and not fits_vectors(gpu, a, b, tf32):
            return ("cuda_gemv_split",)
    return hopper_choice.order(gpu, a, b, tf32)


def order_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    found = Sides(weight, x, ("weight", "x"), (1, weight.shape[0]))
    if _few(found) and not fits_linear(gpu, *args):
        return ("cuda_gemv_split",)
    return hopper_choice.order_linear(gpu, *args)


def _few(of: Sides) -> bool:
    """Whether cuda_gemv_split is the fastest. On an H200 it was 1.29 to 2.04 times as fast as
    cuBLAS for up to 8 rows of float32, 1.09 to 1.47 times for one row of 16-bit types, 0.99 to 1.18
    times for two (records/nvidia-h200/measured/gemv_and_experts.txt, matrix_products.txt)."""
    m, (n, k) = of.x.shape[0], of.weight.shape
    most = FEW if of.x.dtype == torch.float32 else 2
    return 0 < m <= most and n > 0 and k * of.x.itemsize >= LEAST_BYTES
