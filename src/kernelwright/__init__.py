"""Kernelwright: GPU operators for PyTorch, every one a ladder.

    import kernelwright as kw
    y = kw.softmax(x, dim=-1)

Operators keep the names, arguments and meaning of torch.nn.functional. They load with the first
attribute that is asked for, so that the command line answers without importing torch; import
`kernelwright.ops` to have torch.ops.kernelwright filled, to load an exported program, say.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = ("optim",)  # loaded when first asked for, as operators are
_ELSEWHERE = {"patch": ".integrations.transformers", "unpatch": ".integrations.transformers"}

if TYPE_CHECKING:
    from . import optim as optim
    from .integrations.transformers import patch, unpatch
    from .ops import (
        adamw,
        add,
        add_layer_norm,
        add_rms_norm,
        bias_dropout_add,
        bias_gelu,
        clip_grad_norm_,
        clip_grads_with_norm_,
        cross_entropy,
        cross_entropy_with_grad,
        cross_entropy_with_grad_,
        dropout,
        dropout_with_mask,
        embedding,
        explain,
        geglu,
        gelu,
        get_total_norm,
        layer_norm,
        layer_norm_residual_dropout_gelu,
        linear_cross_entropy,
        mul,
        relu,
        rms_norm,
        rope,
        sigmoid,
        silu,
        softmax,
        squared_relu,
        sum,
        swiglu,
        tanh,
        use,
        warmup,
    )

__all__ = [
    "adamw",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "bias_dropout_add",
    "bias_gelu",
    "clip_grad_norm_",
    "clip_grads_with_norm_",
    "cross_entropy",
    "cross_entropy_with_grad",
    "cross_entropy_with_grad_",
    "dropout",
    "dropout_with_mask",
    "embedding",
    "explain",
    "geglu",
    "gelu",
    "get_total_norm",
    "layer_norm",
    "layer_norm_residual_dropout_gelu",
    "linear_cross_entropy",
    "mul",
    "patch",
    "relu",
    "rms_norm",
    "rope",
    "sigmoid",
    "silu",
    "softmax",
    "squared_relu",
    "sum",
    "swiglu",
    "tanh",
    "unpatch",
    "use",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    value = getattr(importlib.import_module(_ELSEWHERE.get(name, ".ops"), __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
