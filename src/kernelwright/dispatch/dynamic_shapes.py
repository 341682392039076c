"""Plans that serve every batch size.

A call's key without its open sizes is its pattern: dtypes, devices, alignments, which dimensions
are open, how strides follow from sizes, and all values. The open dimensions are those in front of
the last one of a tensor, all dimensions of indices, and others of the same length. The first call
of a pattern is selected with open sizes (contract/symbolic_int.py), and the selected rung is
planned with open sizes. Calls with other sizes for which both guards hold are bound to the same
plan and the same kernels, in microseconds. If selection depends on the size, several selections
share a plan.

If a pattern cannot be opened (lists of tensors, a plan whose kernel depends on the size itself),
each shape is planned by itself, as in `launcher`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernelwright import toolchain
from kernelwright.contract import Ladder, TensorSpec, contiguous_strides
from kernelwright.contract.symbolic_int import GuardedCache, Trace, source

from .launcher import (
    RungFunction,
    device_of,
    in_pytorch,
    launcher,
    plan_of,
    required_strides,
)
from .selection import Choice, Specs, select

MOST_PLANS = 64  # per rung and config
MOST_CHOICES = 4096  # per pattern
MOST_PATTERNS = 1024  # per operator

#: Binds a plan to sizes: the function that runs calls of these sizes; None if each shape is planned
#: by itself.
Bind = Callable[..., RungFunction | None]
#: A selection, None if it needs a size itself, and the plans of its rung and config.
_Chosen = tuple[Choice | None, GuardedCache[Bind]]
_Parts = tuple[Any, ...]  # of a pattern, one for each argument


class _Pattern(GuardedCache[_Chosen]):
    """The selections for calls that differ only in open sizes."""

    def __init__(self):
        super().__init__(MOST_CHOICES)
        self.plans: dict[Hashable, GuardedCache[Bind]] = {}  # by rung and config


class OpenCalls:
    """The plans of an operator, by pattern."""

    def __init__(self, ladder: Ladder):
        args = ladder.operator.args
        self._ladder, self._operator = ladder, ladder.operator
        self._floats = [a.kind.startswith("float") for a in args]
        self._lists = any(a.kind == "Tensor[]" for a in args)
        self._known: dict[Hashable, _Pattern] = {}

    def launcher(self, args: dict[str, Any], rung: str | None) -> RungFunction:
        """The function for calls like this one, as `launcher.launcher` returns it.

        Raises:
            Unsupported, CompiledDuringCapture: see `launcher.launcher`.
        """
        if self._lists or not toolchain.opens(args):
            return launcher(self._ladder, args, rung)
        pattern, values = self._pattern(tuple(args.values()))
        bound = self._served(rung, pattern, values)
        if bound is None and values:
            bound = self._planned(args, rung, pattern, values)
        return bound or launcher(self._ladder, args, rung)

    def bound(self, given: tuple[Any, ...], rung: str | None) -> RungFunction | None:
        """The function for calls like this one, if an existing plan serves their sizes.

        Args:
            given: the operator's arguments in the schema's order.
        """
        return self._served(rung, *self._pattern(given)) if self._known else None

    def _served(
        self, rung: str | None, pattern: _Parts, values: tuple[int, ...]
    ) -> RungFunction | None:
        known = self._known.get((rung, pattern))
        chosen = known and known.get(values)
        bind = chosen and chosen[1].get(values)
        return bind and bind(*values)

    def _planned(
        self, args: dict[str, Any], rung: str | None, pattern: _Parts, values: tuple[int, ...]
    ) -> RungFunction | None:
        """Select and plan with open sizes what is not known yet, and bind it."""
        known, device = self._known.setdefault((rung, pattern), _Pattern()), device_of(args)
        if len(self._known) > MOST_PATTERNS:
            self._known.pop(next(iter(self._known)), None)

        def kept(cache: GuardedCache, make: Callable, otherwise: Any) -> Any:
            """What `make` returns for open sizes; `otherwise` if it needs a size itself."""
            if (result := cache.get(values)) is None:
                trace = Trace({f"n{i}": n for i, n in enumerate(values)})
                try:
                    specs, copies = self._operator.normalise(_opened(args, pattern, trace))
                    result = make(specs, copies, trace)
                except TypeError:  # any other TypeError is raised again when the shape is planned
                    result = otherwise
                cache.add(trace, result)
            return result

        def select_(specs: Specs, *_: Any) -> _Chosen:
            choice = select(self._ladder, specs, device, rung)
            name = choice.rung.name, *choice.config.items()
            return choice, known.plans.setdefault(name, GuardedCache(MOST_PLANS))

        choice, plans = kept(known, select_, (None, GuardedCache(1)))
        return kept(plans, partial(self._bind, choice, device), _by_shape)(*values)

    def _bind(self, choice: Choice | None, device: torch.device, specs: Specs,
              copies: tuple[str, ...], trace: Trace) -> Bind:  # fmt: skip
        if choice is not None and choice.rung.backend == "torch":  # reads the sizes itself
            bound = in_pytorch(self._ladder, choice.rung, specs, device)
            strides = required_strides(self._operator, specs, copies)
            if strides is None:
                function = bound(None)
                return lambda *_: function
            of = trace.function(source(strides))
            return lambda *sizes: bound(of(*sizes))
        if choice is not None and choice.rung.is_gpu:
            plan = plan_of(self._ladder, choice.rung, specs, device=device, config=choice.config)
            if toolchain.can_open(plan):
                return toolchain.open_executor(plan, self._operator, specs, copies, device, trace)
        return _by_shape

    def _pattern(self, given: tuple[Any, ...]) -> tuple[_Parts, tuple[int, ...]]:
        return _pattern(given, self._floats, self._operator.layout == "any")


def _by_shape(*_: int) -> None:
    """The Bind of a plan whose sizes cannot be open."""


def _pattern(
    given: tuple[Any, ...], floats: list[bool], by_strides: bool
) -> tuple[_Parts, tuple[int, ...]]:
    """(a call without its open sizes and floats, those sizes).

    Open are all dimensions but columns, and tensors of one element per row, such as saved
    statistics. In the pattern, -1 - i is open size i, also in other dimensions of the same length,
    but not in the columns of the largest tensors. So is, as a stride, the extent of dimension i.
    """
    tensors = [t for t in given if isinstance(t, torch.Tensor)]
    most, rows = max([t.ndim for t in tensors]), math.prod(tensors[0].shape[:-1])
    codes: dict[int, int] = {}
    for t in tensors:
        closed = -1 if most == 1 or (t.ndim == 1 and len(t) == rows) else _columns(t, by_strides)
        for i, n in enumerate(t.shape):
            if n > 1 and i != closed and n not in codes:
                codes[n] = -1 - len(codes)
    parts: list[Any] = []
    for v, is_float in zip(given, floats, strict=True):
        if isinstance(v, torch.Tensor):
            closed = _columns(v, by_strides) if v.ndim == most > 1 else -1
            shape = [codes.get(n, n) if i != closed else n for i, n in enumerate(v.shape)]
            strides = () if v.is_contiguous() else _extents(v.shape, v.stride())
            parts.append((v.dtype, v.get_device(), v.data_ptr() & 15, tuple(shape), strides))
        else:
            parts.append(None if is_float else tuple(v) if isinstance(v, list) else v)
    return tuple(parts), tuple(codes)


def _columns(t: torch.Tensor, by_strides: bool) -> int:
    """The dimension that is not open: the last one or, in operators that take any strides, the one
    before it if a matrix is stored by columns; -1 for indices."""
    if not t.is_floating_point():
        return -1
    last = t.ndim - 1
    return last - (by_strides and last > 0 and t.stride(last) != 1 and t.stride(last - 1) == 1)


def _extents(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    extents = {n * s: -1 - i for i, (n, s) in enumerate(zip(shape, strides, strict=True)) if n > 1}
    return tuple(extents.get(s, s) if s > 1 else s for s in strides)


def _opened(args: dict[str, Any], pattern: _Parts, trace: Trace) -> Specs:
    """The arguments' specs, with the trace's open sizes in place of the pattern's."""
    sizes = [trace.size(name) for name in trace.values]

    def opened(t: torch.Tensor, codes: tuple[int, ...], extents: tuple[int, ...]) -> TensorSpec:
        shape: tuple[Any, ...] = tuple(n if n >= 0 else sizes[-1 - n] for n in codes)

        def stride(code: int) -> Any:
            return code if code >= 0 else shape[-1 - code] * stride(extents[-1 - code])

        strides = tuple(map(stride, extents)) if extents else contiguous_strides(shape)
        return replace(TensorSpec.of(t), shape=shape, strides=strides)

    return {
        name: opened(v, *part[3:]) if isinstance(v, torch.Tensor) else v
        for (name, v), part in zip(args.items(), pattern, strict=True)
    }
