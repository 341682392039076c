"""When the rungs for few rows are dispatched. Imports no kernel language."""

from __future__ import annotations

import torch

from . import hopper_choice
from .few_rows_tiling import FEW, Sides, fits_linear, fits_vectors, sides

#: Bytes of a row of the weight; shorter rows have not been timed.
LEAST_BYTES = 1024
#: Elements of x and bytes of the weight up to which a block that holds x for all of k is faster
#: than cuBLAS.
MOST_OF_X, MOST_OF_WEIGHT = 2**15, 2**26


def order(gpu, a, b, tf32=False):
    """Names of rungs, the fastest first; for many rows, those of hopper_choice.py."""
    if a.ndim == 2 and (a.shape[0] <= FEW or b.shape[1] <= FEW):
        found = sides(a, b, FEW)
        if (
            isinstance(found, Sides)
            and not fits_vectors(gpu, a, b, tf32)
            and (names := _few(found))
        ):
            return names
    return hopper_choice.order(gpu, a, b, tf32)


def order_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    found = Sides(weight, x, ("weight", "x"), (1, weight.shape[0]))
    if x.shape[0] <= FEW and not fits_linear(gpu, *args) and (names := _few(found)):
        return names
    return hopper_choice.order_linear(gpu, *args)


def _few(of: Sides) -> tuple[str, ...]:
    """The fastest rungs; none if cuBLAS is fastest. On an H200 cuda_gemv_split was 1.29 to 2.04
    times as fast as cuBLAS for up to 8 rows of float32 and 1.08 to 1.47 times for one row of 16-bit
    types (records/nvidia-h200/measured/gemv_and_experts.txt). For 2 to 8 rows
    cuda_few_rows_cluster, which has no proof from a GPU yet, was 1.0 to 1.5 times as fast with
    overlapping launches, which it no longer uses."""
    m, (n, k) = of.x.shape[0], of.weight.shape
    if m == 0 or n == 0 or k * of.x.itemsize < LEAST_BYTES:
        return ()
    if m == 1 or of.x.dtype == torch.float32:
        return ("cuda_gemv_split",)
    if m * k > MOST_OF_X or n * k * of.x.itemsize > MOST_OF_WEIGHT:
        return ()
    return ("cuda_gemv_split",) if m == 2 else ()
