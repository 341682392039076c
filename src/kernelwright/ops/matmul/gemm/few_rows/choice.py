"""When the rungs for few rows are dispatched. Imports no kernel language."""

from __future__ import annotations

import torch

from ..hopper import choice as hopper_choice
from ..stream import tiling as stream_tiling
from .tiling import FEW, Sides, fits_linear, fits_vectors, sides

#: Bytes of a row of the weight; shorter rows have not been timed.
LEAST_BYTES = 1024
#: Bytes of a 16-bit weight up to which a rung for few rows is faster than cuBLAS; those up to which
#: a block that holds x for all of k is the fastest, with up to 16 rows of x.
MOST_OF_WEIGHT, LEAST_OF_STREAM, MOST_OF_CLUSTER = 2**25, 2**23, 16
#: Rows of x up to which weights with lines of at least LONG elements are streamed.
STREAMED, LONG = 32, 3072


def order(gpu, a, b, tf32=False):
    """Names of rungs, the fastest first; for many rows, those of hopper/choice.py."""
    if a.ndim == 2 and (a.shape[0] <= STREAMED or b.shape[1] <= STREAMED):
        operands = sides(a, b, STREAMED)
        if isinstance(operands, Sides):
            vectors = operands.x.shape[0] <= FEW and not fits_vectors(gpu, a, b, tf32)
            streamed = not stream_tiling.fits(gpu, a, b, tf32)
            if names := _few(operands, vectors, streamed):
                return names
    return hopper_choice.order(gpu, a, b, tf32)


def order_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    operands = Sides(weight, x, ("weight", "x"), (1, weight.shape[0]))
    if x.shape[0] <= STREAMED:
        vectors = x.shape[0] <= FEW and not fits_linear(gpu, *args)
        if names := _few(operands, vectors, not stream_tiling.fits_linear(gpu, *args)):
            return names
    return hopper_choice.order_linear(gpu, *args)


def _few(of: Sides, vectors: bool, streamed: bool) -> tuple[str, ...]:
    """The fastest rungs; none if cuBLAS is fastest. `vectors`, `streamed`: whether cuda_gemv_split
    and cuda_few_rows_stream support the product.

    On an H200 cuda_gemv_split is faster than cuBLAS for up to 8 rows of float32 and for one row of
    16-bit types; cuda_few_rows_cluster for 2 to 16 rows and weights of up to 8 MB;
    cuda_few_rows_stream for 2 to 32 rows and weights of up to 34 MB. For larger weights cuBLAS
    reads at the rate of DRAM (records/nvidia-h200/measured/gemv_and_experts.txt,
    few_rows_products.txt)."""
    m, (n, k) = of.x.shape[0], of.weight.shape
    nbytes = n * k * of.x.itemsize
    if m == 0 or n == 0 or k * of.x.itemsize < LEAST_BYTES:
        return ()
    if m == 1 or of.x.dtype == torch.float32:
        return ("cuda_gemv_split",) if vectors else ()
    if not streamed or nbytes > MOST_OF_WEIGHT:
        return ()
    if nbytes <= LEAST_OF_STREAM and m <= MOST_OF_CLUSTER:
        return ("cuda_few_rows_cluster", "cuda_few_rows_stream")
    return ("cuda_few_rows_stream",) if m <= FEW or k >= LONG else ()
