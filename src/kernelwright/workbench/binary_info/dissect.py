"""The cost of each line of a CUDA C++ rung, measured on the CPU: sectors, bank conflicts, active
lanes, divergent branches; and the traffic compared with the operator's cost.

`records/emulator/dissect.json` contains the data for the READMEs and the report as `Dissection`s.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernelwright import emulator
from kernelwright.contract import Case, Config, Ladder, Rung
from kernelwright.dispatch import (
    data,
    device_of,
    ladders,
    launcher,
    plan_of,
    source_hash,
    specs_of,
    unsupported,
)
from kernelwright.emulator import dissect as emulated
from kernelwright.emulator.dissect import Access, Branch, Dissected, Memory, Place
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import cpu_executor
from kernelwright.workbench.records import records
from kernelwright.workbench.sanitize.tool_runner import apart, watched_cases
from kernelwright.workbench.verify.candidate import map_tensors

MACHINE = "emulator"
SECTOR = emulated.SECTOR
#: The cases shown in the READMEs and the page of dissect, also measured by Nsight Compute on a GPU.
RECORDED = {
    "sum": ("1048576-f32-dim=None", "1048576-bf16-dim=None"),
    "softmax": ("4096x768-f32-dim=-1", "4096x768-bf16-dim=-1"),
    "softmax.backward": ("4096x768-f32-dim=-1", "4096x768-bf16-dim=-1"),
}


@dataclass(frozen=True)
class Dissection:
    """One call of a rung.

    Attributes:
        hash: the rung's source hash.
        cost: bytes that the operator must move.
        launches: the launches, in order.
    """

    operator: str
    rung: str
    hash: str
    config: Config
    case: str
    cost: int
    launches: tuple[Dissected, ...]

    @property
    def asked(self) -> int:
        """Bytes of global memory requested by lanes; an atomic counts as one read."""
        return sum(a.bytes for x in self.launches for a in x.accesses if a.sectors)

    @property
    def sectors(self) -> int:
        """Sectors touched, summed over all requests."""
        return sum(a.sectors for x in self.launches for a in x.accesses)

    @property
    def distinct(self) -> int:
        """Distinct sectors touched by each launch: the traffic with a perfect cache."""
        return sum(m.sectors_read + m.sectors_written for x in self.launches for m in x.memory)

    @property
    def conflicts(self) -> int:
        return sum(a.conflicts for x in self.launches for a in x.accesses)

    @property
    def passes(self) -> int:
        return sum(a.passes for x in self.launches for a in x.accesses)

    @property
    def products(self) -> int:
        """Instructions of the tensor cores (wgmma)."""
        return sum(a.requests for x in self.launches for a in x.accesses if a.kind == "wgmma")

    @property
    def copied(self) -> int:
        """Bytes that the tensor memory accelerator copied from and to global memory."""
        bulk = ("bulk load", "bulk store")
        return sum(a.bytes for x in self.launches for a in x.accesses if a.kind in bulk)

    @property
    def parted(self) -> int:
        return sum(b.parted for x in self.launches for b in x.branches)

    @property
    def steps(self) -> int:
        """Basic blocks that warps executed."""
        return sum(x.steps for x in self.launches)

    @property
    def active(self) -> float:
        """Mean number of active lanes of a basic block."""
        return sum(x.lanes for x in self.launches) / self.steps


@dataclass(frozen=True)
class Line:
    """Accesses of one kind at one place, over all launches. `memory`: the memory in each launch."""

    place: Place
    kind: str
    memory: tuple[str, ...]
    width: int
    requests: int
    lanes: int
    sectors: int
    passes: int
    least_passes: int

    @property
    def active(self) -> float:
        return self.lanes / self.requests

    @property
    def idle(self) -> bool:
        """Whether few lanes take part in an instruction that all could."""
        alone = self.kind in ("bulk load", "bulk store", "wgmma")
        return not alone and self.active < LOW * 32

    @property
    def efficiency(self) -> float | None:
        """Requested bytes divided by the bytes in the touched sectors; more than 1 if lanes share
        bytes. None for shared memory."""
        return self.lanes * self.width / (self.sectors * SECTOR) if self.sectors else None

    @property
    def conflicts(self) -> int:
        return self.passes - self.least_passes


def dissect(
    ladder: Ladder, rung: Rung, case: Case | None = None, config: Config | None = None
) -> Dissection:
    """Dissect a CUDA C++ rung in the emulator.

    Args:
        case: by default `usual_case`.
        config: by default the first.

    Raises:
        ValueError: the rung is not CUDA C++, or does not support the case.
        ToolchainError: there is no compiler here, or the emulator cannot run the rung.
    """
    if rung.backend != "cuda":
        raise ValueError(
            f"rung: {ladder.name}.{rung.name} is {rung.backend}; "
            "dissect supports only CUDA C++ rungs"
        )
    missing = emulator.missing("dissected")
    if missing:
        raise ToolchainError(missing)
    case = case or usual_case(ladder, rung)
    config = config or rung.configs[0]
    inputs = ladder.operator.inputs(case, "cpu")
    args = ladder.operator.with_defaults(inputs)
    args = map_tensors(args, lambda t: apart(t, "cpu"))
    why_not = _unable(ladder, rung, args)
    if why_not:
        raise ValueError(f"{ladder.name}.{rung.name} on {case.id}: {why_not}")
    look = emulated.Dissection()
    with look.mode():
        run = launcher(ladder, args, rung.name, config)
    launches = look.call(run, args)
    cost = ladder.operator.cost(**specs_of(args)).bytes
    return Dissection(
        ladder.name,
        rung.name,
        source_hash(ladder, rung),
        config,
        case.id,
        cost,
        tuple(launches),
    )


def usual_case(ladder: Ladder, rung: Rung) -> Case:
    """The largest case that the checks run and the rung supports."""
    fitting = [c for c in watched_cases(ladder) if _unable(ladder, rung, _args(ladder, c)) is None]
    if not fitting:
        raise ValueError(f"rung: {ladder.name}.{rung.name} supports no case that is small enough")
    return max(fitting, key=lambda c: c.numel)


def takes(ladder: Ladder, rung: Rung, case: Case) -> bool:
    """Whether a rung can be dissected on a case."""
    return rung.backend == "cuda" and not _unable(ladder, rung, _args(ladder, case))


def _args(ladder: Ladder, case: Case) -> dict[str, Any]:
    inputs = ladder.operator.inputs(case, "cpu")
    return ladder.operator.with_defaults(inputs)


def _unable(ladder: Ladder, rung: Rung, args: dict[str, Any]) -> str | None:
    specs, _ = ladder.operator.normalise(specs_of(args))
    reason = unsupported(rung, specs, device_of(args))
    return reason or cpu_executor.unable(plan_of(ladder, rung, specs))


def lines(dissected: Dissection) -> list[Line]:
    """Accesses by place and kind, in the order of the source."""
    groups: dict[tuple[Any, ...], list[Access]] = {}
    for launch in dissected.launches:
        for a in launch.accesses:
            space = a.memory == "shared"
            groups.setdefault((a.place, a.kind, space, a.width), []).append(a)
    rows = [
        Line(
            same[0].place,
            same[0].kind,
            tuple(dict.fromkeys(a.memory for a in same)),
            same[0].width,
            *(
                sum(getattr(a, n) for a in same)
                for n in ("requests", "lanes", "sectors", "passes", "least_passes")
            ),
        )
        for same in groups.values()
    ]
    return sorted(rows, key=lambda x: (x.place.line, x.place.inside[::-1]))


def branches(dissected: Dissection) -> list[Branch]:
    """Divergent branches by place, in the order of the source."""
    groups: dict[Place, list[Branch]] = {}
    for launch in dissected.launches:
        for b in launch.branches:
            groups.setdefault(b.place, []).append(b)
    rows = [
        Branch(
            place, *(sum(getattr(b, n) for b in same) for n in ("executions", "lanes", "parted"))
        )
        for place, same in groups.items()
    ]
    kept = [b for b in rows if b.parted]
    return sorted(kept, key=lambda b: (b.place.line, b.place.inside[::-1]))


@dataclass(frozen=True)
class Note:
    """Annotations of a source line: texts for the margin, `bad` for the names of the expensive
    ones, and one line for each access and branch."""

    sectors: str
    conflicts: str
    active: str
    parted: str
    bad: frozenset[str]
    detail: str


def notes(path: Path) -> tuple[dict[int, Note], tuple[str, ...]]:
    """({line: its annotations}, the dissected calls), for the recorded calls of rungs whose current
    source is this file; if there are several cases, for the first."""
    seen: dict[tuple[str, str], Dissection] = {}
    for ladder in ladders():
        for d in load():
            rung = ladder.rung(d.rung) if d.operator == ladder.name else None
            if rung is None or ladder.folder / rung.sources[0] != path:
                continue
            if d.case == RECORDED[d.operator][0] and d.hash == source_hash(ladder, rung):
                seen[d.operator, d.rung] = d
    by_line: dict[int, tuple[list[Line], list[Branch]]] = {}
    for d in seen.values():
        for x in lines(d):
            by_line.setdefault(x.place.line, ([], []))[0].append(x)
        for b in branches(d):
            by_line.setdefault(b.place.line, ([], []))[1].append(b)
    calls = tuple(f"{d.operator} on {d.case}" for d in seen.values())
    return {line: _note(*counts) for line, counts in by_line.items()}, calls


LOW = 0.5  # a lower fraction of active lanes or used bytes is marked


def _note(accesses: list[Line], parting: list[Branch]) -> Note:
    moved = sum(x.sectors for x in accesses)
    touching = [x for x in accesses if x.efficiency is not None]
    efficiency = sum(x.lanes * x.width for x in touching) / (moved * SECTOR) if moved else 1.0
    conflicts = sum(x.conflicts for x in accesses)
    active = min((x.active for x in accesses), default=32.0)
    idle = any(x.idle for x in accesses)
    share = max((b.parted / b.executions for b in parting), default=0.0)
    each = moved / sum(x.requests for x in touching) if touching else 0.0
    bad = {
        "sectors": efficiency < LOW,
        "conflicts": conflicts > 0,
        "active": idle,
        "parted": share > LOW,
    }
    inside = [f" in {x.place.inside[0]}" if x.place.inside else "" for x in accesses]
    detail = [
        f"{x.kind} {'/'.join(x.memory)}, {x.width} B{where}: {x.requests:,} requests of "
        f"{x.active:.1f} lanes, "
        + (
            f"{x.sectors / x.requests:.2f} sectors each, {x.efficiency:.0%} of it requested"
            if x.efficiency is not None
            else f"{x.passes / x.requests:.2f} passes each, {x.conflicts:,} for bank conflicts"
        )
        for x, where in zip(accesses, inside, strict=True)
    ]
    detail += [f"branch: divergent {b.parted:,} of {b.executions:,} times" for b in parting]
    return Note(
        f"{each:.0f}  {efficiency:.0%}" if touching else "",
        f"{conflicts:,}" if any(x.passes for x in accesses) else "",
        f"{active:.0f}" if accesses else "",
        f"{share:.0%}" if parting else "",
        frozenset(name for name, is_bad in bad.items() if is_bad),
        "\n".join(detail),
    )


def words(launch: Dissected) -> dict[str, int]:
    """A launch's values of `counters.METRICS`, as far as the emulator can determine them.

    For an asynchronous copy from global to shared memory, only sectors are counted.
    `global_atomic_sectors` includes reductions: only the compiler knows which atomics' return
    values are unused.
    """
    out = dict.fromkeys(WORDS, 0)
    for a in launch.accesses:
        if a.kind == "async load":
            out["global_async_sectors"] += a.sectors
        elif a.kind == "atomic" and a.memory != "shared":
            out["global_atomic_sectors"] += a.sectors
        elif a.kind in ("load", "store"):
            if a.memory == "shared":
                out[f"shared_{a.kind}_bytes"] += a.distinct_bytes
                out[f"shared_{a.kind}_instructions"] += a.requests
                out[f"shared_{a.kind}_wavefronts"] += a.passes
                out[f"shared_{a.kind}_conflicts"] += a.conflicts
            else:
                out[f"global_{a.kind}_bytes"] += a.bytes
                out[f"global_{a.kind}_sectors"] += a.sectors
    return out


WORDS = (
    "global_load_bytes",
    "global_load_sectors",
    "global_store_bytes",
    "global_store_sectors",
    "global_atomic_sectors",
    "global_async_sectors",
    *(
        f"shared_{kind}_{what}"
        for kind in ("load", "store")
        for what in ("bytes", "instructions", "wavefronts", "conflicts")
    ),
)


def save(dissections: Iterable[Dissection], root: Path | None = None) -> Path:
    """Merge dissections into the record; returns the file's path."""
    path = _file(root or records.home())
    kept = {_key(d): d for d in (*_of_file(path), *dissections)}
    rows = ",\n".join(json.dumps(as_json(kept[k]), separators=(",", ":")) for k in sorted(kept))
    data.write(path, f"[\n{rows}\n]\n")
    load.cache_clear()
    return path


