"""This package imported a second time under another name, like `compare.git_version` does."""

import importlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import kernelwright

NAME = "kernelwright_then"


def made(folder: Path, name: str = NAME, change: Callable[[Path], None] | None = None) -> Path:
    """Copy the package into a folder, change its files and import it; returns its path. Tests of
    one process that change such packages must give them different names."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(kernelwright.__file__).parent, folder / name, ignore=ignored)
    if change is not None:
        change(folder / name)
    for path in (folder / name).rglob("*.py"):
        path.write_text(path.read_text().replace("kernelwright", name))
    sys.path.append(str(folder))
    importlib.import_module(f"{name}.ops.every")
    sys.path.remove(str(folder))
    return folder / name
