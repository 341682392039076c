"""The size of a call of unknown code: the bytes and operations of PyTorch's operators
in it, counted before each of them allocates its results."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only


class TooLarge(Exception):
    """A call would allocate or compute more than its limit."""


class Meter(TorchDispatchMode):
    """Counts what PyTorch's operators produce in a block.

    Args:
        most, operations: the limits of `bytes` and `operations`.

    Attributes:
        bytes: bytes of all results, of which a call may have released some.
        operations: floating-point operations of products, and elements of all other results.

    Raises:
        TooLarge: an operator would exceed a limit; it has not run.
    """

    def __init__(self, most: int, operations: int):
        super().__init__()
        self.limits = most, operations
        self.bytes = self.operations = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        planned = None if _is_view(func) else _planned(func, args, kwargs)
        self._add(func, args, kwargs, planned)
        out = func(*args, **kwargs)
        if planned is None and not _is_view(func):  # its shape depends on values
            self._add(func, args, kwargs, out)
        return out

    def _add(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        results = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
        self.bytes += sum(t.numel() * t.itemsize for t in results)
        self.operations += _operations(func, args, kwargs, out, results)
        if self.bytes > self.limits[0] or self.operations > self.limits[1]:
            raise TooLarge


def _is_view(func: Any) -> bool:
    """Whether an operator's results are views of its arguments, which take no memory."""
    aliases = [r.alias_info for r in func._schema.returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


def _planned(func: Any, args: Any, kwargs: Any) -> Any:
    """The results of an operator without their memory; None if its values are needed."""

    def bare(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    args, kwargs = tree_map_only(torch.Tensor, bare, (args, kwargs))
    if "device" in kwargs:
        kwargs["device"] = torch.device("meta")
    if "generator" in kwargs:
        kwargs["generator"] = None
    try:
        return func(*args, **kwargs)
    except Exception:  # noqa: BLE001  an operator without a meta kernel, or that needs values
        return None


def _operations(func: Any, args: Any, kwargs: Any, out: Any, results: list[Any]) -> int:
    from torch.utils.flop_counter import flop_registry  # imports triton

    count = flop_registry.get(func.overloadpacket)
    if count is not None and results:
        return int(count(*args, **kwargs, out_val=out))
    return sum(t.numel() for t in results)
