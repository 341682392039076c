"""Lists operators and their rungs, what works on this machine, and which rung is dispatched."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import H200, Case, Config, Gpu, Ladder, Rung
from kernelwright.dispatch import data, fitted, ladder, ladders, proven_on, unsupported_on
from kernelwright.dispatch.selection import config_of, tuned_table
from kernelwright.machine import gpu_of, here
from kernelwright.machine.recorded import H100
from kernelwright.support import cache
from kernelwright.support.errors import NoSpace, ToolchainError, UserError
from kernelwright.support.settings import DATA, PACKAGE, settings
from kernelwright.toolchain import availability
from kernelwright.workbench.inspection import specs_of

Facts = dict[str, dict[str, list[str]]]
OPERATORS = "kernelwright.ops."
TEACHING = DATA / "teaching.json"

#: How a backend's rungs are run if they cannot run natively.
WITHOUT_A_GPU = {
    "torch": "runs",
    "inductor": "runs",
    "triton": "interpreted",
    "numba": "simulated",
    "cuda": "emulated",
}


class UnknownCase(UserError, ValueError):
    """None of the chosen operators has the given case."""


@dataclass(frozen=True)
class RungEntry:
    """A rung of an operator.

    Attributes:
        here: how it runs on this machine.
        serves: the bench cases for which it is dispatched.
        teaching: whether it is there to be read and compared with: see `teaching`.
    """

    name: str
    backend: str
    idea: str
    here: str
    proven: tuple[str, ...]
    deterministic: bool
    serves: tuple[str, ...]
    teaching: bool


@dataclass(frozen=True)
class OperatorEntry:
    name: str
    schema: str
    source: str
    rungs: tuple[RungEntry, ...]
    cases: tuple[str, ...]  # ids of the bench cases


@dataclass(frozen=True)
class Listing:
    """`gpu`: the GPU for which `serves` was determined; `here` is False if this machine has no GPU,
    so that its tensors are dispatched to `native`."""

    gpu: str
    here: bool
    operators: tuple[OperatorEntry, ...]


def listing(names: Iterable[str] = ()) -> Listing:
    """The listing of some operators, or of all."""
    device = here()
    chosen = named(names) if names else ladders()
    gpu = gpu_of(device)
    kept = _kept(gpu or H200)
    entries = tuple(_operator(x, kept.get(x.name) or _facts(x, gpu or H200), device)
                    for x in chosen)  # fmt: skip
    return Listing((gpu or H200).name, gpu is not None, entries)


def named(names: Iterable[str]) -> list[Ladder]:
    """The ladders of operators: "softmax" is the forward and the backward.

    Raises:
        UnknownOperator: an unknown name; the message lists the known ones.
    """
    by_name: dict[str, Ladder] = {}
    for name in names:
        family = [x for x in ladders() if x.name in (name, f"{name}.backward")]
        by_name.update((x.name, x) for x in family or [ladder(name)])
    return list(by_name.values())


def rung_named(name: str) -> tuple[Ladder, Rung]:
    """The rung for "softmax.backward.triton_row"; for "softmax", the rung that an H200 dispatches
    on the operator's first bench case.

    Raises:
        UnknownOperator, UnknownRung: an unknown name; the message lists the known ones.
    """
    alone = next((x for x in ladders() if x.name == name), None)
    if alone:
        case = next(c for c in alone.operator.cases if c.use == "bench")
        return alone, served(alone, H200, specs_of(alone, case))[0]
    operator, _, rung = name.rpartition(".")
    chosen = ladder(operator or name)
    return chosen, chosen.rung(rung)


def case_named(chosen: Ladder, case_id: str) -> Case:
    """The case of an operator by its id.

    Raises:
        UnknownCase: there is no such case; the message lists bench cases.
    """
    case = next((c for c in chosen.operator.cases if c.id == case_id), None)
    if case is None:
        some = ", ".join(c.id for c in chosen.operator.cases if c.use == "bench")
        raise UnknownCase(f"case {case_id!r}: {chosen.name} has no such case; it has {some}")
    return case


def _operator(lad: Ladder, facts: Facts, device: torch.device) -> OperatorEntry:
    op, shown = lad.operator, shown_as_teaching(lad)
    rungs = tuple(
        RungEntry(
            rung.name,
            rung.backend,
            rung.idea,
            _here(rung, device),
            tuple(facts["proven"].get(rung.name, ())),
            rung.deterministic,
            tuple(facts["serves"].get(rung.name, ())),
            rung.name in shown,
        )
        for rung in lad.rungs
    )
    cases = tuple(c.id for c in op.cases if c.use == "bench")
    return OperatorEntry(op.name, op.schema, op.source, rungs, cases)


def _facts(lad: Ladder, gpu: Gpu) -> Facts:
    """By rung: the machines on which it is proven, and the bench cases for which it is
    dispatched."""
    serves: dict[str, list[str]] = {}
    for case in lad.operator.cases:
        if case.use == "bench":
            serves.setdefault(serving(lad, gpu, specs_of(lad, case)), []).append(case.id)
    proven = {r.name: list(proven_on(lad, r)) for r in lad.rungs if r.is_gpu}
    return {"proven": proven, "serves": serves}


def _kept(gpu: Gpu) -> dict[str, Facts]:
    """The facts of every operator. They depend on the package's files and on the user's own proofs
    and tables, and are cached under a hash of those, because computing them takes longer than
    everything else in `list`."""
    files = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".cu", ".cuh", ".json"))
    named = [(str(p.relative_to(PACKAGE)), p) for p in files]
    if own := settings().records:
        named += [(p.name, p) for p in sorted([*own.glob("*.json"), *own.glob("tuned/*.json")])]
    texts = (part for name, p in named for part in (name, p.read_bytes()))
    entry = cache.key((repr(gpu), torch.__version__, *texts))

    def build(_: Path) -> cache.Files:
        facts = {x.name: _facts(x, gpu) for x in ladders() if x.package.startswith(OPERATORS)}
        return {"facts.json": json.dumps(facts).encode()}

    try:
        folder = cache.get_or_build("list", entry, "reading the records", build)
    except (ToolchainError, NoSpace):  # no cache: commands that need it report the reason
        return {}
    return json.loads((folder / "facts.json").read_text())


def _here(rung: Rung, device: torch.device) -> str:
    missing = availability.missing(rung.backend, device.type)
    if device.type == "cpu" and missing is None:
        return WITHOUT_A_GPU[rung.backend]
    return missing or "runs"


def serving(ladder: Ladder, gpu: Gpu, call: dict[str, Any]) -> str:
    """The rung dispatched by default on a GPU, which need not be this machine's."""
    return served(ladder, gpu, call)[0].name


