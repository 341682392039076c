"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.contract.eligibility import kind, log2

#: The C++ type of each supported dtype.
CTYPE = {
    "float64": "double",
    "float32": "float",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int64": "long long",
    "int32": "int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}
SHARED = 48 * 1024  # bytes of counts that leave room for several blocks per multiprocessor

MOST = 2**31 - 1  # bins

# vecs: 16-byte vectors that a thread has in flight
GLOBAL = ({"block": 256, "vecs": 2},)
COUNTS = ({"block": 512, "vecs": 2}, {"block": 256, "vecs": 4})


def fits(gpu, x, bins, low, high):
    if kind(x.dtype) not in CTYPE:
        return f"{x.dtype} is not one of {', '.join(CTYPE)}"
    if bins > MOST:
        return f"{bins} bins exceed 32-bit indices"
    return None


def fits_shared(gpu, x, bins, low, high):
    if 4 * bins > SHARED:
        return f"{bins} counts do not fit {SHARED} bytes of shared memory"
    return fits(gpu, x, bins, low, high)


def order(gpu, **specs):
    """The first whose counts fit."""
    return "cuda_shared", "cuda_global"


def bucket(x, bins, low, high):
    """Key of a call in the tuned table: dtype, bins and elements by powers of two."""
    return f"{kind(x.dtype)}/{next_power_of_2(bins)}/{log2(x.numel())}"
