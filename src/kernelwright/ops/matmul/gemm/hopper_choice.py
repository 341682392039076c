"""Which rung for Hopper's tensor cores takes a product, with which config, and when cuBLAS does: by
the cost model of hopper_cost.py. Imports no kernel language."""

from __future__ import annotations

import math
from functools import cache

from kernelwright.contract.operator import Config, Gpu

from .hopper_cost import Product, cublas_us, us
from .hopper_tiling import (
    CONFIGS,
    LINEAR_CONFIGS,
    Matrix,
    fits,
    fits_linear,
    fits_linear_lean,
    fits_split,
    matrix,
    transposed,
)

#: cuBLAS is chosen where it is estimated within this factor of a rung: the cost model is less
#: accurate for cuBLAS, which has more kernels to choose among.
CAUTION = 1.03
#: us to launch, bytes a ns: a kernel of PyTorch's behind cuBLAS, for what its epilogues lack.
KERNEL_START, KERNEL_RATE = 2.0, 3500.0


def order(gpu, a, b, tf32=False):
    """Names of rungs, the fastest first; cuBLAS's alone where it is; empty where none takes the
    product."""
    if fits(gpu, a, b, tf32):
        return ()
    p = product(a, b)
    without = {"cuda_wgmma_split"} if fits_split(gpu, a, b) else set[str]()
    return _order(gpu, p, without, cublas_us(gpu, p))


def order_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    if fits_linear(gpu, *args):
        return ()
    p = product(x, transposed(weight))
    without = {"cuda_wgmma_split"} if fits_split(gpu, x, transposed(weight)) else set[str]()
    if fits_linear_lean(gpu, *args):
        without |= CONFIGS.keys() - {"cuda_wgmma_persistent", "cuda_wgmma_split"}
    result = x.shape[0] * weight.shape[0] * x.itemsize
    passes = [2] if activation != "none" else []  # over the result, behind cuBLAS
    passes += [3 for t in (gate, residual) if t is not None]
    behind = sum(KERNEL_START + n * result / KERNEL_RATE / 1000 for n in passes)
    return _order(gpu, p, without, cublas_us(gpu, p) + behind, linear=True)


def choose(name, gpu, a, b, tf32=False):
    """The rung's fastest config for a product."""
    return best(name, gpu, product(a, b))[1]


def choose_linear(name, gpu, x, weight, **others):
    return best(name, gpu, product(x, transposed(weight)), linear=True)[1]


def _order(
    gpu: Gpu, p: Product, without: set[str], theirs: float, linear: bool = False
) -> tuple[str, ...]:
    times = sorted((best(name, gpu, p, linear)[0], name) for name in CONFIGS.keys() - without)
    if theirs < times[0][0] * CAUTION:
        return ("native",)
    return tuple(name for time, name in times if time < math.inf)


@cache
def best(name: str, gpu: Gpu, p: Product, linear: bool = False) -> tuple[float, Config]:
    """The microseconds and the config that take least."""
    configs = (LINEAR_CONFIGS if linear else CONFIGS)[name]
    return min(((us(gpu, name, c, p), c) for c in configs), key=lambda found: found[0])


def product(a, b) -> Product:
    of_a, of_b = matrix("a", a), matrix("b", transposed(b))
    assert isinstance(of_a, Matrix) and isinstance(of_b, Matrix), (of_a, of_b)
    return Product(of_a, of_b)
