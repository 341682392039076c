"""Plans that serve every batch size.

A call's key without its open sizes is its pattern: dtypes, devices, alignments, which dimensions
are open, how strides follow from sizes, and all values. The open dimensions are those in front of
the last one of a tensor, all dimensions of indices, and others of the same length. The first call
of a pattern is selected with open sizes (contract/symbolic_int.py), and the selected rung is
planned with open sizes. Calls with other sizes for which both traces hold are bound to the same
plan and the same kernels, in microseconds. If selection depends on the size, several selections
share a plan.

If a pattern cannot be opened (lists of tensors, a plan whose kernel depends on the size itself),
each shape is planned by itself, as in `launcher`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import torch

from kernelwright import toolchain
from kernelwright.contract import Ladder, TensorSpec, contiguous_strides
from kernelwright.contract.symbolic_int import GuardedCache, NotOpen, SymbolicInt, Trace, source

from .launcher import (
    RungFunction,
    device_of,
    in_pytorch,
    launcher,
    plan_of,
    required_strides,
)
from .selection import Choice, select

MOST_PLANS = 64  # per rung and config; the oldest is dropped
MOST_CHOICES = 4096  # per pattern
MOST_PATTERNS = 1024  # per operator

#: Binds the plan to sizes and returns the function that runs calls of these sizes.
Bind = Callable[..., RungFunction]


class _Plans:
    """The plans made for a rung and config; `known` is None if they cannot be opened."""

    def __init__(self, choice: Choice):
        self.choice = choice
        self.known: GuardedCache[Bind] | None = GuardedCache(MOST_PLANS)


class _Pattern:
    """The selections and plans for calls that differ only in open sizes."""

    def __init__(self):
        self.chosen: GuardedCache[_Plans] = GuardedCache(MOST_CHOICES)
        self.plans: dict[Hashable, _Plans] = {}  # by rung and config


class OpenCalls:
    """The plans of an operator, by pattern."""

    def __init__(self, ladder: Ladder):
        self._ladder = ladder
        self._names = [a.name for a in ladder.operator.args]
        self._floats = {a.name for a in ladder.operator.args if a.kind.startswith("float")}
        self._by_strides = ladder.operator.layout == "any"
        self._lists = any(a.kind == "Tensor[]" for a in ladder.operator.args)
        self._known: dict[Hashable, _Pattern | None] = {}  # None: selection cannot be opened

    def launcher(self, args: dict[str, Any], rung: str | None) -> RungFunction:
        """The function for calls like this one, as `launcher.launcher` returns it.

        Raises:
            Unsupported, CompiledDuringCapture: see `launcher.launcher`.
        """
        given = tuple(args.values())
        bound = self.bound(given, rung)
        if bound is not None:
            return bound
        if self._lists or not toolchain.opens(args):
            return launcher(self._ladder, args, rung)
        pattern, values = self._pattern_of(given)
        known = self._known.setdefault((rung, *pattern), _Pattern()) if values else None
        if len(self._known) > MOST_PATTERNS:
            self._known.pop(next(iter(self._known)), None)
        if known is None:
            return launcher(self._ladder, args, rung)
        try:
            plans = known.chosen.get(values) or self._chosen(known, args, rung, values)
        except (NotOpen, TypeError):  # TypeError: code that takes only plain integers; an error of
            self._known[rung, *pattern] = None  # the call itself is raised again below
            return launcher(self._ladder, args, rung)
        bind = self._planned(plans, args, values)
        return bind(*values) if bind else launcher(self._ladder, args, rung)

    def bound(self, given: tuple[Any, ...], rung: str | None) -> RungFunction | None:
        """The function for calls like this one, if an existing plan serves their sizes.

        Args:
            given: the operator's arguments in the schema's order.
        """
        if self._lists or not self._known:
            return None
        pattern, values = self._pattern_of(given)
        known = self._known.get((rung, *pattern))
        plans = known and known.chosen.get(values)
        bind = plans and plans.known and plans.known.get(values)
        return bind(*values) if bind else None

    def _pattern_of(self, given: tuple[Any, ...]) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
        named = dict(zip(self._names, given, strict=True))
        return _pattern(named, self._floats, self._by_strides)

    def _chosen(
        self, known: _Pattern, args: dict[str, Any], rung: str | None, values: tuple[int, ...]
    ) -> _Plans:
        """The plans of the rung and config that calls of these sizes are dispatched to.

        Raises:
            NotOpen, TypeError: selection cannot be opened.
        """
        trace = _trace(values)
        specs, _ = self._ladder.operator.normalise(self._opened(args, trace))
        choice = select(self._ladder, specs, device_of(args), rung)
        name = choice.rung.name, *choice.config.items()
        plans = known.plans.setdefault(name, _Plans(choice))
        known.chosen.add(trace, plans)
        return plans

    def _planned(self, plans: _Plans, args: dict[str, Any], values: tuple[int, ...]) -> Bind | None:
        """Binds calls of these and other sizes; None if their plan cannot be opened."""
        if plans.known is None:
            return None
        if (known := plans.known.get(values)) is not None:
            return known
        trace, device = _trace(values), device_of(args)
        try:
            specs, copies = self._ladder.operator.normalise(self._opened(args, trace))
            bind = self._bind(plans.choice, specs, copies, device, trace)
        except (NotOpen, TypeError):
            bind = None
        if bind is None:
            plans.known = None
        else:
            plans.known.add(trace, bind)
        return bind

    def _opened(self, args: dict[str, Any], trace: Trace) -> dict[str, Any]:
        return _opened(args, trace, self._by_strides)

    def _bind(
        self, choice: Choice, specs, copies, device: torch.device, trace: Trace
    ) -> Bind | None:
        rung = choice.rung
        if rung.backend == "torch":  # reads the sizes itself
            bound = in_pytorch(self._ladder, rung, specs, device)
            strides = required_strides(self._ladder.operator, specs, copies)
            if strides is None:
                function = bound(None)
                return lambda *_: function
            of = trace.function(source(strides))
            return lambda *sizes: bound(of(*sizes))
        if not rung.is_gpu:
            return None
        plan = plan_of(self._ladder, rung, specs, device=device, config=choice.config)
        if not toolchain.can_open(plan):
            return None
        operator = self._ladder.operator
        return toolchain.open_executor(plan, operator, specs, copies, device, trace)


def _trace(values: tuple[int, ...]) -> Trace:
    return Trace({f"n{i}": n for i, n in enumerate(values)})


_PRODUCT = -1  # code of an open dimension that is a product of sizes; lower codes: single sizes


def _pattern(
    args: dict[str, Any], floats: set[str], by_strides: bool
) -> tuple[tuple[Hashable, ...], tuple[int, ...]]:
    """(a call without its open sizes, those sizes).

    In a pattern a dimension is its size or, if it is open, a negative code. Strides are included
    if a tensor is not contiguous: as a number of elements or, if a stride is the extent of
    dimension i, as -1 - i.
    """
    tensors = [t for t in args.values() if isinstance(t, torch.Tensor)]
    most = max(t.ndim for t in tensors)
    codes: dict[int, int] = {}
    for t in tensors:
        closed = _columns(t, by_strides) if t.is_floating_point() else -1
        for i, n in enumerate(t.shape):
            if n > 1 and i != closed and n not in codes:
                codes[n] = -2 - len(codes)
    if not codes:
        for t in tensors:
            if t.ndim and t.shape[0] > 1 and t.shape[0] not in codes:
                codes[t.shape[0]] = -2 - len(codes)
    values = tuple(codes)
    rows = math.prod(tensors[0].shape[:-1])  # the length of a tensor of targets, one for each row
    if rows > 1 and rows not in codes:
        codes[rows] = _PRODUCT
    parts: list[Hashable] = []
    for name, v in args.items():
        if isinstance(v, torch.Tensor):
            shape, closed = v.shape, _closed(v, most, by_strides)
            parts += v.dtype, v.get_device(), v.data_ptr() & 15, v.ndim
            parts += [codes.get(n, n) if i != closed else n for i, n in enumerate(shape)]
            if not v.is_contiguous():
                strides = v.stride()
                parts += (_extent(i, s, shape, strides) for i, s in enumerate(strides))
            parts.append("end")
        elif name not in floats:
            parts.append(tuple(v) if isinstance(v, list) else v)
    return tuple(parts), values


def _columns(t: torch.Tensor, by_strides: bool) -> int:
    """The dimension that is not open: the last one or, in operators that take any strides, the one
    before it if a matrix is stored by columns."""
    last = t.ndim - 1
    if by_strides and last > 0 and t.stride(last) != 1 and t.stride(last - 1) == 1:
        return last - 1
    return last


def _closed(t: torch.Tensor, most: int, by_strides: bool) -> int:
    """The dimension whose size is in the pattern: the columns of the largest tensors; -1 if there
    is none."""
    if t.ndim > 1 and t.ndim == most and t.is_floating_point():
        return _columns(t, by_strides)
    return -1


def _extent(axis: int, stride: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """A stride's code: the dimension whose extent it equals, searched from the next one on."""
    for i in (*range(axis + 1, len(shape)), *range(axis)):
        if shape[i] * strides[i] == stride and stride > 1:
            return -1 - i
    return stride


