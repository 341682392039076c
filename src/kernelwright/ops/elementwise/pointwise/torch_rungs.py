"""Elementwise operators in PyTorch: the formula with one kernel per operator, and PyTorch's own.

Entries are named after rung and operator, for example `manual_silu` or `native_silu_backward`.
"""

import torch
import torch.nn.functional as F

from .spec import TABLE, undo_broadcast

aten = torch.ops.aten
NATIVE = {
    "add": torch.add,
    "mul": torch.mul,
    "relu": torch.relu,
    "squared_relu": lambda x: torch.relu(x).square(),
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
NATIVE_BACKWARD = {
    "mul": lambda gy, x, other: tuple(
        undo_broadcast(gy * b, a.shape, a.dtype) for a, b in ((x, other), (other, x))
    ),
    "relu": lambda gy, y: aten.threshold_backward(gy, y, 0),
    "squared_relu": lambda gy, x: gy * (2 * torch.relu(x)),
    "silu": aten.silu_backward,
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
}


def _manual(f):
    def manual(*args):
        y = f.value(*_wide(args))
        return y.to(torch.promote_types(args[0].dtype, args[-1].dtype))

    return manual


def _manual_backward(f):
    def manual_backward(gy, *saved):
        grads = f.gradient(*_wide((gy, *saved)))
        like = saved if f.binary else (gy,)
        out = tuple(undo_broadcast(g, t.shape, t.dtype) for g, t in zip(grads, like, strict=True))
        return out if f.binary else out[0]

    return manual_backward


def _wide(tensors):
    return [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors]


MANUAL = {f.name: _manual(f) for f in TABLE.values()}
MANUAL_BACKWARD = {f.name: _manual_backward(f) for f in TABLE.values() if f.gradient}


def __getattr__(entry: str):
    rung, _, rest = entry.partition("_")
    name = rest.removesuffix("_backward")
    tables = {"manual": (MANUAL, MANUAL_BACKWARD), "native": (NATIVE, NATIVE_BACKWARD)}
    functions = tables.get(rung, ({}, {}))[rest != name]
    if name not in functions:
        raise AttributeError(f"module {__name__!r} has no attribute {entry!r}")
    return functions[name]
