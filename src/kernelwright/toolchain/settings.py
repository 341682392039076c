"""What the environment may set: one frozen object, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Settings:
    """KW_CACHE: folder of compiled kernels, instead of the user's cache directory.
    KW_RECORDS: folder that measurements are recorded to, instead of the package's."""

    cache: Path
    records: Path | None


@cache
def settings() -> Settings:
    """The settings of this process."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    records = os.environ.get("KW_RECORDS")
    return Settings(
        Path(os.environ.get("KW_CACHE") or Path(home) / "kernelwright").expanduser(),
        Path(records).expanduser() if records else None,
    )
