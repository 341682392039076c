"""The workload of a bench: its cases, sets of arguments, and peers."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any

import torch

from kernelwright.contract import Case, Ladder, Operator, Peer
from kernelwright.dispatch import specs_of
from kernelwright.machine import clock, gpu_facts, gpu_of
from kernelwright.machine.facts import cpu_facts, index_of
from kernelwright.workbench.listing import UnknownCase
from kernelwright.workbench.verify.candidate import Expected, copy_of, map_tensors, tensors

MOST_SETS = 8192  # maximum number of sets of a case's arguments on a GPU
CPU_BYTES = 850 << 20  # bytes that a case may move on a CPU, unless it is requested by name


def chosen(
    ladders: list[Ladder], cases: list[str] | None, device: torch.device, *, quick: bool = False
) -> list[tuple[Ladder, Case]]:
    """The ladders and cases to time: on a GPU all bench cases, on a CPU `cpu_cases`. `cases` are
    ids of any cases, or parts of labels ("gpt2") of these. `quick`: each shape in one dtype."""
    pairs: list[tuple[Ladder, Case]] = []
    matched = set()
    for ladder in ladders:
        every = [c for c in ladder.operator.cases if c.use == "bench"]
        if device.type != "cuda":
            usual = cpu_cases(ladder, quick=quick)
        else:
            usual = _in_one_dtype(every) if quick else every
        for c in dict.fromkeys((*usual, *ladder.operator.cases)):
            names = [
                n for n in cases or () if n == c.id or (c in usual and _plain(n) in _plain(c.label))
            ]
            matched.update(names)
            if names or (cases is None and c in usual):
                pairs.append((ladder, c))
    for name in cases or ():
        if name not in matched:
            some = ", ".join(c.id for c in ladders[0].operator.cases if c.use == "bench")
            raise UnknownCase(
                f"case {name!r}: no chosen operator has it; {ladders[0].name} has {some}"
            )
    return pairs


def _plain(text: str) -> str:
    return "".join(ch for ch in text.lower() if ch.isalnum())


def _in_one_dtype(cases: list[Case]) -> list[Case]:
    """Each shape in bfloat16 or, if there is no such case, in the dtype of its first case."""
    kept: dict[tuple, Case] = {}
    for c in cases:
        key = (c.shape, c.params, c.layout, c.values, c.label)
        if key not in kept or (c.dtype == torch.bfloat16 != kept[key].dtype):
            kept[key] = c
    return list(kept.values())


def cpu_cases(ladder: Ladder, *, quick: bool = False) -> list[Case]:
    """Bench cases that two cores can time in seconds: in float32 and bfloat16, the smallest shape
    of each named model, up to CPU_BYTES; if a ladder names no model, its largest case that fits.
    `quick`: each model only in the dtype of its published weights."""
    fits: dict[tuple, Case] = {}
    for c in sorted(ladder.operator.cases, key=lambda c: c.numel):
        small = 3 * c.numel * c.dtype.itemsize <= CPU_BYTES
        if c.use == "bench" and c.dtype in (torch.float32, torch.bfloat16) and small:
            fits[c.label, c.dtype] = c
    models = [
        next((c for c in fits.values() if model in c.label and c.dtype == dtype), None)
        for model, published in (("GPT-2", torch.float32), ("Llama 3", torch.bfloat16))
        for dtype in (torch.float32, torch.bfloat16)
        if dtype == published or not quick
    ]
    return [c for c in models if c] or list(fits.values())[-1:]


def unfit(case: Case, device: torch.device, operator: Operator | None = None) -> str | None:
    """Why a case's size prevents timing, or None. Arguments, results and float64 intermediates,
    together with two sets of arguments, take up to 64 bytes per element. On a GPU each set has its
    own values, and a very small case would need too many sets to exceed the last-level cache.
    `operator`: given if its arguments do not have the case's size (a sparse matrix, a cache)."""
    gpu = gpu_of(device)
    memory = gpu_facts(index_of(device)).memory if gpu else cpu_facts().memory
    nbytes = given = case.numel * case.dtype.itemsize
    if operator is not None:
        args = operator.with_defaults(operator.inputs(case, "meta"))
        given, nbytes = sum(t.nbytes for t in tensors(args)), set_bytes(operator, args)
    needed = 64 * given // case.dtype.itemsize
    if needed > memory:
        return f"needs about {needed >> 30} GiB, this machine has {memory >> 30} GiB"
    if gpu and clock.rotations(nbytes, device) > MOST_SETS:
        return f"has {nbytes} bytes: even {MOST_SETS} sets would not exceed the cache"
    return None


def set_bytes(operator: Operator, args: dict[str, Any]) -> int:
    """Bytes of one call's arguments and results."""
    specs, _ = operator.normalise(specs_of(args))
    results = sum(s.nbytes for s in operator.outputs(**specs))
    return results + sum(t.nbytes for t in tensors(args))


def sets_of(
    operator: Operator, case: Case, device: torch.device, want: Expected
) -> list[dict[str, Any]]:
    """Rotated sets of a case's arguments; on a GPU each has its own random values."""
    count = clock.rotations(set_bytes(operator, want.args), device)
    if device.type != "cuda":  # filling more sets takes longer than timing
        return [map_tensors(want.args, copy_of) for _ in range(count)]
    sets = []
    for seed in range(1, count + 1):
        inputs = operator.inputs(replace(case, seed=seed), device.type)
        sets.append(operator.with_defaults(inputs))
    return sets


def peers_of(ladder: Ladder) -> tuple[Peer, ...]:
    """Other libraries' functions for this operator."""
    if ladder.peers is None:
        return ()
    module, name = ladder.peers.split(":")
    known = getattr(importlib.import_module(f"{ladder.package}.{module}"), name)
    return tuple(p for p in known if p.operator == ladder.name)
