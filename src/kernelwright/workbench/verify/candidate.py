"""A candidate, its expected results, and the arguments with which it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol

import torch

from kernelwright.contract import Case, Operator

#: Elements of filler on either side of a copied argument: what a block of 1024 threads reaches with
#: four elements each, so that its result does not depend on what is beside the argument.
FENCE = 4096
_CACHED = 2**20  # elements; the expected results of larger cases are not cached


@dataclass(frozen=True, eq=False)
class Candidate:
    """An implementation to verify: a rung with a config, a user's kernel, a deliberately wrong one.

    Attributes:
        operator: the operator that it should compute.
        call: takes the operator's arguments in the schema's order.
        native: PyTorch's own function, called in the same way; its error determines the budget.
        deterministic: whether equal inputs must give bitwise equal results.
        sibling: a case of another shape that the candidate supports too, or None.
        is_native: whether this is PyTorch's own function itself.
        any_strides: whether results may have other strides than the specified ones.
        runner: the process in which it runs, if not this one.
        check: given the arguments and the results of a call, what is wrong, or ""; it decides in
            place of the error budget, and about the dtypes of the results.
    """

    operator: Operator
    call: Callable[..., Any]
    native: Callable[..., Any]
    deterministic: bool = True
    sibling: Callable[[Case], Case | None] = lambda case: None
    any_strides: bool = False
    runner: Runner | None = None
    is_native: bool = False
    check: Callable[[dict[str, Any], tuple[Any, ...]], str] | None = None


class Expected:
    """The arguments of a case and the expected results, which include mutated arguments.

    Attributes:
        args: the arguments by name, in the schema's order.
        reference: results in float64.
        native: PyTorch's own results.
        noise: the noise of each result, as in `contract.compare`; computed on first use.
        largest: the largest errors of `native`, as found by `large_tensors`.
    """

    def __init__(self, operator: Operator, native: Callable, case: Case, device: str):
        inputs = operator.inputs(case, device)
        self.args = operator.with_defaults(inputs)
        self.largest: dict[tuple[int, bool], float] = {}
        self.reference = _reference(operator, self.args)
        theirs = map_tensors(self.args, copy_of)
        self.native = all_results(operator, theirs, native(*theirs.values()))
        if device == "cuda":
            torch.cuda.synchronize()  # an error here belongs to this case, not to the next
        self._make_noise = lambda: _noise(
            operator, native, self.args, 8 if case.numel < _CACHED else 2
        )

    @cached_property
    def noise(self) -> tuple[torch.Tensor | None, ...]:
        noises = self._make_noise()
        return (*noises, *(None,) * (len(self.native) - len(noises)))


def expected(operator: Operator, native: Callable, case: Case, device: str) -> Expected:
    """The expected results; cached for small cases, because every rung is compared with them."""
    return (_remembered if case.numel < _CACHED else Expected)(operator, native, case, device)


_remembered = lru_cache(maxsize=512)(Expected)


def _reference(operator: Operator, args: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    exact = map_tensors(args, _in_double)
    return all_results(operator, exact, operator.reference(**exact))


def _in_double(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.float64 if t.is_floating_point() else t.dtype, copy=True)


def _noise(operator: Operator, native: Callable, args: dict[str, Any], draws: int):
    """For each element of each result, the largest error of PyTorch in float32 (float64 if an
    argument is) over inputs perturbed by rounding errors; or the value from the operator's own
    error analysis."""
    if operator.noise:
        return operator.noise(**args)
    wide = torch.float32
    if any(t.dtype == torch.float64 for t in tensors(args)):
        wide = torch.float64
    generator = torch.Generator(device=tensors(args)[0].device).manual_seed(0)

    def nudged(t):
        if not t.is_floating_point():
            return t.clone()
        nudge = torch.rand(t.shape, generator=generator, device=t.device, dtype=wide) - 0.5
        return t.to(wide) * (1 + 2 * torch.finfo(wide).eps * nudge)

    largest: list[torch.Tensor] = []
    for _ in range(draws):
        near = map_tensors(args, nudged)
        want = _reference(operator, near)
        got = all_results(operator, near, native(*near.values()))
        errors = [
            (g.double() - w.double()).abs().nan_to_num(0, 0, 0)
            for g, w in zip(got, want, strict=True)
        ]
        largest = list(map(torch.maximum, largest, errors)) if largest else errors
    return tuple(largest)


@dataclass(eq=False)
class Run:
    """A completed call: its arguments between red zones, its results and their addresses.

    Attributes:
        results: results including mutated arguments.
        outputs: results without mutated arguments.
        devices: the devices of the outputs, as named in the candidate's process.
        storages: addresses of the outputs' memory, in the candidate's process.
        lent: addresses of the arguments' memory, in the candidate's process.
        reread: returns the current values of the outputs.
        allocations: errors found in the memory around outputs and workspaces.
        replaced: functions of torch or Python that the candidate has replaced, in one line.
    """

    fenced: GuardedArgs
    results: tuple[Any, ...]
    outputs: tuple[Any, ...]
    devices: tuple[str, ...]
    storages: tuple[int, ...]
    lent: frozenset[int]
    reread: Callable[[], tuple[Any, ...]]
    allocations: str | None = None
    replaced: str | None = None


class Runner(Protocol):
    """The process in which a candidate runs."""

    def fence(self, args: dict[str, Any]) -> GuardedArgs:
        """Copies of arguments that can be passed to the candidate."""
        ...

    def run(self, fenced: GuardedArgs, *, guarded: bool = False) -> Run:
        """Call it, and wait for its results. `guarded`: poisoned outputs between red zones."""
        ...

    def late(self, args: dict[str, Any]) -> tuple[Any, ...]:
        """Its results on a busy stream: the arguments are written on it just before the call, and
        only this stream is synchronized afterwards."""
        ...

    def threads_left(self, fenced: GuardedArgs) -> list[str]:
        """Names of the threads that a second call leaves running."""
        ...

    def growth(self, fenced: GuardedArgs, calls: int) -> int:
        """Growth of allocated GPU memory over many calls, in bytes."""
        ...

    def capture(self, fenced: GuardedArgs) -> Callable[[], tuple[Any, ...]]:
        """Capture a call in a CUDA graph; returns a function that replays it and gives its results.

        Raises:
            NotCaptured: it cannot be captured.
        """
        ...


class NotCaptured(Exception):
    """A call cannot be captured in a CUDA graph; the message states the reason."""


class GuardedArgs:
    """Copies of a call's arguments with the same strides and alignment, in memory filled with NaN
    (or another value that corrupts results) before, after and between their elements.

    Args:
        empty: allocates a flat buffer of a given number of elements, like a tensor; by default on
            the tensor's device.
    """

    def __init__(
        self,
        args: dict[str, Any],
        empty: Callable[[int, torch.Tensor], torch.Tensor] | None = None,
    ):
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._empty = empty or _empty
        self.args = map_tensors(args, self._place)

    def _place(self, t: torch.Tensor) -> torch.Tensor:
        buffer, view = _between_fences(t, self._empty)
        self._buffers.append((buffer, buffer.clone()))
        return view

    def refill(self, args: dict[str, Any]) -> None:
        """Write other values to the same memory."""
        for mine, theirs in zip(tensors(self.args), tensors(args), strict=True):
            unexpanded(mine).copy_(unexpanded(theirs))
        for buffer, before in self._buffers:
            before.copy_(buffer)

    def changed(self, mutated: tuple[str, ...]) -> str | None:
        """Which argument's memory has changed (except elements of mutated arguments), or None."""
        buffers = iter(self._buffers)
        for name, v in self.args.items():
            for view in tensors({name: v}):
                buffer, before = next(buffers)
                if name in mutated:
                    offset = view.storage_offset() - buffer.storage_offset()
                    before.as_strided(view.shape, view.stride(), offset).copy_(view)
                if not same_bits(buffer, before):
                    return name
        return None


