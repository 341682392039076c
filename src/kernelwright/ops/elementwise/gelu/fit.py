"""Fits the polynomials of `include/kw/gelu.cuh` and `ops/_triton/math.py`, and prints them.

    python -m kernelwright.ops.elementwise.gelu.fit

A minimax fit by Lawson's iteration (least squares, each point weighted by its past error) in
float64 on Chebyshev points, of functions evaluated with 40 digits.
"""

from __future__ import annotations

from dataclasses import dataclass

import mpmath as mp
import numpy as np
from numpy.polynomial import Polynomial
from numpy.polynomial import chebyshev as cheb

mp.mp.dps = 40


def tail(t):
    """Phi(-t), the tail of the normal distribution."""
    return mp.erfc(t / mp.sqrt(2)) / 2


def slope(t):
    """gelu'(-t) = Phi(-t) - t phi(t)."""
    return tail(t) - t * mp.exp(-t * t / 2) / mp.sqrt(2 * mp.pi)


#: gelu' is zero at x = -ROOT; slope_over_root is positive everywhere.
ROOT = mp.findroot(slope, 0.75)


def slope_over_root(t):
    t = _beside(t, ROOT)
    return slope(t) / (ROOT - t)


def tanh_bracket(t):
    """1 + x (1 - s) 2u' at x = -t, for gelu_tanh'(x) = s (1 + x (1 - s) 2u')."""
    k, c = mp.sqrt(2 / mp.pi), mp.mpf("0.044715")
    s = 1 / (1 + mp.exp(2 * k * (t + c * t**3)))
    return 1 - t * (1 - s) * 2 * k * (1 + 3 * c * t * t)


TANH_ROOT = mp.findroot(tanh_bracket, 0.75)


def tanh_bracket_over_root(t):
    t = _beside(t, TANH_ROOT)
    return tanh_bracket(t) / (TANH_ROOT - t)


def _beside(t, root):
    return root + mp.mpf(10) ** -12 if abs(t - root) < 1e-12 else mp.mpf(t)


@dataclass(frozen=True)
class Fit:
    """A polynomial in t that approximates log2 of `f` (`f` itself if `log` is false) on [0, top].

    The error is relative to f. With `absolute` it may increase in the tail, where f is small, to
    `absolute` / f, but not above 2^-11.
    """

    f: object
    top: float
    degree: int
    absolute: float = 0.0
    log: bool = True

    def allowed(self, t) -> float:
        return float(np.clip(self.absolute / float(self.f(t)), 2.0**-25, 2.0**-11))

    def solve(self, points: int = 800, rounds: int = 100):
        """(float32 coefficients, lowest first; largest error in units of the permitted error)."""
        u = np.cos(np.pi * (np.arange(points) + 0.5) / points)
        at = [mp.mpf(v) for v in (u + 1) * self.top / 2]
        want = np.array([float(mp.log(self.f(t), 2) if self.log else self.f(t)) for t in at])
        scale = np.array([self.allowed(t) for t in at])
        scale = scale / np.log(2) if self.log else scale * want
        basis, weight = cheb.chebvander(u, self.degree) / scale[:, None], np.ones(points)
        best, error = np.zeros(0), np.inf
        for _ in range(rounds):
            w = np.sqrt(weight)
            c = np.linalg.lstsq(basis * w[:, None], want / scale * w, rcond=None)[0]
            off = np.abs(basis @ c - want / scale)
            if off.max() < error:
                best, error = c, off.max()
            weight = weight * (off + 1e-3 * off.max())
            weight /= weight.sum()
        power = Polynomial(cheb.cheb2poly(best))(Polynomial([-1, 2 / self.top])).coef
        return power.astype(np.float32), error


#: Beyond its interval each logarithm decreases to -inf: its leading coefficient is negative. The
#: normal numbers of bfloat16 and float32 end at t = 13.2; the subnormal numbers of float16 end at t
#: = 5.8, or at t = 7.5 after multiplication by a gradient of up to 65504.
FITS = {
    "log2_tail, float16": Fit(tail, 5.8, 7),
    "log2_tail, bfloat16": Fit(tail, 13.2, 7),
    "log2_slope, float16": Fit(slope_over_root, 7.5, 9),
    "log2_slope, bfloat16": Fit(slope_over_root, 13.2, 9),
    "log2_slope, float32": Fit(slope_over_root, 13.2, 14, absolute=1e-9),
    "tanh_bracket, float32": Fit(tanh_bracket_over_root, 1.5, 8, log=False),
}

if __name__ == "__main__":
    print(f"roots: erf -{mp.nstr(ROOT, 18)}, tanh -{mp.nstr(TANH_ROOT, 18)}")
    for name, wanted in FITS.items():
        coefficients, error = wanted.solve()
        print(f"{name}: t up to {wanted.top}, error {error:.2f} of 2^-25 or what the tail allows")
        print("  " + ", ".join(f"{c:.9g}" for c in coefficients))
