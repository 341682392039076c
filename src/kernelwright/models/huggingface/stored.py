"""What a checkpoint of Hugging Face consists of: config.json, and named tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernelwright.support.errors import UsageError

Document = dict[str, Any]  # config.json


@dataclass(frozen=True)
class Weight:
    """A parameter of our model, and the tensors of a checkpoint that it consists of.

    Attributes:
        theirs: the names of the tensors, stacked along the first dimension.
        rows: the number of rows of each, if they are several.
        transposed: whether the tensors are (in, out).
    """

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False
    rows: tuple[int, ...] = ()


def same(d: Document, fixed: Document) -> None:
    """Raise UsageError if a setting is not the only one that our models support.

    Args:
        fixed: settings, and the value that each must have if it is given.
    """
    for name, only in fixed.items():
        if d.get(name, only) != only:
            raise UsageError(f"config.json: {name} must be {only!r}, is {d[name]!r}")
