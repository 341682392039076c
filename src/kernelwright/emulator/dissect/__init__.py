"""Measures what each access and each branch of an emulated kernel costs a warp: the counterpart of
a profiler's counters on a CPU.

    look = Dissection()
    with look.mode():
        run = dispatch.launcher(ladder, args, "cuda_warp", config)
    launches = look.call(run, args)

Files: warp_convergence.h groups the executions of a warp's lanes, requests.h computes the cost of a
request, dissect.cpp observes; branches.py decides what counts as a branch, lines.py finds the
rung's lines. docs: "dissect and debug" describes the model and its limits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, byref, c_int32, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import build, hopper
from ..launch import Schedule
from .branches import Node, find_branches
from .lines import Place, places_of

if TYPE_CHECKING:  # whole programs are dissected without PyTorch
    from kernelwright.contract import Launch

__all__ = ["Access", "Branch", "Dissected", "Dissection", "Memory", "Place"]

HERE = Path(__file__).resolve().parent
SECTOR = 32  # bytes
_WRITE, _ATOMIC, _BULK, _PRODUCT = 1, 4, 16, 32


class _Region(Structure):
    _fields_ = [(n, c_uint64) for n in ("start", "end", "sectors_read", "sectors_written")]


class _Sums(Structure):
    _fields_ = [
        (n, c_uint64) for n in ("requests", "lanes", "passes", "least_passes", "distinct_bytes")
    ]


class RawSite(Structure):
    _fields_ = [
        ("where", c_uint64),
        ("region", c_int32),
        ("bytes", c_uint32),
        ("kind", c_uint32),
        ("sums", _Sums),
        ("sectors", c_uint64),
        ("whole", _Sums * 2),
    ]


class RawStep(Structure):
    _fields_ = [
        *((n, c_uint64) for n in ("where", "executions", "lanes", "parted", "works")),
        ("successors", c_uint64 * 4),
    ]


@dataclass(frozen=True)
class Access:
    """A memory instruction: sums over all its requests (one per warp and execution).

    Attributes:
        place: the rung's line, and the position inside a header.
        kind: "load", "store", "atomic"; "async load", "async store": the two sides of a copy
            from global to shared memory that passes through no register; "bulk load", "bulk store":
            a copy by the tensor memory accelerator; "wgmma": a product's reads of its operands.
        memory: the tensor's name; "shared".
        width: bytes per lane, or of a bulk copy or product, which one lane counts for.
        requests: instructions executed by warps.
        lanes: active lanes, summed over all requests.
        sectors: 32-byte sectors, summed over all requests; 0 for shared memory.
        passes: through the banks of shared memory (wavefronts), at least one per request; 0 for
            global memory. `least_passes`: the number without bank conflicts.
        distinct_bytes: of shared memory, summed over all requests.
    """

    place: Place
    kind: str
    memory: str
    width: int
    requests: int
    lanes: int
    sectors: int
    passes: int
    least_passes: int
    distinct_bytes: int

    @property
    def bytes(self) -> int:
        """Bytes requested by lanes."""
        return self.lanes * self.width

    @property
    def conflicts(self) -> int:
        return self.passes - self.least_passes


@dataclass(frozen=True)
class Branch:
    """A branch (branches.py decides which ones count): how often warps executed it, with how many
    lanes in total, and how often it diverged."""

    place: Place
    executions: int
    lanes: int
    parted: int


@dataclass(frozen=True)
class Memory:
    """A tensor of a launch: its size in bytes, and the distinct sectors read and written."""

    name: str
    bytes: int
    sectors_read: int
    sectors_written: int


@dataclass(frozen=True)
class Dissected:
    """One launch.

    Attributes:
        steps, lanes: basic blocks executed by warps, and the sum of their active lanes; without the
            sides of branches that do not count.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    accesses: tuple[Access, ...]
    branches: tuple[Branch, ...]
    memory: tuple[Memory, ...]
    steps: int
    lanes: int


