"""The type stub of the package, from the table of operators. Editors and type checkers need it
because names are imported only when first used."""

from __future__ import annotations

from kernelwright.ops import PUBLIC


def stub(public: dict[str, str] | None = None) -> str:
    """The text of kernelwright/__init__.pyi.

    Args:
        public: the module of each public function; by default those of all operators.
    """
    lines = [
        "# Written by `make tables` from the table in ops/__init__.py.",
        "from . import nn as nn",
        "from . import optim as optim",
        "from .integrations.transformers import is_patched as is_patched",
        "from .integrations.transformers import patch as patch",
        "from .integrations.transformers import unpatch as unpatch",
        "from .integrations.transformers.attention import register_attention as register_attention",
        "from .ops.introspect import explain as explain",
        "from .ops.introspect import use as use",
        "from .ops.introspect import warmup as warmup",
        "from .workbench.bench.tune_model import tune as tune",
    ]
    for name, module in (public or PUBLIC).items():
        lines.append(f"from .{module.partition('.')[2]} import {name} as {name}")
    body = sorted(lines[1:], key=lambda x: (x.split(" import ")[0], x))
    return "\n".join([lines[0], "", *map(_wrapped, body), "", "__version__: str", ""])


def _wrapped(line: str) -> str:
    """An import as laid out by the formatter."""
    module, names = line.split(" import ")
    return line if len(line) <= 100 else f"{module} import (\n    {names},\n)"
