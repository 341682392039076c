"""Which arguments a call must copy before its rungs can take them.

The launch and the fake tensor use the same rule, so that they agree on every stride.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .signature import TensorSpec, contiguous_strides, is_dense, rows_view

#: Bytes of red zone before and after each tensor when accesses are checked.
REDZONE = 64 * 1024


def normalise(
    layout: str, specs: dict[str, Any], contiguous: tuple[str, ...] = ()
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """(the specs that rungs see, the names of the arguments to copy to contiguous).

    Args:
        contiguous: the arguments whose strides rungs do not read, whatever the layout.
    """
    tensors = {k: v for k, v in specs.items() if isinstance(v, TensorSpec)}
    takes = _takes(layout, tensors)
    copies = tuple(
        k for k, t in tensors.items() if (k in contiguous or not takes(t)) and not t.is_contiguous()
    )
    return {**specs, **{k: _contiguous(tensors[k]) for k in copies}}, copies


def _takes(layout: str, tensors: dict[str, TensorSpec]) -> Callable[[TensorSpec], bool]:
    """Whether the rungs of an operator with this layout can take a tensor of these strides."""
    if layout == "any":
        return lambda t: True
    if layout == "rows":
        return lambda t: rows_view(t.shape, t.strides) is not None
    first = next(iter(tensors.values()))
    flat = is_dense(first.shape, first.strides) and all(
        t.strides == first.strides or (t.shape != first.shape and t.is_contiguous())
        for t in tensors.values()
    )
    return lambda t: flat


def _contiguous(t: TensorSpec) -> TensorSpec:
    return replace(t, strides=contiguous_strides(t.shape), align=16)