def address(t: Any) -> int:
    """The address of a tensor's memory; 0 for other values."""
    return t.untyped_storage().data_ptr() if isinstance(t, torch.Tensor) else 0


def filler(dtype: torch.dtype) -> float | int | bool:
    """The filler for memory that must not be read: it corrupts all results computed from it."""
    if dtype.is_floating_point or dtype.is_complex:
        return float("nan")
    return True if dtype == torch.bool else torch.iinfo(dtype).max


def unexpanded(t: torch.Tensor) -> torch.Tensor:
    """A view of a tensor that shows each element of a broadcast dimension once."""
    shape = [1 if s == 0 else n for n, s in zip(t.shape, t.stride(), strict=True)]
    return t.as_strided(shape, t.stride())


def copy_of(t: torch.Tensor, device: torch.device | None = None) -> torch.Tensor:
    """A copy with the same strides, including stride 0; on another device if one is given."""

    def empty(size: int, like: torch.Tensor) -> torch.Tensor:
        return torch.empty(size, dtype=like.dtype, device=device or like.device)

    return _between_fences(t, empty)[1]


def _between_fences(
    t: torch.Tensor, empty: Callable[[int, torch.Tensor], torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """A buffer of filler that contains a copy of a tensor, and the copy."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    lead = FENCE + t.data_ptr() % 16 // t.itemsize
    size = lead + (extent if t.numel() else 0) + FENCE
    buffer = empty(size, t)
    view = buffer.as_strided(t.shape, t.stride(), buffer.storage_offset() + lead)
    if t.is_contiguous():  # nothing lies between its elements
        buffer[:lead] = buffer[size - FENCE :] = filler(t.dtype)
    else:
        buffer.fill_(filler(t.dtype))
    unexpanded(view).copy_(unexpanded(t))
    return buffer, view


def _empty(size: int, like: torch.Tensor) -> torch.Tensor:
    return torch.empty(size, dtype=like.dtype, device=like.device)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Bitwise equality: NaNs with the same payload are equal, 0 and -0 are not."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.numel() == 0:
        return True
    a, b = a.contiguous().reshape(-1), b.contiguous().reshape(-1)
    return torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def tensors(args: dict[str, Any]) -> list[torch.Tensor]:
    listed = []
    for v in args.values():
        listed += [t for t in (v if isinstance(v, (list, tuple)) else (v,)) if is_tensor(t)]
    return listed


def map_tensors(args: dict[str, Any], fn: Callable) -> dict[str, Any]:
    def apply(v):
        if isinstance(v, (list, tuple)) and v and is_tensor(v[0]):
            return [fn(t) for t in v]
        return fn(v) if is_tensor(v) else v

    return {k: apply(v) for k, v in args.items()}


def is_tensor(v: Any) -> bool:
    return isinstance(v, torch.Tensor)


def not_plain(t: torch.Tensor) -> str | None:
    """Why a tensor is not plain (a lazy view, or one with a gradient history), or None."""
    if t.is_neg():
        return "a lazily negated view"
    if t.is_conj():
        return "a lazily conjugated view"
    return "a tensor that requires a gradient" if t.requires_grad else None


def all_results(operator: Operator, args: dict[str, Any], out: Any) -> tuple[Any, ...]:
    """The results that a call returned, then the arguments that it changed."""
    results = () if out is None else tuple(out) if isinstance(out, (list, tuple)) else (out,)
    return (*results, *tensors({n: args[n] for n in operator.mutated}))


def result_names(operator: Operator, args: dict[str, Any]) -> list[str]:
    """Names of `all_results`, "params[3]" for an element of a list."""
    names = list(operator.results)
    for n in operator.mutated:
        v = args[n]
        names += [f"{n}[{i}]" for i in range(len(v))] if isinstance(v, (list, tuple)) else [n]
    return names