@cache
def load(root: Path | None = None) -> tuple[Dissection, ...]:
    """The dissections recorded under `root`; by default under each of `records.roots()`."""
    roots = (root,) if root else records.roots()
    return tuple({_key(d): d for r in roots for d in _of_file(_file(r))}.values())


def _file(root: Path) -> Path:
    return root / MACHINE / "dissect.json"


def _of_file(path: Path) -> Iterator[Dissection]:
    return map(_loaded, data.document(path, []))


def as_json(dissected: Dissection) -> dict[str, Any]:
    return asdict(dissected)


def _key(d: Dissection) -> tuple[str, str, str]:
    return d.operator, d.rung, d.case


def _loaded(d: dict[str, Any]) -> Dissection:
    def placed(kind: Any, x: dict[str, Any]) -> Any:
        place = x.pop("place")
        place["inside"] = tuple(place["inside"])
        return kind(Place(**place), **x)

    launches = tuple(
        Dissected(
            x["kernel"],
            tuple(x["grid"]),
            tuple(x["block"]),
            tuple(placed(Access, a) for a in x["accesses"]),
            tuple(placed(Branch, b) for b in x["branches"]),
            tuple(Memory(**m) for m in x["memory"]),
            x["steps"],
            x["lanes"],
        )
        for x in d.pop("launches")
    )
    return Dissection(**d, launches=launches)
