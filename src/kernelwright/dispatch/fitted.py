"""Fitted choices: trees over rows and columns, fitted to sweeps by tools/selection.py.

`data/fitted/OP.bfloat16.sm_90.json` has an operator's tree for one dtype and for GPUs of exactly
that compute capability: boxes of (rows, columns), each with a rung and config. It applies to calls
of whole 16-byte vectors, and to the kernels that were timed: a leaf whose rung has changed since is
not used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from kernelwright.contract import Config, Gpu, Ladder, Rung, TensorSpec
from kernelwright.contract.eligibility import kind
from kernelwright.support.settings import DATA

from . import data
from .proof import source_hash

FOLDER = DATA / "fitted"


def choice(ladder: Ladder, gpu: Gpu, specs: dict[str, Any]) -> tuple[Rung, Config] | None:
    """The rung and config of the call's leaf, or None."""
    tensors = [t for t in specs.values() if isinstance(t, TensorSpec)]
    if not tensors:
        return None
    first = tensors[0]
    leaves = _leaves(ladder, gpu, kind(first.dtype))
    if not leaves:
        return None
    if any(t.dtype != first.dtype or t.align < 16 or not t.is_contiguous() for t in tensors):
        return None
    columns = first.shape[-1] if first.shape else 1
    if columns * first.itemsize % 16:
        return None
    chosen = leaf(leaves, first.numel() // max(columns, 1), columns)
    return None if chosen is None else (ladder.rung(chosen["rung"]), chosen["config"])


def leaf(leaves: list[dict[str, Any]], rows: int, columns: int) -> dict[str, Any] | None:
    """The leaf with these rows and columns, or None."""
    for candidate in leaves:
        (r0, r1), (c0, c1) = candidate["rows"], candidate["columns"]
        if c0 <= columns <= c1 and r0 <= rows <= r1:
            return candidate
    return None


def path(name: str, dtype: str, capability: tuple[int, int]) -> Path:
    return FOLDER / f"{name}.{dtype}.sm_{capability[0]}{capability[1]}.json"


@cache
def _leaves(ladder: Ladder, gpu: Gpu, dtype: str) -> list[dict[str, Any]]:
    """The leaves for this GPU's compute capability whose rungs are unchanged since the timing."""
    table = data.document(path(ladder.name, dtype, gpu.capability), {})
    if not table:
        return []
    current = {n for n, h in table["sources"].items() if source_hash(ladder, ladder.rung(n)) == h}
    return [x for x in table["leaves"] if x["rung"] in current]
