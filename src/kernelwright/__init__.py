"""Kernelwright: GPU operators for PyTorch, each a ladder of implementations.

    import kernelwright as kw
    y = kw.softmax(x, dim=-1)

Operators keep the names, arguments and meaning of torch.nn.functional. Each is imported separately
when it is first used; `import kernelwright` imports neither torch nor a kernel language.
"""

from __future__ import annotations

import importlib
from typing import Any

from .ops import PUBLIC

__version__ = "0.1.0"

#: Public names besides the operators, and their modules.
_OTHERS = {
    "explain": f"{__name__}.ops.introspect",
    "is_patched": f"{__name__}.integrations.transformers",
    "patch": f"{__name__}.integrations.transformers",
    "register_attention": f"{__name__}.integrations.transformers.attention",
    "tune": f"{__name__}.workbench.bench.tune_model",
    "unpatch": f"{__name__}.integrations.transformers",
    "use": f"{__name__}.ops.introspect",
    "warmup": f"{__name__}.ops.introspect",
}
_MODULES = ("nn", "optim")

__all__ = sorted([*PUBLIC, *_OTHERS])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    module = PUBLIC.get(name) or _OTHERS.get(name)
    if module is None:
        raise AttributeError(f"module 'kernelwright' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
