"""Optional packages: an import whose error states how to install a missing package."""

from __future__ import annotations

import importlib
from typing import Any

from .errors import UsageError


def need(module: str, extra: str, what_for: str) -> Any:
    """The imported module.

    Args:
        extra: the extra of this package that installs it.
        what_for: the feature that needs it, for the message.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as e:
        if e.name != module.partition(".")[0]:
            raise
        raise UsageError(
            f"{what_for} needs the package {e.name}: pip install 'kernelwright[{extra}]'"
        ) from None
