"""Is a large result right? The rule of `contract.compare` with limited time and memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from kernelwright.contract import Operator
from kernelwright.contract.compare import FACTOR, ULPS, Accuracy, compare, ulp

from .candidate import Expected, map_tensors, result_names, tensors

SAMPLE = 1 << 18  # elements that `compare` examines one by one
CHUNK = 1 << 22  # elements converted to float64 at a time
NEAR = 1 << 15  # elements per pass on a CPU, which fit in a core's cache


def right(operator: Operator, want: Expected, results: tuple[torch.Tensor, ...]) -> Accuracy:
    """The verdict on the worst of an operator's results.

    Results up to SAMPLE elements are compared completely. For larger ones, a sample of elements and
    both ends are compared in full precision, and the error of every element may be at most twice
    the largest error of PyTorch's own result.
    """
    names = result_names(operator, want.args)
    if len(results) != len(want.native):
        return Accuracy(False, f"{len(results)} results, should be {len(want.native)}")
    verdict = Accuracy(True)
    for i, name in enumerate(names):
        given = results[i], want.native[i], want.reference[i]
        verdict = _judge(*given, None, operator.exact, partial(_native_error, want, i, False))
        if not verdict.ok and verdict.error:  # terms may cancel; the noise is expensive
            own = want.noise[i]
            verdict = _judge(*given, own, operator.exact, partial(_native_error, want, i, True))
        if not verdict.ok:
            return Accuracy(False, f"{name}: {verdict.why}", verdict.error, verdict.budget)
    return verdict


def _judge(out, native, reference, noise, exact: bool, natives: Callable[[], float]) -> Accuracy:
    """`natives`: the largest error of PyTorch's own result."""
    n = reference.numel()
    same = isinstance(out, torch.Tensor) and (out.shape, out.dtype) == (native.shape, native.dtype)
    if n <= SAMPLE or exact or not same:
        return compare(out, native, reference, noise=noise, exact=exact)
    at = _spread(n, out.device)
    out_, native_, reference_ = (t.reshape(-1)[at] for t in (out, native, reference))
    own = None if noise is None else noise.reshape(-1)[at]
    verdict = compare(out_, native_, reference_, noise=own)
    if verdict.ok and out.dtype.is_floating_point:
        if torch.equal(out, native):
            return verdict
        mine, theirs = _largest(out, reference, noise), natives()
        allowed = 2 * (FACTOR * theirs + ULPS * torch.finfo(out.dtype).eps)
        if not mine <= allowed:
            why = f"an element is off by {mine:.3g} of its value, allowed {allowed:.3g}"
            return Accuracy(False, why, verdict.error, verdict.budget)
    return verdict


def _native_error(want: Expected, i: int, noisy: bool) -> float:
    """`_largest` of PyTorch's own result `i`, which is the same for every rung."""
    if (i, noisy) not in want.largest:
        noise = want.noise[i] if noisy else None
        want.largest[i, noisy] = _largest(want.native[i], want.reference[i], noise)
    return want.largest[i, noisy]


def differs(
    out: torch.Tensor,
    native: torch.Tensor,
    noise: Callable[[], torch.Tensor | None] = lambda: None,
) -> str | None:
    """Why a result that is too large for a float64 reference differs from PyTorch's, or None. In
    every chunk of CHUNK elements, 999 of 1,000 must be within FACTOR * ULPS ulp, where an ulp is
    that of the element's magnitude or of the chunk's (the accuracy of terms that cancel). If that
    fails, the result's noise, as in `contract.compare`, is used, because it may be larger."""
    if (out.shape, out.dtype) != (native.shape, native.dtype):
        return f"{tuple(out.shape)} of {out.dtype}, should be {tuple(native.shape)} {native.dtype}"
    if not out.dtype.is_floating_point:
        return None if torch.equal(out, native) else "integers differ from PyTorch's"
    why = _leaves(out, native, None)
    own = noise() if why else None
    return why if own is None else _leaves(out, native, own)


def _leaves(out: torch.Tensor, native: torch.Tensor, noise: torch.Tensor | None) -> str | None:
    eps = torch.finfo(out.dtype).eps
    given = (out, native) if noise is None else (out, native, noise)
    chunks = zip(*(t.reshape(-1).split(CHUNK) for t in given), strict=True)
    for i, (mine, theirs, *own) in enumerate(chunks):
        want = theirs.double()
        unit = ulp(want, out.dtype).clamp_min(eps * want.square().mean().sqrt().item())
        unit = torch.maximum(unit, own[0]) if own else unit
        close = (mine.double() - want).abs() <= FACTOR * ULPS * unit
        off = int((~(close | (mine == theirs) | (mine.isnan() & theirs.isnan()))).sum())
        if 1000 * off > mine.numel():
            return f"{off} of {mine.numel()} elements from {i * CHUNK} on differ from PyTorch's"
    return None


def noise_of_rows(
    operator: Operator, args: dict[str, Any], result: torch.Tensor, index: int
) -> torch.Tensor | None:
    """The noise of result `index`, computed for some rows at a time; None if the operator has no
    error analysis, or the result is not computed row by row."""
    rows = max(tensors(args), key=torch.Tensor.numel)
    if operator.noise is None or operator.layout != "rows" or index >= len(operator.results):
        return None
    if result.shape[:-1] != rows.shape[:-1]:
        return None
    step = max(1, CHUNK * rows.shape[0] // rows.numel())

    def some(t: torch.Tensor, first: int) -> torch.Tensor:
        # integers: a row's target; a weight of classes may have as many elements as there are rows
        one_each = t.shape == rows.shape[:-1] and not t.is_floating_point()
        return t[first : first + step] if t.shape[:-1] == rows.shape[:-1] or one_each else t

    parts: list[torch.Tensor] = []
    for first in range(0, rows.shape[0], step):
        part = map_tensors(args, lambda t, first=first: some(t, first))
        parts.append(operator.noise(**part)[index])
    return torch.cat(parts)


def _spread(n: int, device: torch.device) -> torch.Tensor:
    """Indices of about SAMPLE elements; an odd step visits every column of a power of two."""
    end = SAMPLE // 64
    step = n // SAMPLE | 1
    parts = (range(end), range(end, n - end, step), range(n - end, n))
    return torch.cat([torch.arange(r.start, r.stop, r.step, device=device) for r in parts])


def _largest(out: torch.Tensor, reference: torch.Tensor, noise: torch.Tensor | None) -> float:
    """The largest |out - ref| / |ref| (over the noise if that is larger); NaN if any is NaN."""
    info = torch.finfo(out.dtype)
    at_a_time = CHUNK if out.is_cuda else NEAR
    parts = [
        t.reshape(-1).split(at_a_time)
        for t in (out, reference) + ((noise,) if noise is not None else ())
    ]
    worst = []
    for o, r, *own in zip(*parts, strict=True):
        scale = r.abs().clamp_min_(info.tiny)
        if own:
            torch.maximum(scale, own[0] / info.eps, out=scale)
        worst.append((o.double().sub_(r).abs_().div_(scale)).amax())
    return torch.stack(worst).amax().item()
