"""Plans that serve every batch size.

A call's key without its sizes is its pattern: dtypes, devices, alignments, which dimensions are
open, how strides follow from sizes, and all values. Open are the dimensions in front of the last
one of a tensor, all of indices, and others that are as long. The first call of a pattern is
selected and planned with open sizes (contract/open_size.py); calls with other sizes for which the
conditions hold are bound to the same plan and the same kernels, in microseconds.

Where a pattern cannot be opened (lists of tensors, tensor maps, a plan whose kernel depends on the
size itself), each shape is planned by itself, as `launcher` does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch

from kernelwright import toolchain
from kernelwright.contract import Ladder, TensorSpec, contiguous_strides
from kernelwright.contract.layout import normalise
from kernelwright.contract.open_size import NotOpen, OpenSize, Trace

from .launcher import RungFunction, device_of, entry_of, launcher, plan_of
from .selection import select

MOST_PLANS = 64  # of a pattern: with more, its planning depends on the size itself
MOST_PATTERNS = 1024  # of an operator; the oldest is dropped

#: Binds the plan for sizes: the function that runs such calls.
Bind = Callable[..., RungFunction]


class OpenCalls:
    """The plans of an operator, by pattern."""

    def __init__(self, ladder: Ladder):
        self._ladder = ladder
        self._floats = {a.name for a in ladder.operator.args if a.kind.startswith("float")}
        self._lists = any(a.kind == "Tensor[]" for a in ladder.operator.args)
        self._known: dict[Hashable, list[tuple[Callable[..., bool], Bind]] | None] = {}

    def launcher(self, args: dict[str, Any], rung: str | None) -> RungFunction:
        """As `launcher.launcher`: the function for calls like this one.

        Raises:
            Unsupported, CompiledDuringCapture: as there.
        """
        bound = self.bound(args, rung)
        if bound is not None:
            return bound
        if self._lists or not toolchain.opens(args):
            return launcher(self._ladder, args, rung)
        pattern, values = _pattern(args, self._floats)
        plans = self._known.setdefault((rung, *pattern), []) if values else None
        if plans is None:
            return launcher(self._ladder, args, rung)
        bound, opened = self._planned(args, rung, values)
        if opened is None or len(plans) == MOST_PLANS:
            self._known[rung, *pattern] = None
        else:
            plans.append(opened)
        if len(self._known) > MOST_PATTERNS:
            self._known.pop(next(iter(self._known)), None)
        return bound

    def bound(self, args: dict[str, Any], rung: str | None) -> RungFunction | None:
        """The function for calls like this one, if a plan that is known serves their sizes."""
        if self._lists or not self._known:
            return None
        pattern, values = _pattern(args, self._floats)
        for holds, bind in self._known.get((rung, *pattern)) or ():
            if holds(*values):
                return bind(*values)
        return None

    def _planned(
        self, args: dict[str, Any], rung: str | None, values: tuple[int, ...]
    ) -> tuple[RungFunction, tuple[Callable[..., bool], Bind] | None]:
        """The function for these sizes, and, if the plan is open, what finds and binds it for
        others."""
        try:
            opened = self._opened(args, rung, values)
        except (NotOpen, TypeError):  # a TypeError of code that takes plain integers alone; one
            opened = None  # that is the call's own is raised again below
        if opened is None:
            return launcher(self._ladder, args, rung), None
        return opened[1](*values), opened

    def _opened(
        self, args: dict[str, Any], rung: str | None, values: tuple[int, ...]
    ) -> tuple[Callable[..., bool], Bind] | None:
        operator, device = self._ladder.operator, device_of(args)
        trace = Trace({f"n{i}": n for i, n in enumerate(values)})
        specs, copies = normalise(operator.layout, _opened(args, trace, values))
        choice = select(self._ladder, specs, device, rung)
        if choice.rung.backend == "torch" and not copies and _contiguous(specs):
            function = entry_of(self._ladder, choice.rung)  # which looks at the sizes by itself
            return trace.holds(), lambda *_: function
        if not choice.rung.is_gpu:
            return None
        plan = plan_of(self._ladder, choice.rung, specs, device=device, config=choice.config)
        if not toolchain.can_open(plan):
            return None
        bind = toolchain.open_executor(plan, operator, specs, copies, device, trace)
        return trace.holds(), bind


def _contiguous(specs: dict[str, Any]) -> bool:
    return all(t.is_contiguous() for t in specs.values() if isinstance(t, TensorSpec))


_PRODUCT = -1  # codes of open dimensions in a pattern; those below are sizes of their own


def _pattern(
    args: dict[str, Any], floats: set[str]
) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
    """(a call without its open sizes, those sizes).

    In a pattern a dimension is its size or, if it is open, a negative code. Strides stand in it
    where a tensor is not contiguous: a number of elements or, for the extent of dimension i,
    -1 - i.
    """
    tensors = [t for t in args.values() if isinstance(t, torch.Tensor)]
    most = max(t.ndim for t in tensors)
    codes: dict[int, int] = {}
    for t in tensors:
        for n in t.shape[:-1] if t.is_floating_point() else t.shape:
            if n > 1 and n not in codes:
                codes[n] = -2 - len(codes)
    if not codes:
        for t in tensors:
            if t.ndim and t.shape[0] > 1 and t.shape[0] not in codes:
                codes[t.shape[0]] = -2 - len(codes)
    values = tuple(codes)
    rows = math.prod(tensors[0].shape[:-1])  # of a tensor of targets, one for each row
    if rows > 1 and rows not in codes:
        codes[rows] = _PRODUCT
    parts: list[Hashable] = []
    for name, v in args.items():
        if isinstance(v, torch.Tensor):
            shape = v.shape
            ends = shape[: _openable(v, most)]
            parts += v.dtype, v.get_device(), v.data_ptr() & 15, *[codes.get(n, n) for n in ends]
            parts += shape[len(ends) :]
            if not v.is_contiguous():
                strides = v.stride()
                parts += (_extent(i, s, shape, strides) for i, s in enumerate(strides))
            parts.append("end")
        elif name not in floats:
            parts.append(tuple(v) if isinstance(v, list) else v)
    return tuple(parts), values


def _openable(t: torch.Tensor, most: int) -> int:
    """How many dimensions of a tensor may be open: not the columns of the largest ones."""
    columns = t.ndim > 1 and t.ndim == most and t.is_floating_point()
    return t.ndim - 1 if columns else t.ndim


def _extent(axis: int, stride: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """A stride's code: which dimension it steps over, the next one first."""
    for i in (*range(axis + 1, len(shape)), *range(axis)):
        if shape[i] * strides[i] == stride and stride > 1:
            return -1 - i
    return stride


