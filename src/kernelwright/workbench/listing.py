"""What there is: operators, their rungs in order, what works here and which rung serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

import kernelwright.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright import toolchain
from kernelwright.contract import H200, Case, Gpu, Ladder, Rung
from kernelwright.dispatch import ladder, ladders, proven_on
from kernelwright.dispatch.selection import _tuned
from kernelwright.machine import gpu_of, here

from .inspect import specs_of
from .material import UnknownCase

#: What a backend does where it cannot run natively.
WITHOUT_A_GPU = {
    "torch": "runs",
    "inductor": "runs",
    "triton": "interpreted",
    "numba": "simulated",
    "cuda": "emulated",
}


@dataclass(frozen=True)
class RungEntry:
    """`here`: what this machine does with it. `serves`: cases of the bench list it serves."""

    name: str
    backend: str
    idea: str
    here: str
    proven: tuple[str, ...]
    deterministic: bool
    serves: tuple[str, ...]


@dataclass(frozen=True)
class OperatorEntry:
    name: str
    schema: str
    source: str
    rungs: tuple[RungEntry, ...]
    cases: tuple[str, ...]  # of the bench list


@dataclass(frozen=True)
class Listing:
    """`gpu`: the GPU for which `serves` was decided; `here` is False where that is not this
    machine's, whose tensors `native` serves."""

    gpu: str
    here: bool
    operators: tuple[OperatorEntry, ...]


def listing() -> Listing:
    device = here()
    gpu = gpu_of(device)
    entries = tuple(_operator(ladder, gpu or H200, device) for ladder in ladders())
    return Listing((gpu or H200).name, gpu is not None, entries)


def named(names: Iterable[str]) -> list[Ladder]:
    """The ladders of operators: "softmax" is the forward and the backward.

    Raises:
        UnknownOperator: naming what there is.
    """
    found: dict[str, Ladder] = {}
    for name in names:
        family = [x for x in ladders() if x.name in (name, f"{name}.backward")]
        found.update((x.name, x) for x in family or [ladder(name)])
    return list(found.values())


def rung_named(name: str) -> tuple[Ladder, Rung]:
    """The rung of "softmax.backward.triton_row".

    Raises:
        UnknownOperator, UnknownRung: naming what there is.
    """
    operator, _, rung = name.rpartition(".")
    chosen = ladder(operator or name)
    return chosen, chosen.rung(rung)


def case_named(chosen: Ladder, case_id: str) -> Case:
    """The case of an operator by its id.

    Raises:
        UnknownCase: naming the cases to bench.
    """
    found = next((c for c in chosen.operator.cases if c.id == case_id), None)
    if found is None:
        some = ", ".join(c.id for c in chosen.operator.cases if c.use == "bench")
        raise UnknownCase(f"case {case_id!r}: {chosen.name} has none of that id; it has {some}")
    return found


def _operator(lad: Ladder, gpu: Gpu, device: torch.device) -> OperatorEntry:
    op = lad.operator
    cases = [c for c in op.cases if c.use == "bench"]
    serves: dict[str, list[str]] = {}
    for case in cases:
        serves.setdefault(serving(lad, gpu, specs_of(lad, case)), []).append(case.id)
    rungs = tuple(
        RungEntry(
            rung.name,
            rung.backend,
            rung.idea,
            _here(rung, device),
            proven_on(lad, rung) if rung.is_gpu else (),
            rung.deterministic,
            tuple(serves.get(rung.name, ())),
        )
        for rung in lad.rungs
    )
    return OperatorEntry(op.name, op.schema, op.source, rungs, tuple(c.id for c in cases))


def _here(rung: Rung, device: torch.device) -> str:
    missing = toolchain.missing(rung.backend, device)
    if device.type == "cpu" and missing is None:
        return WITHOUT_A_GPU[rung.backend]
    return missing or "runs"


def serving(ladder: Ladder, gpu: Gpu, call: dict[str, Any]) -> str:
    """The rung that serves a call by default on a GPU, which need not be this machine's."""

    def fits(name: str) -> bool:
        rung = ladder.rung(name)
        supports: Callable[..., str | None] = rung.supports or (lambda gpu, **specs: None)
        proven = not rung.is_gpu or bool(proven_on(ladder, rung))
        return rung.serves and proven and supports(gpu, **call) is None

    tuned = _tuned(ladder, gpu).get(ladder.bucket(**call))
    names = ((tuned["rung"],) if tuned else ()) + tuple(ladder.order(gpu, **call))
    return next((n for n in names if fits(n)), "native")
