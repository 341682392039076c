"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import math

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

MOST = 1024  # largest k
LONGEST = 2**31 - 1  # columns
MAX_GRID = 2**31 - 1
SHORTEST_PART = 4096  # fewest columns for which a separate block pays

WARP = ({"block": 128},)
# vecs: vectors that a thread has in flight
ROW = ({"block": 256, "vecs": 4}, {"block": 512, "vecs": 2}, {"block": 256, "vecs": 2})
ZEROS = ({"block": 256},)


def _rows(x):
    return x.numel() // max(x.shape[-1], 1)


def fits(gpu, x, columns, k, largest=True):
    if why := unsupported_dtype(x.dtype):
        return why
    if k > MOST:
        return f"k: {k} elements do not fit a block's shared memory ({MOST})"
    if columns > LONGEST:
        return f"rows of {columns} elements exceed 32-bit indices"
    return None


def fits_sorted(gpu, x, columns, k, largest=True):
    if columns > 2048:
        return f"rows of {columns} elements do not fit a block's shared memory (2048)"
    return fits(gpu, x, columns, k)


def fits_warp(gpu, x, columns, k, largest=True):
    if columns > 512:
        return f"rows of {columns} elements do not fit a warp's registers (512)"
    if k > 32:
        return f"k: {k} is more than the lanes of a warp"
    return fits(gpu, x, columns, k)


def fits_backward(gpu, gvalues, indices, columns):
    if not indices.is_contiguous():
        return "indices: not contiguous"
    return unsupported_dtype(gvalues.dtype)


def width(x) -> int:
    """Elements per load of at most 16 bytes."""
    rows, _, stride = rows_view(x.shape, x.strides)
    wide = math.gcd(16 // x.itemsize, x.align // x.itemsize)
    return math.gcd(wide, stride) if rows > 1 else wide


def parts(gpu, x, columns) -> int:
    """The number of blocks that share a row, if the rows alone do not fill the GPU."""
    wanted = cdiv(4 * gpu.sms, _rows(x))
    return max(1, min(wanted, columns // SHORTEST_PART))


def order(gpu, **specs):
    return "cuda_warp", "cuda_select"


def order_backward(gpu, **specs):
    return ("cuda_zeros",)


def bucket(x, columns, k, largest=True):
    """Key of a call in the tuned table: dtype, k, then sizes by powers of two."""
    sizes = (next_power_of_2(columns), next_power_of_2(_rows(x)))
    return f"{kind(x.dtype)}/{next_power_of_2(max(k, 1))}/{sizes[0]}/{sizes[1]}"


def bucket_backward(gvalues, indices, columns):
    return f"{kind(gvalues.dtype)}/{next_power_of_2(columns)}/{next_power_of_2(_rows(gvalues))}"
