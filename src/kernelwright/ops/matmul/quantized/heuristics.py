"""Which rung handles a product with a quantized weight, and its launch parameters. Imports no
kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.eligibility import kind, no_clusters, unsupported_dtype
from kernelwright.ops.matmul.gemm.few_rows.cluster_choice import (
    choose_split,
    choose_wgmma_split,
    held,
    no_wgmma,
    wgmma_held,
)
from kernelwright.ops.matmul.gemm.few_rows.tiling import (
    FEW,
    HALVES,
    MOST,
    ROWS,
    fits_memory,
    line_of,
)

from .weights import GROUP

#: Rows of x and of the weight for which a block should hold x for all of k.
FEW_OF_CLUSTER, MANY_ROWS = 4, 16_384


def fits_warp(gpu, x, packed, scales, bias, bits):
    return _fits(x, packed, scales, bias, bits, FEW) or unsupported_dtype(x.dtype)


def fits_tensor_cores(gpu, x, packed, scales, bias, bits):
    if x.dtype not in HALVES:
        return f"x: {x.dtype} is not float16 or bfloat16"
    return fits_memory(gpu) or _fits(x, packed, scales, bias, bits, MOST)


def fits_cluster(gpu, x, packed, scales, bias, bits):
    if why := no_clusters(gpu) or fits_tensor_cores(gpu, x, packed, scales, bias, bits):
        return why
    return held(gpu, x.shape[0], packed.shape[0], x.shape[1], bits)


def fits_wgmma(gpu, x, packed, scales, bias, bits):
    if why := no_wgmma(gpu) or fits_tensor_cores(gpu, x, packed, scales, bias, bits):
        return why
    return wgmma_held(gpu, x.shape[0], packed.shape[0], x.shape[1], bits)


def choose_cluster(gpu, x, packed, scales, bias, bits):
    return choose_split(gpu, x.shape[0], packed.shape[0], x.shape[1], bits)


def choose_wgmma(gpu, x, packed, scales, bias, bits):
    return choose_wgmma_split(gpu, x.shape[0], packed.shape[0], x.shape[1], bits)


def _fits(x, packed, scales, bias, bits, most: int) -> str | None:
    if x.shape[0] > most:
        return f"{x.shape[0]} rows are more than {most}"
    if scales.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
        return f"scales of {scales.dtype} with x of {x.dtype}"
    if x.stride(1) != 1 or line_of(x) * x.itemsize % 16 or x.align < 16:
        return "x: its rows are not multiples of 16 bytes"
    for name, t in (("packed", packed), ("scales", scales), ("bias", bias)):
        if t is not None and not t.is_contiguous():
            return f"{name}: is not contiguous"
    if packed.align < 16 or scales.align < 4:
        return "packed, scales: their memory starts off a boundary of 16 and 4 bytes"
    n, k = packed.shape[0], x.shape[1]
    if max(n, k) >= 2**31 - 1024 or cdiv(n, ROWS) * cdiv(k, GROUP) >= 2**31:
        return f"a weight of {n} x {k} is more than 32-bit indices count"
    return None


def order(gpu, x, packed, scales, bias, bits):
    """On an H200 (records/nvidia-h200/measured/few_rows_products.txt), cuda_few_rows_cluster is the
    fastest with one row of x, and up to 4 rows with large weights of 4 bits; with more rows
    cuda_few_rows_stream."""
    m, n = x.shape[0], packed.shape[0]
    if bits == 4 and (m == 1 or (m <= FEW_OF_CLUSTER and n >= MANY_ROWS)):
        return ("cuda_few_rows_cluster", "cuda_few_rows_stream", "cuda_few_rows")
    return ("cuda_few_rows_stream", "cuda_few_rows")


def bucket(x, packed, scales, bias, bits):
    """Key of a call in the tuned table: dtype, bits, and sizes by powers of two."""
    sizes = (x.shape[0], packed.shape[0], x.shape[1])
    powers = (str(1 << max(s - 1, 0).bit_length()) for s in sizes)
    return "/".join((kind(x.dtype), str(bits), *powers))
