"""Rules of torch.func.vmap for operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from kernelwright.contract import Operator

from .generated import spec_of

#: `rule(call, batch size, dimensions, arguments)` returns the results and their dimensions.
Rule = Callable[..., tuple[Any, Any]]


def rule_of(op: Operator, overload: Any, how: str | Rule) -> Callable:
    """The rule to register for an operator; `how` is the argument `vmap` of `bind`."""
    rule = {"leading": leading, "loop": loop}[how] if isinstance(how, str) else how

    def batched(info: Any, in_dims: tuple, *args: Any, rung: str | None = None) -> tuple[Any, Any]:
        def call(*given: Any) -> Any:
            return overload(*given, rung=rung)

        if info.batch_size == 0:
            return _empty(op, in_dims, args)
        return rule(call, info.batch_size, in_dims, args)

    return batched


def leading(call: Callable, batch: int, in_dims: tuple, args: tuple) -> tuple[Any, Any]:
    """A rule for operators that can treat a leading batch dimension of every tensor as further
    rows. Samples without dimensions are rows of one element; beside others they are computed one by
    one, because they have no dimension in common."""
    moved = [
        a
        if not isinstance(a, torch.Tensor)
        else (a.expand(batch, *a.shape) if d is None else a.movedim(d, 0))
        for a, d in zip(args, in_dims, strict=True)
    ]
    scalars = [t.ndim == 1 for t in moved if isinstance(t, torch.Tensor)]
    if not any(scalars):
        out = call(*moved)
        return out, pytree.tree_map(lambda _: 0, out)
    if not all(scalars):
        return loop(call, batch, in_dims, args)
    out = call(*(t.unsqueeze(1) if isinstance(t, torch.Tensor) else t for t in moved))
    samples = pytree.tree_map(lambda t: t.reshape(batch, *t.shape[2:]), out)
    return samples, pytree.tree_map(lambda _: 0, out)


def loop(call: Callable, batch: int, in_dims: tuple, args: tuple) -> tuple[Any, Any]:
    """A rule that computes samples one by one."""
    samples = [
        call(*(a if d is None else _sample(a, d, i) for a, d in zip(args, in_dims, strict=True)))
        for i in range(batch)
    ]
    if isinstance(samples[0], tuple):
        return tuple(torch.stack(s) for s in zip(*samples, strict=True)), (0,) * len(samples[0])
    return torch.stack(samples), 0


def _sample(a: Any, d: Any, i: int) -> Any:
    if isinstance(a, list):
        return [t if at is None else t.select(at, i) for t, at in zip(a, d, strict=True)]
    return a.select(d, i)


def _empty(op: Operator, in_dims: tuple, args: tuple) -> tuple[Any, Any]:
    """The results of no samples."""
    given = [a if d is None else _sample_of_none(a, d) for a, d in zip(args, in_dims, strict=True)]
    named = {a.name: a.default for a in op.args}
    named.update(zip(named, map(spec_of, given), strict=False))
    like = next(t for t in pytree.tree_leaves(args) if isinstance(t, torch.Tensor))
    out = tuple(
        like.new_empty((0, *spec.shape), dtype=spec.dtype)
        for spec in op.outputs(**op.normalise(named)[0])
    )
    return (out[0], 0) if len(out) == 1 else (out, (0,) * len(out))


def _sample_of_none(a: Any, d: Any) -> Any:
    """A tensor of a sample's shape, from a batch without samples."""
    if isinstance(a, list):
        return [t if at is None else _sample_of_none(t, at) for t, at in zip(a, d, strict=True)]
    shape = list(a.shape)
    del shape[d]
    return a.new_empty(shape, device="meta")
