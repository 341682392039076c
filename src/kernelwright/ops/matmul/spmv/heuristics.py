"""Which rung handles a sparse matrix, and with which config. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.eligibility import kind, other_dtype

WARP_CONFIGS = tuple({"width": w} for w in (32, 16, 8, 4, 2))


def fits(gpu, rows, columns, values, x):
    if rows.dtype != columns.dtype or rows.dtype not in (torch.int32, torch.int64):
        return f"indices of {rows.dtype} and {columns.dtype}: not both int32 or both int64"
    if why := other_dtype({"values": values, "x": x}, "values"):
        return why
    for name, t in (("rows", rows), ("columns", columns), ("values", values), ("x", x)):
        if not t.is_contiguous():
            return f"{name}: is not contiguous"
    if rows.shape[0] > 2**26 or values.shape[0] >= 2**40:
        return f"{rows.shape[0] - 1} rows are more than a grid of warps has"
    return None


def choose_warp(gpu, rows, columns, values, x):
    """The largest power of two that is not above the mean length of a row."""
    mean = values.shape[0] / max(rows.shape[0] - 1, 1)
    return next((c for c in WARP_CONFIGS if c["width"] <= mean), WARP_CONFIGS[-1])


def order(gpu, **specs):
    """No rung; cuSPARSE is used. On an H200 cuda_warp is faster for rows of similar length, but far
    slower if a few rows are long, and cuda_merge is slower for both
    (records/nvidia-h200/measured/few_rows_and_spmv.txt). The lengths of rows are in device memory,
    so the host cannot select by them.
    """
    return ()


def bucket(rows, columns, values, x):
    """Key of a call in the tuned table: types, and sizes by powers of two."""
    sizes = (rows.shape[0] - 1, x.shape[0], values.shape[0])
    powers = (str(1 << max(s - 1, 0).bit_length()) for s in sizes)
    return "/".join((kind(values.dtype), kind(rows.dtype), *powers))
