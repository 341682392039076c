"""Which products with a quantized weight stream.cuh supports, and with which config. Imports
no kernel language."""

from __future__ import annotations

from kernelwright.ops.matmul.gemm.few_rows.cluster_choice import no_wgmma
from kernelwright.ops.matmul.gemm.few_rows.tiling import Sides
from kernelwright.ops.matmul.gemm.stream.tiling import choose_config, held

from .heuristics import fits_tensor_cores


def fits(gpu, x, packed, scales, bias, bits):
    if why := no_wgmma(gpu) or fits_tensor_cores(gpu, x, packed, scales, bias, bits):
        return why
    if why := held(Sides(packed, x, ("packed", "x"), (1, packed.shape[0]))):
        return why
    if packed.shape[0] % 4 or scales.align < 16:
        return "scales: the rows of a group are not multiples of 16 bytes"
    return None


def choose(gpu, x, packed, scales, bias, bits):
    return choose_config(gpu, x.shape[0], packed.shape[0], x.shape[1], bits)
