"""Which rung for Hopper's tensor cores handles a product, with which config, and when cuBLAS is
used instead: by the cost model of cost.py. Imports no kernel language.

The model is evaluated once for all sizes of about the same cost (`product`): all tiles are
multiples of 64 rows, and if there are many tiles, a few more or fewer do not change the choice.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from kernelwright.contract.arithmetic import cdiv, gcd
from kernelwright.contract.operator import Config, Gpu
from kernelwright.contract.symbolic_int import fixed

from .cost import LINE, SLICE, Product, cublas_us, us
from .tiling import (
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

#: cuBLAS is chosen if its estimate is within this factor of a rung's: the cost model is less
#: accurate for cuBLAS, which has more kernels to choose from.
CAUTION = 1.03
#: Microseconds per launch, bytes per ns: a PyTorch kernel after cuBLAS, for operations that its
#: epilogues lack.
KERNEL_START, KERNEL_RATE = 2.0, 3500.0
DIGITS = 7  # significant binary digits of a number of tiles
MOST = 4096  # estimates that are cached


def order(gpu, a, b, tf32=False):
    """Names of rungs, the fastest first; only cuBLAS's if it is the fastest; empty if no rung
    supports the product."""
    if fits(gpu, a, b, tf32):
        return ()
    p = product(a, b)
    without = {"cuda_wgmma_split"} if fits_split(gpu, a, b) else set[str]()
    return _order(gpu, p, without, 0.0)


def order_linear(gpu, x, weight, bias, gate, residual, activation, keep, tf32=False):
    args = x, weight, bias, gate, residual, activation, keep
    if fits_linear(gpu, *args):
        return ()
    p = product(x, transposed(weight))
    without = {"cuda_wgmma_split"} if fits_split(gpu, x, transposed(weight)) else set[str]()
    if fits_linear_lean(gpu, *args):
        without |= CONFIGS.keys() - {"cuda_wgmma_persistent", "cuda_wgmma_split"}
    result = p.a.width * p.b.width * x.itemsize
    passes = [2] if activation != "none" else []  # passes over the result, after cuBLAS
    passes += [3 for t in (gate, residual) if t is not None]
    behind = sum(KERNEL_START + n * result / KERNEL_RATE / 1000 for n in passes)
    return _order(gpu, p, without, behind, linear=True)


def choose(name, gpu, a, b, tf32=False):
    """The rung's fastest config for a product."""
    return best(name, gpu, product(a, b))[1]


def choose_linear(name, gpu, x, weight, **others):
    return best(name, gpu, product(x, transposed(weight)), linear=True)[1]


def _order(
    gpu: Gpu, p: Product, without: set[str], behind: float, linear: bool = False
) -> tuple[str, ...]:
    times = [(best(name, gpu, p, linear)[0], name) for name in CONFIGS.keys() - without]
    times.sort()
    if _theirs(gpu, p) + behind < times[0][0] * CAUTION:
        return ("native",)
    return tuple(name for time, name in times if time < math.inf)


@lru_cache(MOST)
def _theirs(gpu: Gpu, p: Product) -> float:
    return cublas_us(gpu, p)


@lru_cache(MOST)
def best(name: str, gpu: Gpu, p: Product, linear: bool = False) -> tuple[float, Config]:
    """The fewest microseconds, and the config that takes them."""
    configs = (LINEAR_CONFIGS if linear else CONFIGS)[name]
    return min(((us(gpu, name, c, p), c) for c in configs), key=lambda pair: pair[0])


def product(a, b) -> Product:
    """A product of about the same cost, the same one for many sizes."""
    of_a, of_b = matrix("a", a), matrix("b", transposed(b))
    assert isinstance(of_a, Matrix) and isinstance(of_b, Matrix), (of_a, of_b)
    return Product(_alike(of_a), _alike(of_b))


def _alike(of: Matrix) -> Matrix:
    return replace(
        of,
        width=_rounded(of.width, 8) if of.width < SLICE else _rounded(of.width, SLICE),
        k=_rounded(of.k, SLICE),
        stride=gcd(of.stride, LINE // of.dtype.itemsize),
        batch=_rounded(of.batch, 1),
        batch_stride=int(of.batched),
    )


def _rounded(n: int, unit: int) -> int:
    """n rounded up to whole units, whose number has DIGITS significant binary digits."""
    units = cdiv(n, unit)
    step = 1 << max(units.bit_length() - DIGITS, 0)
    return fixed(cdiv(units, step)) * step * unit
