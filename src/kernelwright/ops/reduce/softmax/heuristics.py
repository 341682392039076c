"""Which rung handles a call, and its launch parameters. Imports no kernel language.

`fits_*` returns why a call does not fit a rung, or None; `choose_*` selects one of the rung's
configs by shape; `order` ranks the rungs for calls that are not in a tuned table.
"""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, no_clusters, unsupported_dtype

from .tiling import CLUSTER, block_shape, cluster_shape, rows_of, warp_shape, words

TRITON_ROW_COLS = 32768  # columns that fit in a Triton program's registers with 32 warps
WARP_ROW, BLOCK_ROW = 4096, 65536  # longest rows, in bytes, for a warp and a block

ROW_CONFIGS = (
    {"tile": 1024, "items": 8},
    {"tile": 2048, "items": 16},
    {"tile": 4096, "items": 32},
)
ONLINE_CONFIGS = (
    {"block": 2048, "warps": 8},
    {"block": 4096, "warps": 8},
    {"block": 8192, "warps": 16},
)
COLUMNS_CONFIGS = (
    {"cols": 32, "tile": 8192, "warps": 8},
    {"cols": 64, "tile": 8192, "warps": 8},
    {"cols": 32, "tile": 4096, "warps": 4},
    {"cols": 64, "tile": 4096, "warps": 4},
)
THREAD_CONFIGS = ({"threads": 128},)
WARP_CONFIGS = ({"rows": 1}, {"rows": 2}, {"rows": 4}, {"rows": 8})
BLOCK_CONFIGS = ({"vectors": 2}, {"vectors": 4}, {"vectors": 8}, {"vectors": 16})
CLUSTER_CONFIGS = (
    {"vectors": 4, "blocks": 4},
    {"vectors": 4, "blocks": 8},
    {"vectors": 8, "blocks": 2},
    {"vectors": 8, "blocks": 4},
    {"vectors": 8, "blocks": 8},
    {"vectors": 16, "blocks": 4},
    {"vectors": 16, "blocks": 8},
)
CUDA_ONLINE_CONFIGS = ({"vectors": 2}, {"vectors": 4})


def inputs_of(tensors) -> tuple:
    return tuple(tensors[k] for k in ("x", "gy", "y") if k in tensors)


def fits_manual(gpu, dim, **tensors):
    empty = any(t.ndim and t.shape[dim] == 0 for t in inputs_of(tensors))
    return "an empty row has no largest element" if empty else None


def fits_rows(gpu, dim, **tensors):
    """Requirements of every rung over contiguous rows."""
    inputs = inputs_of(tensors)
    if why := unsupported_dtype(inputs[0].dtype):
        return why
    if dim != -1:
        return f"dim {dim} is not the last"
    rows = rows_of(*inputs).rows
    return f"{rows} rows are more than the blocks of a grid" if rows * CLUSTER >= 2**31 else None


def fits_numba(gpu, dim, **tensors):
    dtype = inputs_of(tensors)[0].dtype
    return fits_rows(gpu, dim, **tensors) if dtype == torch.float32 else f"{dtype} is not float32"


def fits_triton_row(gpu, dim, **tensors):
    reason = fits_rows(gpu, dim, **tensors)
    if reason:
        return reason
    cols = rows_of(*inputs_of(tensors)).cols
    if cols > TRITON_ROW_COLS:
        return f"a row of {cols} does not fit a program's registers ({TRITON_ROW_COLS})"
    return None


def fits_columns(gpu, dim, **tensors):
    """The dimension before the last must be the only one with a stride between its rows."""
    for t in inputs_of(tensors):
        if why := unsupported_dtype(t.dtype):
            return why
        if dim == -1:
            return "dim is the last dimension"
        if dim < -2 and rows_of(t).strides[0] != t.shape[-1]:
            return "an input has gaps between its rows"
    return None


def fits_warp(gpu, dim, **tensors):
    reason = fits_rows(gpu, dim, **tensors)
    if reason:
        return reason
    r = rows_of(*inputs_of(tensors))
    if warp_shape(r, WARP_CONFIGS[0], inputs_of(tensors)[0].itemsize) is None:
        return f"a row of {r.cols} does not fit a warp's registers"
    return None


def fits_block(gpu, dim, **tensors):
    reason = fits_rows(gpu, dim, **tensors)
    return reason or _held(gpu, block_shape, BLOCK_CONFIGS[0], "a block", **tensors)


def fits_cluster(gpu, dim, **tensors):
    reason = no_clusters(gpu) or fits_rows(gpu, dim, **tensors)
    home = f"a cluster of {CLUSTER} blocks"
    return reason or _held(gpu, cluster_shape, CLUSTER_CONFIGS[0], home, **tensors)


def _held(gpu, shape_of, config, home, **tensors):
    inputs = inputs_of(tensors)
    r, itemsize = rows_of(*inputs), inputs[0].itemsize
    shape = shape_of(r.vectors, config, words(r.width, itemsize))
    if shape is None:
        return f"a row of {r.cols} does not fit the registers of {home}"
    shared = shape.vectors * shape.threads * r.width * itemsize
    if len(inputs) == 2 and shared > gpu.shared_per_block - 2048:
        return f"a row of {r.cols} does not fit the shared memory of {home}"
    return None


def choose_warp(gpu, dim, **tensors):
    """64 bytes in flight per lane, as long as every multiprocessor still gets 16 warps."""
    inputs = inputs_of(tensors)
    r = rows_of(*inputs)
    best = WARP_CONFIGS[0]
    for config in WARP_CONFIGS[1:]:
        vectors, lanes, rows = warp_shape(r, config, inputs[0].itemsize) or (8, 32, 1)
        warps = r.rows * lanes // (32 * rows)
        if rows == config["rows"] and vectors * rows <= 4 and warps >= 16 * gpu.sms:
            best = config
    return best


def choose_block(gpu, dim, **tensors):
    """Four vectors per thread up to 256 threads, then eight: with few warps the barrier is
    cheap."""
    return {"vectors": 4 if rows_of(*inputs_of(tensors)).vectors <= 1024 else 8}


def choose_cluster(gpu, dim, **tensors):
    """Blocks of 256 threads with eight vectors each; larger blocks if eight of these do not
    suffice."""
    vectors = rows_of(*inputs_of(tensors)).vectors
    return {"vectors": 8, "blocks": min(CLUSTER, max(2, next_power_of_2(cdiv(vectors, 2048))))}


def order(gpu, dim, **tensors):
    if dim != -1:
        return ("triton_columns",)
    t = inputs_of(tensors)[-1]
    row = (t.shape[-1] if t.shape else 1) * t.itemsize
    first = ("cuda_superset",) if row % 16 else ()
    if row <= WARP_ROW:
        return (*first, "cuda_warp", "cuda_block", "triton_row", "cuda_online")
    if row <= BLOCK_ROW:
        return (*first, "cuda_block", "cuda_cluster", "triton_row", "cuda_online", "triton_online")
    return (*first, "cuda_cluster", "cuda_block", "cuda_online", "triton_online")


def bucket(dim, **tensors):
    """Key of a call in the tuned table: dtype, row length and number of rows by powers of two; rows
    whose length is not divisible by a 16-byte vector have keys of their own."""
    t = inputs_of(tensors)[-1]
    cols = t.shape[dim] if t.shape else 1
    rows = t.numel() // max(cols, 1)
    side = f"/dim{dim}" if dim != -1 else "/odd" if cols * t.itemsize % 16 else ""
    return f"{kind(t.dtype)}{side}/{next_power_of_2(cols)}/{next_power_of_2(rows)}"
