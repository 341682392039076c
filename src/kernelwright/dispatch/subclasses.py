"""Calls on jagged tensors (`torch.jagged`) and distributed tensors (DTensor).

The samples of a jagged tensor are stored one after the other in its values, so an operator whose
rows do not depend on each other runs on the values. A DTensor's operator runs on the local part of
each process, by the sharding rule in the operator's spec. Neither torch.nested nor
torch.distributed is imported here: a program that passes such tensors has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from kernelwright.contract import Operator, TensorSpec
from kernelwright.contract.sharding import SUM, Rows, Split


def on_values(op: Operator, call: Callable, args: tuple, rung: str | None) -> Any:
    """Run a call that has jagged arguments as a call on their values.

    Raises:
        NotImplementedError: rows of the operator depend on each other across samples.
        ValueError: jagged arguments differ in their lengths, or another argument does not fit.
    """
    named = dict(zip((a.name for a in op.args), args, strict=True))
    first_name, first = next((k, v) for k, v in named.items() if _is_jagged(v))
    rule = op.sharding
    ragged = first._ragged_idx
    # the same distance from the back in the values, which lack the first dimension
    dims = (-first.ndim, ragged - first.ndim)
    if not isinstance(rule, Rows) or not rule.allows(named, dims):
        raise NotImplementedError(
            f"{first_name}: is jagged, which {op.name} does not support "
            f"here; call it on each tensor of unbind()"
        )
    given = {
        k: v if k in rule.whole else _values(k, v, first, rule.dims.get(k, 0))
        for k, v in named.items()
    }
    results = call(*given.values(), rung)
    if isinstance(results, tuple):
        return tuple(_jagged_like(t, first) for t in results)
    return _jagged_like(results, first)


def on_rows(function: Callable, input: Any, dims: tuple[int, ...]) -> torch.Tensor | None:
    """`function` applied to a jagged tensor's values, as a jagged tensor, if all of `dims`, counted
    from the back, are behind the jagged dimension; else None."""
    if min(dims, default=0) <= input._ragged_idx - input.ndim:
        return None
    return _jagged_like(function(input.values()), input)


def _is_jagged(v: Any) -> bool:
    return isinstance(v, torch.Tensor) and v.is_nested


def _values(name: str, value: Any, first: Any, further: int) -> Any:
    """The argument to pass together with the values of `first`."""
    if not isinstance(value, torch.Tensor):
        return value
    v: Any = value  # jagged tensors have further methods
    if v.is_nested:
        same = v.offsets() is first.offsets() or torch.equal(v.offsets(), first.offsets())
        if not same or v._ragged_idx != first._ragged_idx:
            raise ValueError(
                f"{name}: its samples differ in length from those of the jagged argument before it"
            )
        return v.values()
    behind = first.ndim - first._ragged_idx - 1 + further  # dimensions of a sample behind its rows
    if v.ndim <= behind:
        return v
    if v.ndim == first.ndim and v.shape[0] == v.shape[first._ragged_idx] == 1:
        return v.squeeze(0)
    raise ValueError(f"{name}: shape {tuple(v.shape)} does not fit samples of different lengths")


def _jagged_like(values: torch.Tensor, first: Any) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(
        values, first.offsets(), first.lengths(), jagged_dim=first._ragged_idx
    )


def prepare(op: Operator, overload: Any, args: tuple) -> None:
    """Register the operator's sharding rule with DTensor, if an argument is a DTensor.

    Raises:
        NotImplementedError: the operator has no rule.
    """
    module = sys.modules.get("torch.distributed.tensor")
    if module is None or not any(isinstance(v, module.DTensor) for v in args):
        return
    if op.sharding is None:
        raise NotImplementedError(
            f"{op.name}: has no sharding rule for DTensors; call it on to_local()"
        )
    _register(op, overload)


def prepared(op: Operator, overload: Any) -> Callable[[], bool]:
    """`prepare` for use under torch.compile, where the arguments' types are hidden."""

    def tell() -> bool:
        if "torch.distributed.tensor" in sys.modules and op.sharding is not None:
            _register(op, overload)
        return True

    setattr(tell, "_dynamo_marked_constant", True)  # noqa: B010 (as in autograd.py)
    return tell


@cache
def _register(op: Operator, overload: Any) -> None:
    from torch.distributed.tensor import Partial, Replicate, Shard
    from torch.distributed.tensor._op_schema import RuntimeSchemaInfo
    from torch.distributed.tensor.experimental import register_sharding

    def placement(dim: int | str | None) -> Any:
        if dim is None:
            return Replicate()
        return Partial() if dim == SUM else Shard(dim)

    def strategies(*args: Any, **kwargs: Any) -> list[tuple[list[Any], list[Any]]]:
        named = {a.name: a.default for a in op.args}
        named.update(zip(named, map(_spec_of, args), strict=False))
        results = dict(zip(op.results, op.outputs(**named), strict=True))
        rule = op.sharding
        assert rule is not None
        whole: Split = dict.fromkeys((*named, *results))
        return [
            (
                [placement(split[r]) for r in results],
                [placement(split[n]) if isinstance(named[n], TensorSpec) else None
                 for n in list(named)[: len(args)]],
            )
            for split in (whole, *rule(named, results))
        ]  # fmt: skip

    register_sharding(overload)(strategies)
    # Every argument is part of the key: by default PyTorch reuses its result for calls that differ
    # only in arguments before the first int, such as a bool or a reduction's name.
    known = sys.modules["torch.distributed.tensor"].DTensor._op_dispatcher.sharding_propagator
    known.op_to_schema_info[overload] = RuntimeSchemaInfo(static_argnum=0, needs_pytree=True)


def _spec_of(v: Any) -> Any:
    """The argument of an operator's `outputs` for DTensor's description of an argument."""
    meta = getattr(v, "tensor_meta", None)
    return v if meta is None else TensorSpec(tuple(meta.shape), tuple(meta.stride), meta.dtype)