def _opened(args: dict[str, Any], trace: Trace, values: tuple[int, ...]) -> dict[str, Any]:
    """The arguments' specs, with the sizes of the trace where they are open."""
    sizes: dict[int, OpenSize] = dict(zip(values, map(trace.size, trace.values), strict=True))
    first = next(t for t in args.values() if isinstance(t, torch.Tensor))
    most = max(t.ndim for t in args.values() if isinstance(t, torch.Tensor))
    rows = math.prod(first.shape[:-1])
    if rows > 1 and rows not in sizes:
        sizes[rows] = math.prod(sizes.get(n, n) for n in first.shape[:-1])  # pyright: ignore

    def opened(v: Any) -> Any:
        if not isinstance(v, torch.Tensor):
            return v
        plain, end = TensorSpec.of(v), _openable(v, most)
        shape = tuple(sizes.get(n, n) if i < end else n for i, n in enumerate(plain.shape))
        if v.is_contiguous():
            strides = contiguous_strides(shape)  # pyright: ignore
        else:
            strides = tuple(_stride(i, shape, plain) for i in range(v.ndim))
        return TensorSpec(shape, strides, plain.dtype, plain.align)  # pyright: ignore

    return {name: opened(v) for name, v in args.items()}


def _stride(axis: int, shape: tuple, plain: TensorSpec) -> Any:
    code = _extent(axis, plain.strides[axis], plain.shape, plain.strides)
    return code if code >= 0 else shape[-1 - code] * _stride(-1 - code, shape, plain)
