"""Datasheet rates of GPUs: dense matrix products by kind of operand, TFLOP/s at boost clocks.

A name stands for every machine whose slug begins with it. Sources: the datasheets of the H200, the
H100 SXM and the A100 SXM, which state twice these rates for 2:4 sparsity.
"""

from __future__ import annotations

_HOPPER = {"f64": 66.9, "f32": 66.9, "tf32": 494.7, "bf16": 989.4, "f16": 989.4, "fp8_e4m3": 1978.9}
_AMPERE = {"f64": 19.5, "f32": 19.5, "tf32": 156.0, "bf16": 312.0, "f16": 312.0}
_PRODUCTS = {
    "nvidia-h200": _HOPPER,
    "nvidia-h100-80gb-hbm3": _HOPPER,
    "nvidia-a100-sxm4": _AMPERE,
}


def products(machine: str, kind: str) -> float | None:
    """TFLOP/s from the datasheet of a machine's GPU, or None if the GPU is not listed here."""
    for known, rates in _PRODUCTS.items():
        if machine.startswith(known):
            return rates.get(kind)
    return None
