"""This package imported a second time under another name, like `compare.git_version` does."""

import importlib
import shutil
import sys
from pathlib import Path

import kernelwright

NAME = "kernelwright_then"


def made(folder: Path) -> Path:
    """Copy the package into a folder and import it; returns its path."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(kernelwright.__file__).parent, folder / NAME, ignore=ignored)
    for path in (folder / NAME).rglob("*.py"):
        path.write_text(path.read_text().replace("kernelwright", NAME))
    sys.path.append(str(folder))
    importlib.import_module(f"{NAME}.ops.every")
    sys.path.remove(str(folder))
    return folder / NAME
