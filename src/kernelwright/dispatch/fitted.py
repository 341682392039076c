"""Fitted choices: trees over rows and columns, made of sweeps by tools/selection.py.

`data/fitted/OP.sm_90.json` has an operator's tree for GPUs of that compute capability alone: boxes
of (rows, columns), each with a rung and config. It holds for calls of whole 16-byte vectors in one
dtype, and for the kernels that were timed: a leaf whose rung has changed since is not used.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from kernelwright.contract import Config, Gpu, Ladder, Rung, TensorSpec
from kernelwright.contract.eligibility import kind
from kernelwright.support.settings import DATA

from . import data
from .proof import source_hash

__all__ = ["FOLDER", "choice", "kind", "leaf"]

FOLDER = DATA / "fitted"


def choice(ladder: Ladder, gpu: Gpu, specs: dict[str, Any]) -> tuple[Rung, Config] | None:
    """The rung and config of the call's leaf, or None."""
    table = _table(ladder, gpu)
    if table is None:
        return None
    tensors = [t for t in specs.values() if isinstance(t, TensorSpec)]
    first = tensors[0]
    dtype, leaves = table
    if any(kind(t.dtype) != dtype or t.align < 16 or not t.is_contiguous() for t in tensors):
        return None
    columns = first.shape[-1] if first.shape else 1
    if columns * first.itemsize % 16:
        return None
    found = leaf(leaves, first.numel() // max(columns, 1), columns)
    return None if found is None else (ladder.rung(found["rung"]), found["config"])


def leaf(leaves: list[dict[str, Any]], rows: int, columns: int) -> dict[str, Any] | None:
    """The leaf with these rows and columns, or None."""
    for found in leaves:
        (r0, r1), (c0, c1) = found["rows"], found["columns"]
        if c0 <= columns <= c1 and r0 <= rows <= r1:
            return found
    return None


@cache
def _table(ladder: Ladder, gpu: Gpu) -> tuple[str, list[dict[str, Any]]] | None:
    """(dtype, the leaves whose rungs are what was timed) of this GPU's compute capability."""
    major, minor = gpu.capability
    found = data.document(FOLDER / f"{ladder.name}.sm_{major}{minor}.json", {})
    if not found:
        return None
    current = {n for n, h in found["sources"].items() if source_hash(ladder, ladder.rung(n)) == h}
    return found["dtype"], [x for x in found["leaves"] if x["rung"] in current]
