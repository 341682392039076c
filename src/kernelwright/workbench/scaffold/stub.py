"""The type stub of the package, from the table of operators: what editors and type checkers read
in place of names that are imported when they are first used."""

from __future__ import annotations

from kernelwright.ops import PUBLIC


def stub(public: dict[str, str] | None = None) -> str:
    """The text of kernelwright/__init__.pyi.

    Args:
        public: the module of each public function; by default of the operators that there are.
    """
    lines = [
        "# Written by `make tables` from the table in ops/__init__.py.",
        "from . import nn as nn",
        "from . import optim as optim",
        "from .integrations.transformers import patch as patch",
        "from .integrations.transformers import unpatch as unpatch",
        "from .ops.introspect import explain as explain",
        "from .ops.introspect import use as use",
        "from .ops.introspect import warmup as warmup",
    ]
    for name, module in (public or PUBLIC).items():
        lines.append(f"from .{module.partition('.')[2]} import {name} as {name}")
    body = sorted(lines[1:], key=lambda x: (x.split(" import ")[0], x))
    return "\n".join([lines[0], "", *body, "", "__version__: str", ""])
