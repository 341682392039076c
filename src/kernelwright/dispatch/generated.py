"""Functions generated from an operator's schema, and the conditions that they share.

They are generated because a loop over the schema's arguments would take longer than the launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernelwright.contract import Operator, TensorSpec
from kernelwright.support import generated_code

_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
INTERCEPTION_CHECKS = {  # PyTorch features that may intercept a call
    "plain": _PLAIN,
    "compiling": torch.compiler.is_compiling,
    "dispatch_modes": torch._C._len_torch_dispatch_stack,
    "functorch": torch._C._are_functorch_transforms_active,
    "grad_enabled": torch.is_grad_enabled,
}


def compiled(source: str, function: str, **names: Any) -> Callable:
    """The function that `source` defines, with `names` as its globals."""
    return generated_code.function(source, function, names, function)


def listed(op: Operator) -> str:
    """Source text that lists an operator's arguments."""
    return ", ".join(a.name for a in op.args)


def kinds_of(op: Operator) -> str:
    """The kinds of an operator's arguments, a letter for each: t tensor, ? tensor or None, v value,
    - a float, which is not in a key."""
    letters = {"Tensor": "t", "Tensor?": "?", "float": "-", "float?": "-"}
    return "".join(letters.get(a.kind, "v") for a in op.args)


def special(op: Operator) -> str:
    """Source of a test for tensor subclasses, which the dispatcher must see."""
    one = [f"type({a.name}) not in plain" for a in op.args if a.kind == "Tensor"]
    maybe = [
        f"({a.name} is not None and type({a.name}) not in plain)"
        for a in op.args
        if a.kind == "Tensor?"
    ]
    many = [f"not plain.issuperset(map(type, {a.name}))" for a in op.args if a.kind == "Tensor[]"]
    return " or ".join((*one, *maybe, *many))


def spec_of(v: Any) -> Any:
    """An argument without its data or address."""
    if isinstance(v, torch.Tensor):
        return TensorSpec(tuple(v.shape), tuple(v.stride()), v.dtype)
    if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor):
        return [spec_of(t) for t in v]
    return v