def served(ladder: Ladder, gpu: Gpu, call: dict[str, Any]) -> tuple[Rung, Config]:
    """The rung dispatched by default on a GPU, and its config."""
    for rung, config in _candidates(ladder, gpu, call):
        if not rung.is_gpu or proven_on(ladder, rung):
            return rung, config or config_of(ladder, rung, gpu, call)
    native = ladder.rung("native")
    return native, config_of(ladder, native, gpu, call)


def _candidates(
    ladder: Ladder, gpu: Gpu, call: dict[str, Any]
) -> Iterator[tuple[Rung, Config | None]]:
    """What dispatch tries for a call, best first, proven or not; a config where one is measured."""
    tuned = tuned_table(ladder, gpu).get(ladder.bucket(**call))
    leaf = fitted.choice(ladder, gpu, call)
    pairs: list[tuple[Rung, Config | None]] = [(ladder.rung(tuned["rung"]), None)] if tuned else []
    pairs += [leaf] if leaf else []
    pairs += [(ladder.rung(name), None) for name in ladder.order(gpu, **call)]
    return (x for x in pairs if x[0].dispatchable and unsupported_on(x[0], call, gpu) is None)


# ---- teaching rungs


def teaching(ladder: Ladder, gpus: Iterable[Gpu] = (H200, H100)) -> tuple[str, ...]:
    """The GPU rungs that are the first choice of no case of the operator, of any use, on any of the
    GPUs, proven or not. They are steps towards the others, or alternatives that were slower."""
    calls = [specs_of(ladder, case) for case in ladder.operator.cases if case.numel]
    first = {
        rung.name
        for gpu in gpus
        for call in calls
        for rung, _ in islice(_candidates(ladder, gpu, call), 1)
    }
    return tuple(r.name for r in ladder.rungs if r.is_gpu and r.name not in first)


def shown_as_teaching(ladder: Ladder) -> tuple[str, ...]:
    """`teaching`, of the package's operators as `make tables` has determined it. Of other operators
    the rungs that are never dispatched."""
    if ladder.package.startswith(OPERATORS):
        return tuple(data.document(TEACHING, {}).get(ladder.name, ()))
    return tuple(r.name for r in ladder.rungs if r.is_gpu and not r.dispatchable)
