"""Names that have changed: with this table the record tools read records of earlier commits.

A name is that of an operator, a rung, a source file, a kernel or a module. Each current name maps
to its previous one.
"""

from __future__ import annotations

#: Modules of the package, by their present names.
MODULES = {
    "workbench.inspection": "workbench.binary_info.inspection",
    "workbench.records.records": "workbench.records",
}

#: Names of modules in the code that uses them.
IN_CODE = {
    "_options": "options",
    "_terms": "terms",
    "heuristics": "choose",
    "tiling": "shape",
}

#: Operators and rungs ("softmax", "softmax.cuda_warp"), source files and kernels.
NAMES: dict[str, str] = {
    "column_sum.cuh": "descent.cuh",
    "flagged_value.cuh": "flagged.cuh",
    "last_block.cuh": "arrive.cuh",
}


def present(old: str) -> str:
    """The present name of what an earlier commit calls `old`."""
    return {was: name for name, was in NAMES.items()}.get(old, old)
