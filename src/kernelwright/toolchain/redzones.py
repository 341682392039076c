"""Allocation with poison values and red zones, to find writes outside of results and elements that
were never written.

    with memory.guarded() as guard:
        run = dispatch.launcher(ladder, args, "triton_row")
    result = run(*args.values())
    problem = guard.check()  # "y: 3 bytes written after its end" or None

compute-sanitizer does not detect such writes, because PyTorch's caching allocator returns parts of
larger blocks.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

import torch

from kernelwright.contract import TensorSpec
from kernelwright.contract.layout import REDZONE
from kernelwright.support.words import counted

ALIGNMENT = 512  # of the caching allocator; REDZONE is a multiple of it

# Bit patterns that kernels do not write: NaNs with a payload for floats, large integers.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_POISON = {
    torch.float64: 0x7FFDA5A5A5A5A5A5,
    torch.float32: 0x7FEDA5A5,
    torch.float16: 0x7FB5,
    torch.bfloat16: 0x7FED,
}
_POISON_INTEGER = {1: 0x7F, 2: 0x7F7D, 4: 0x7F7D7E7B, 8: 0x7F7D7E7B7F7D7E7B}

active: Guard | None = None


@dataclass
class _Allocation:
    name: str
    tensor: torch.Tensor
    buffer: torch.Tensor
    spec: TensorSpec
    result: bool
    zero: bool


class Guard:
    """Allocates for the runners that are bound while it is active, and records the allocations."""

    def __init__(self):
        self._given: list[_Allocation] = []

    def empty(self, name: str, spec: TensorSpec, device, *, result=True, zero=False):
        """A tensor between red zones, filled with the poison value. `result`: a kernel must write
        all of it. `zero`: it is filled with zeros instead, and kernels must leave it zero."""
        poison, integer = _poison(spec.dtype)
        extent = 1 + sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
        extent = extent if spec.numel() else 0
        zone = REDZONE // spec.itemsize
        buffer = torch.full((zone + extent + zone,), poison, dtype=integer, device=device)
        tensor = buffer.view(spec.dtype).as_strided(spec.shape, spec.strides, zone)
        if zero:
            tensor.zero_()
        self._given.append(_Allocation(name, tensor, buffer, spec, result, zero))
        return tensor

    def check(self) -> str | None:
        """The first violation in the allocations since the last check, in one line, or None."""
        given, self._given = self._given, []
        return next((p for p in map(_problem, given) if p), None)


@contextmanager
def guarded():
    """Runners bound inside the block allocate through a guard. The guard is that of the block in
    which they are called or, outside of any block, of the block in which they were bound."""
    with _active(Guard()) as guard:
        assert guard is not None
        yield guard


def unguarded():
    """Runners bound inside the block allocate without a guard, because they are kept for later."""
    return _active(None)


@contextmanager
def _active(guard: Guard | None):
    global active
    before, active = active, guard
    try:
        yield guard
    finally:
        active = before


def allocator():
    """`Guard.empty` for a runner that is bound now: of the guard active during the call, or now."""
    bound_under = active

    def empty(*args, **options):
        guard = active or bound_under
        assert guard is not None
        return guard.empty(*args, **options)

    return empty


def _poison(dtype: torch.dtype) -> tuple[int, torch.dtype]:
    size = dtype.itemsize
    return _POISON.get(dtype, _POISON_INTEGER[size]), _INTEGERS[size]


def _problem(a: _Allocation) -> str | None:
    poison, _ = _poison(a.spec.dtype)
    zone, size = REDZONE // a.spec.itemsize, a.spec.itemsize
    for where, part in (("before its start", a.buffer[:zone]), ("after its end", a.buffer[-zone:])):
        touched = (part != poison).nonzero().flatten()
        if touched.numel():
            near = zone - int(touched[-1]) if where[0] == "b" else int(touched[0]) + 1
            return (
                f"{a.name}: {touched.numel() * size} bytes written {where}, "
                f"the nearest {near * size} bytes away"
            )
    if a.zero and bool((a.tensor != 0).any()):
        return f"{a.name}: workspace that must be left zero is not zero"
    return unwritten(a.name, a.tensor) if a.result else None


def unwritten(name: str, t: torch.Tensor) -> str | None:
    """How many elements of a result still hold the poison value, in words, or None."""
    if t.dtype.is_complex:
        return None
    poison, integer = _poison(t.dtype)
    same = (t.view(integer) == poison).reshape(-1)
    count = int(same.sum())
    # one-byte dtypes have no unused value: they count only if the whole tensor is poison
    if count and (t.itemsize > 1 or count == same.numel() > 1):
        first = int(same.nonzero()[0])
        return (
            f"{name}: {count} of {counted(same.numel(), 'element')} never written; "
            f"the first is element {first}"
        )
    return None
