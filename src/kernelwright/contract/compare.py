"""Is a result right? Compares its error against float64 with the error of PyTorch's own operator.

The error budget of each result is twice the error of PyTorch's own operator in the same dtype on
the same input, plus 2 ulp. The error is measured over the whole tensor (norm-wise) and element by
element (99.9th percentile and maximum, in ulp). A fast approximation of tanh passes the first and
fails the second, in the negative tail.

Where terms cancel (the gradient of softmax near zero), an error in ulp is meaningless: the relative
difference of two correct computations is unbounded. There the unit is not the ulp but PyTorch's own
error near this input, given by `noise`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch

from kernelwright.support.words import are, counted

FACTOR, ULPS = 2.0, 2.0


@dataclass(frozen=True)
class Error:
    """Error of one result against its float64 reference.

    norm: ||out - ref|| / ||ref||. p999, worst: 99.9th percentile and maximum of |out - ref| in
    ulp of the reference's magnitude in the result's dtype. Both are in units of the noise where the
    noise is larger.
    """

    norm: float
    p999: float
    worst: float


@dataclass(frozen=True)
class Accuracy:
    """Whether a result is right, the first violation, and the measured errors."""

    ok: bool
    why: str = ""
    error: Error | None = None
    budget: Error | None = None

    def as_json(self) -> dict:
        return asdict(self)


def compare(
    out: torch.Tensor,
    native: torch.Tensor,
    reference: torch.Tensor,
    *,
    noise: torch.Tensor | None = None,
    exact: bool = False,
) -> Accuracy:
    """Compare `out` with the float64 `reference` and with the error of `native`, PyTorch's result.

    Args:
        noise: for each element, the size of the error that PyTorch makes in float32 on inputs
            that differ from these by float32's rounding; float64, of the reference's shape.
        exact: require bitwise equality with `native` instead.
    """
    if not isinstance(out, torch.Tensor):
        return Accuracy(False, f"result is a {type(out).__name__}, not a tensor")
    for what in ("shape", "dtype", "device"):
        if getattr(out, what) != getattr(native, what):
            got, want = getattr(out, what), getattr(native, what)
            return Accuracy(False, f"{what} is {got}, should be {want}")
    if exact or not out.dtype.is_floating_point:
        return _exact(out, native if exact else reference.to(out.dtype))
    if out.numel() == 0:
        return Accuracy(True, error=Error(0.0, 0.0, 0.0), budget=Error(0.0, 0.0, 0.0))
    special = _special(out, native, reference)
    if special:
        return Accuracy(False, special)
    finite = torch.isfinite(reference) & torch.isfinite(native) & torch.isfinite(out)
    ref = reference[finite]
    if ref.numel() == 0:
        return Accuracy(True, error=Error(0.0, 0.0, 0.0), budget=Error(0.0, 0.0, 0.0))
    own = None if noise is None else noise[finite]
    error = measure(out[finite], ref, own)
    theirs = measure(native[finite], ref, own)
    eps = torch.finfo(out.dtype).eps
    budget = Error(
        FACTOR * theirs.norm + ULPS * eps,
        FACTOR * theirs.p999 + ULPS,
        FACTOR * theirs.worst + ULPS,
    )
    for name in ("norm", "p999", "worst"):
        mine, allowed = getattr(error, name), getattr(budget, name)
        if not mine <= allowed:
            unit = "" if name == "norm" else " ulp"
            return Accuracy(
                False, f"{name} error is {mine:.3g}{unit}, allowed {allowed:.3g}", error, budget
            )
    return Accuracy(True, "", error, budget)


def measure(out: torch.Tensor, reference: torch.Tensor, noise: torch.Tensor | None = None) -> Error:
    """Error of finite values against a finite float64 reference, all are 1-D."""
    difference = (out.double() - reference).abs()
    unit, scale = ulp(reference, out.dtype), reference.norm().item()
    if noise is not None:
        unit = torch.maximum(unit, noise)
        scale = max(scale, noise.norm().item() / torch.finfo(out.dtype).eps)
    # in float64, norms of tiny values do not underflow
    norm = difference.norm().item() / scale if scale else difference.norm().item()
    ulps = difference / unit
    return Error(norm, _p999(ulps), ulps.max().item())


def _p999(ulps: torch.Tensor) -> float:
    """The 99.9th percentile; if there are more than a million elements, of a million evenly spaced
    ones, because PyTorch's selection takes seconds per call on a large GPU tensor."""
    few = ulps[:: max(1, ulps.numel() >> 20)]
    return few.sort().values[max(0, int(0.999 * few.numel()) - 1)].item()


def ulp(reference: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The spacing of `dtype` at the magnitude of each float64 value, subnormals included."""
    info = torch.finfo(dtype)
    exponent = torch.frexp(reference.abs().clamp_min(info.tiny)).exponent - 1
    return torch.ldexp(torch.full_like(reference, info.eps), exponent)


def _exact(out: torch.Tensor, want: torch.Tensor) -> Accuracy:
    same = (out == want) | ((out != out) & (want != want))
    wrong = int((~same).sum())
    return Accuracy(
        wrong == 0,
        f"{wrong} of {counted(out.numel(), 'element')} {'differs' if wrong == 1 else 'differ'}"
        if wrong
        else "",
    )


def _special(out, native, reference) -> str:
    """Where NaN or infinity differ from both PyTorch's result and the reference, or ""."""
    for name, test in (("NaN", torch.isnan), ("infinite", torch.isinf)):
        mine, theirs = test(out), test(native)
        # a value at the edge of the range may round to infinity on either side
        agreed = (mine == theirs) | (mine == test(reference.to(out.dtype)))
        if not bool(agreed.all()):
            wrong = mine & ~agreed  # this result has NaN where PyTorch's has a number
            extra = int(wrong.sum())
            wrong = wrong if extra else ~agreed  # or PyTorch's alone has NaN
            first, count = int(wrong.reshape(-1).nonzero()[0]), int(wrong.sum())
            verb = are(count) if extra else "should be"
            where = "but not in" if extra else "as in"
            return (
                f"{counted(count, 'element')} {verb} {name}, {where} PyTorch's result; "
                f"the first is element {first}"
            )
    infinite = torch.isinf(out) & torch.isinf(native)
    if bool((out[infinite] != native[infinite]).any()):
        return "an infinity has the wrong sign"
    return ""