class Dissection:
    """Dissects the launches of one call."""

    def __init__(self) -> None:
        self._done: list[Dissected] = []
        self._step: Launch | None = None
        self._names: list[str] = []
        self._args: dict[str, Any] = {}

    def mode(self):
        """Launches bound inside the block are dissected."""
        from .. import mode

        observer = _library().kw_dissect_observer()
        return mode("dissected", Schedule(workers=1, patience=0), observer, self._before)

    def call(self, run: Callable[..., Any], args: dict[str, Any]) -> list[Dissected]:
        """Call `run` and return the dissection of its launches."""
        self._done, self._step, self._args = [], None, args
        run(*args.values())
        self._collect()
        return self._done

    def _before(self, step: Launch, values: Sequence[Any]) -> None:
        from kernelwright.contract import Pointers, Scalar, TensorMap

        self._collect()
        self._step = step
        memory: dict[tuple[int, int], str] = {}
        for argument, value in zip(step.args, values, strict=True):
            if isinstance(argument, Pointers):
                for name in argument.lists:
                    for i, t in enumerate(self._args[name]):
                        memory.setdefault(_span(t), f"{name}[{i}]")
                memory.setdefault(_span(value), "the list of addresses")
            elif isinstance(argument, TensorMap):
                memory.setdefault(hopper.address_range(argument, value), argument.tensor)
            elif not isinstance(value, Scalar):
                memory.setdefault(_span(value), str(argument))
        spans = [(s, e) for s, e in memory if s < e]
        self._names = [memory[s] for s in spans]
        regions = (_Region * len(spans))(*(_Region(s, e, 0, 0) for s, e in spans))
        _library().kw_dissect_begin(regions, len(spans))

    def _collect(self) -> None:
        step, self._step = self._step, None
        if step is None:
            return
        lib, count = _library(), c_size_t()
        rows = lib.kw_dissect_sites(byref(count))
        sites = [rows[i] for i in range(count.value)]
        rows = lib.kw_dissect_steps(byref(count))
        steps = [rows[i] for i in range(count.value)]
        regions = lib.kw_dissect_regions()
        memory = tuple(
            Memory(
                name,
                regions[i].end - regions[i].start,
                regions[i].sectors_read,
                regions[i].sectors_written,
            )
            for i, name in enumerate(self._names)
        )
        its = (step.kernel.name, step.kernel.source, step.grid, step.block)
        self._done.append(dissected(*its, memory, sites, steps))


def dissected(
    kernel: str,
    source: Path,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    memory: tuple[Memory, ...],
    sites: list[RawSite],
    steps: list[RawStep],
    executable: Path | None = None,
) -> Dissected:
    """A launch from the observer's counts.

    Args:
        executable: as `places_of` takes it.
    """
    sites = [s for s in sites if s.sums.requests]
    nodes = {s.where: Node(tuple(filter(None, s.successors)), s.works > 0) for s in steps}
    counting, selected = find_branches(nodes)
    branches = [s for s in steps if s.where in counting]
    steps = [s for s in steps if s.where not in selected]
    places = places_of(source, [s.where for s in sites], [s.where for s in branches], executable)
    names = [m.name for m in memory]
    return Dissected(
        kernel,
        grid,
        block,
        tuple(filter(None, (_access(s, places[s.where], names) for s in sites))),
        tuple(
            Branch(places[-s.where], s.executions, s.lanes, s.parted)
            for s in branches
            if -s.where in places
        ),
        memory,
        sum(s.executions for s in steps),
        sum(s.lanes for s in steps),
    )


def _access(s: RawSite, place: Place, names: Sequence[str]) -> Access | None:
    """None for an element of a vector that an earlier access has read completely."""
    kind = "atomic" if s.kind & _ATOMIC else "store" if s.kind & _WRITE else "load"
    if s.kind & (_BULK | _PRODUCT):
        kind = "wgmma" if s.kind & _PRODUCT else f"bulk {kind}"
        of = "shared" if s.region < 0 else names[s.region]
        counts = s.sums.requests, s.sums.lanes, s.sectors, s.sums.passes, s.sums.least_passes
        return Access(place, kind, of, s.bytes, *counts, s.sums.distinct_bytes)
    if place.asynchronous and s.bytes >= 4:
        kind = f"async {kind}"
    memory = "shared" if s.region < 0 else names[s.region]
    width, sums = s.bytes, s.sums
    if s.region < 0 and kind == "load" and width < place.vector:
        width, sums = place.vector, s.whole[place.vector // 16]
        if not sums.requests:
            return None
    numbers = sums.requests, sums.lanes, s.sectors, sums.passes, sums.least_passes
    return Access(place, kind, memory, width, *numbers, sums.distinct_bytes)


def _span(t: Any) -> tuple[int, int]:
    """The address of a tensor's first byte, and the address after its last."""
    if not t.numel():
        return t.data_ptr(), t.data_ptr()
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + extent * t.element_size()


@once
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(build.observer(HERE)))
    lib.kw_dissect_observer.restype = c_void_p
    lib.kw_dissect_begin.argtypes = (POINTER(_Region), c_size_t)
    lib.kw_dissect_begin.restype = None
    lib.kw_dissect_regions.restype = POINTER(_Region)
    for name, kind in (("sites", RawSite), ("steps", RawStep)):
        function = getattr(lib, f"kw_dissect_{name}")
        function.argtypes, function.restype = (POINTER(c_size_t),), POINTER(kind)
    return lib