def _opened(args: dict[str, Any], trace: Trace, by_strides: bool) -> dict[str, Any]:
    """The arguments' specs, with the trace's open sizes in open dimensions."""
    sizes: dict[int, SymbolicInt] = {n: trace.size(name) for name, n in trace.values.items()}
    first = next(t for t in args.values() if isinstance(t, torch.Tensor))
    most = max(t.ndim for t in args.values() if isinstance(t, torch.Tensor))
    rows = math.prod(first.shape[:-1])
    if rows > 1 and rows not in sizes:
        sizes[rows] = math.prod(sizes.get(n, n) for n in first.shape[:-1])  # pyright: ignore

    def opened(v: Any) -> Any:
        if not isinstance(v, torch.Tensor):
            return v
        plain, closed = TensorSpec.of(v), _closed(v, most, by_strides)
        shape = tuple(sizes.get(n, n) if i != closed else n for i, n in enumerate(plain.shape))
        if v.is_contiguous():
            strides = contiguous_strides(shape)  # pyright: ignore
        else:
            strides = tuple(_stride(i, shape, plain) for i in range(v.ndim))
        return TensorSpec(shape, strides, plain.dtype, plain.align)  # pyright: ignore

    return {name: opened(v) for name, v in args.items()}


def _stride(axis: int, shape: tuple, plain: TensorSpec) -> Any:
    code = _extent(axis, plain.strides[axis], plain.shape, plain.strides)
    return code if code >= 0 else shape[-1 - code] * _stride(-1 - code, shape, plain)
