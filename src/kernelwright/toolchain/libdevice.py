"""CUDA's device library for Triton's interpreter, which does not implement it.

`FUNCTIONS` maps names in `triton.language.extra.libdevice` to functions of float64 tensors, unless
noted otherwise. An interpreted result is therefore the exact one rounded once, whereas a GPU's
result may differ from it by the few ulp that the CUDA Programming Guide allows (more for the fast_
functions). Other rounding modes and bit functions are not implemented; a kernel that uses one
raises an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Function = Callable[..., torch.Tensor]


def _away_from_zero(x: torch.Tensor) -> torch.Tensor:
    """Round halfway cases away from zero, like C's `round`."""
    return torch.where((x - x.trunc()).abs() >= 0.5, x.trunc() + x.sign(), x.trunc())


def _sinpi(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(math.pi * torch.remainder(x, 2))


def _cospi(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(math.pi * torch.remainder(x, 2))


def _cbrt(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.cbrt(x.numpy()))


def _remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The IEEE 754 remainder: the quotient is rounded to nearest even."""
    even = torch.from_numpy(np.rint((x / y).numpy()))
    exact = torch.fmod(x, y)
    near = torch.where(exact.abs() * 2 > y.abs(), exact - y.abs() * exact.sign(), exact)
    tie = exact.abs() * 2 == y.abs()
    return torch.where(tie, x - even * y, near)


def _fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x * y + z


def _logb(x: torch.Tensor) -> torch.Tensor:
    exponent = torch.frexp(x)[1].to(x.dtype) - 1
    exponent = torch.where(x == 0, -math.inf, exponent)
    return torch.where(x.isinf(), math.inf, torch.where(x.isnan(), x, exponent))


def _gamma(x: torch.Tensor) -> torch.Tensor:
    """For negative arguments the sign is (-1)**ceil(-x); at negative integers it is undefined."""
    sign = torch.where((x < 0) & (torch.remainder(torch.ceil(-x), 2) == 1), -1.0, 1.0)
    pole = (x < 0) & (x == x.floor())
    return torch.where(pole, math.nan, sign * torch.lgamma(x).exp())


def _norm(*x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(torch.stack(x), dim=0)


#: All implemented functions, by name.
FUNCTIONS: dict[str, Function] = {
    # rounding and signs
    "abs": torch.abs, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
    "rint": torch.round, "nearbyint": torch.round, "llrint": torch.round,
    "round": _away_from_zero, "llround": _away_from_zero,
    "copysign": torch.copysign, "signbit": torch.signbit,
    "saturatef": lambda x: x.nan_to_num(0.0).clamp(0, 1),
    "isnan": torch.isnan, "isinf": torch.isinf, "isfinited": torch.isfinite,
    "finitef": torch.isfinite,
    # arithmetic, rounded to nearest
    "add_rn": torch.add, "sub_rn": torch.sub, "mul_rn": torch.mul, "div_rn": torch.div,
    "rcp_rn": torch.reciprocal, "sqrt_rn": torch.sqrt, "rsqrt_rn": torch.rsqrt,
    "fma": _fma, "fma_rn": _fma, "fast_dividef": torch.div, "fdim": lambda x, y: (x - y).relu(),
    "fmod": torch.fmod, "remainder": _remainder,
    # roots and lengths
    "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "cbrt": _cbrt, "rcbrt": lambda x: 1 / _cbrt(x),
    "hypot": torch.hypot, "rhypot": lambda x, y: 1 / torch.hypot(x, y),
    "norm3d": _norm, "norm4d": _norm,
    "rnorm3d": lambda *x: 1 / _norm(*x), "rnorm4d": lambda *x: 1 / _norm(*x),
    # powers and logarithms
    "exp": torch.exp, "exp2": torch.exp2, "exp10": lambda x: torch.pow(10.0, x),
    "expm1": torch.expm1, "log": torch.log, "log2": torch.log2, "log10": torch.log10,
    "log1p": torch.log1p, "logb": _logb, "pow": torch.pow,
    "fast_expf": torch.exp, "fast_exp10f": lambda x: torch.pow(10.0, x), "fast_logf": torch.log,
    "fast_log2f": torch.log2, "fast_log10f": torch.log10, "fast_powf": torch.pow,
    # circular and hyperbolic
    "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "sinpi": _sinpi, "cospi": _cospi,
    "asin": torch.asin, "acos": torch.acos, "atan": torch.atan, "atan2": torch.atan2,
    "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh,
    "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh,
    "fast_sinf": torch.sin, "fast_cosf": torch.cos, "fast_tanf": torch.tan,
    # special
    "erf": torch.erf, "erfc": torch.erfc, "erfinv": torch.erfinv, "erfcx": torch.special.erfcx,
    "erfcinv": lambda x: torch.special.ndtri(x / 2) / -math.sqrt(2),
    "normcdf": torch.special.ndtr, "normcdfinv": torch.special.ndtri,
    "lgamma": torch.lgamma, "tgamma": _gamma,
    "j0": torch.special.bessel_j0, "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0, "y1": torch.special.bessel_y1,
    "cyl_bessel_i0": torch.special.i0, "cyl_bessel_i1": torch.special.i1,
}  # fmt: skip


def computed(name: str, arguments: list[np.ndarray], dtype: np.dtype) -> np.ndarray:
    """A function's result in a dtype.

    Raises NotImplementedError, naming the function, if it is not implemented.
    """
    if name not in FUNCTIONS:
        raise NotImplementedError(f"libdevice.{name} is not implemented without a GPU")
    out = FUNCTIONS[name](*(torch.from_numpy(_wide(a)) for a in arguments))
    return out.numpy().astype(dtype)


def _wide(a: np.ndarray) -> np.ndarray:
    """float64, or 64-bit integers, which are exact."""
    wide: Any = np.float64 if np.issubdtype(a.dtype, np.floating) else np.int64
    return np.ascontiguousarray(a, dtype=wide)
