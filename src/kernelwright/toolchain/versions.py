"""The tested versions of torch and triton, and a warning if others are installed."""

from __future__ import annotations

import importlib.metadata
import warnings
from functools import cache

#: As pinned in constraints/.
TESTED = {"torch": ("2.11", "2.13", "2.15"), "triton": ("3.6", "3.7", "3.9")}


@cache
def warn_of_untested() -> None:
    """Warn, once per process, if the installed version of torch or triton is not a tested one."""
    installed = {package: _installed(package) for package in TESTED}
    if untested := [f"{p} {v}" for p, v in installed.items() if v and _minor(v) not in TESTED[p]]:
        tested = " and ".join(f"{p} {', '.join(minors)}" for p, minors in TESTED.items())
        warnings.warn(
            f"Kernelwright is not tested with {' and '.join(untested)}, only with {tested}: "
            "`kernelwright verify` shows what works here",
            stacklevel=2,
        )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
