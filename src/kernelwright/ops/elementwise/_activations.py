"""silu and gelu in float64, their slopes, and the rounding errors of their float32 formulas.

Operators that contain one of them (gelu, glu, bias_gelu, elementwise) use these for their
references and noise. The formulas here do not cancel where float64 would lose digits. Those that
PyTorch computes in float32 do cancel, and there an error in ulp of the result is not meaningful.
Errors are in units of float32's roundoff, from an analysis of each formula.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract.rounding import U


def silu(x):
    return x * torch.sigmoid(x)


def silu_slope(x):
    """s (1 + x (1 - s)); 1 - s is computed as sigmoid(-x), which does not cancel."""
    return torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))


def silu_noise(x):
    """The errors of exp, sum, quotient and product are relative: an ulp or two."""
    return 2 * U * silu(x.double()).abs()


def silu_slope_noise(x):
    """The slope is zero at x = -1.278. exp, sum and quotient contribute 3 rounding errors to each s
    and to x (1 - s), multiplied by the terms that contain them; then the sum contributes its
    own."""
    x = x.double()
    term = x.abs() * torch.sigmoid(-x)
    return U * torch.sigmoid(x) * (3 * (1 + term) + term + 1)


def gelu(x, approximate):
    """Computed without 1 + erf and 1 + tanh, which cancel in the negative tail."""
    if approximate == "tanh":
        return x * torch.sigmoid(_two_u(x))
    return 0.5 * x * torch.erfc(-x * math.sqrt(0.5))


def gelu_slope(x, approximate):
    if approximate == "tanh":
        s, rest = torch.sigmoid(_two_u(x)), torch.sigmoid(-_two_u(x))
        return s + x * s * rest * math.sqrt(8 / math.pi) * (1 + 3 * 0.044715 * x * x)
    density = torch.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
    return 0.5 * torch.erfc(-x * math.sqrt(0.5)) + x * density


def gelu_noise(x, approximate):
    """x/2 (1 + erf z): erf is within 1 ulp; rounding errors of z are multiplied by z erf'(z) < 0.5.
    tanh is within 2 ulp; three rounding errors of u are multiplied by u tanh'(u) < 0.45. The
    rounding of 1 + erf is included until erf approaches -1, where the sum is exact."""
    units = 4.0 if approximate == "tanh" else 2.0
    return 0.5 * units * U * x.double().abs()


def gelu_slope_noise(x, approximate):
    """The slope is zero at x = -0.75. The first term is as above. The second is x phi(x): rounding
    errors of its exponent are multiplied by x^2, and five more follow; or x/2 (1 - tanh^2) inner,
    where the bracket has an error of one unit until tanh is +-1, from |u| = 9 or |x| = 6 on."""
    x = x.double()
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        units = 2.0 + torch.where(x.abs() < 6, x.abs() * inner, 0.0)
    else:
        density = torch.exp(-0.5 * x * x) * math.sqrt(0.5 / math.pi)
        units = 1.0 + x.abs() * density * (x * x + 5)
    return units * U


def _two_u(x):
    return math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)
