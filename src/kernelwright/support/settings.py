"""Settings from environment variables: one frozen object, read once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
#: Data shipped with the code: proof hashes, tuned tables, records.
DATA = PACKAGE / "data"
#: Whether this is a checkout of Kernelwright; an installed package is never modified.
CHECKOUT = (PACKAGE.parents[1] / "pyproject.toml").is_file()
#: The shipped records: a checkout has them at its root, and setup.py builds them into the package.
RECORDS = (PACKAGE.parents[1] if CHECKOUT else DATA) / "records"


@dataclass(frozen=True)
class Settings:
    """KW_CACHE: folder of compiled kernels, by default `kernelwright` in the user's cache
    directory. KW_RECORDS: folder that `--record` writes to, by default `kernelwright/records` in
    the user's data directory; in a checkout None, which means the checkout's own `records`.

    `tuned`: the folder for tables written by `tune` with an installed package; None in a checkout,
    where tables are written to `data/tuned`."""

    cache: Path
    records: Path | None
    tuned: Path | None


@cache
def settings() -> Settings:
    """The settings of this process."""
    cache = Path(os.environ.get("KW_CACHE") or _home("XDG_CACHE_HOME", ".cache"))
    if named := os.environ.get("KW_RECORDS"):
        records = Path(named).expanduser()
    else:
        records = None if CHECKOUT else _home("XDG_DATA_HOME", ".local/share") / "records"
    tuned = records / "tuned" if records and not CHECKOUT else None
    return Settings(cache.expanduser(), records, tuned)


def _home(variable: str, usual: str) -> Path:
    """A user's directory by the XDG specification, and our folder in it."""
    return Path(os.environ.get(variable) or Path.home() / usual) / "kernelwright"
