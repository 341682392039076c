"""Finds the headers of a program: those of the emulator and of NVIDIA, and those of its project in
folders that only the project's makefile names."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from kernelwright.support import cuda_headers

from .. import compiler
from . import project

#: The headers of CUDA that only programs include, and those of NVIDIA's libraries.
PROGRAM = compiler.HERE / "include" / "program"
LIBRARIES = compiler.HERE / "libraries" / "include"
_SYSTEM = (Path("/usr/include"), Path("/usr/local/include"))


@cache
def search_path() -> tuple[Path, ...]:
    """The folders of the emulator's headers, which come before NVIDIA's."""
    return (PROGRAM, LIBRARIES, compiler.HERE / "include", compiler.HERE, *toolkit_folders())


@cache
def toolkit_folders() -> tuple[Path, ...]:
    """Folders of the CUDA toolkit's headers.

    Raises:
        ToolchainError: see `cuda_headers.complete`.
    """
    return cuda_headers.complete()[0]


@cache
def is_provided(name: str) -> bool:
    """Whether a header of the toolkit is that of the emulator or of NVIDIA's packages. Headers of
    its samples are the project's."""
    return not name.startswith("helper_") and any((p / name).is_file() for p in search_path())


@cache
def header_in_project(name: str, source: Path) -> Path | None:
    """The file of the source's project whose path ends with `name`, if neither the emulator nor the
    system has such a header: the one that shares most folders with the source; None if several do.
    """
    last = Path(name).name
    if "." not in last or any((p / name).exists() for p in (*search_path(), *_SYSTEM)):
        return None
    parts = tuple(part for part in Path(name).parts if part not in (".", ".."))
    ends = [p for p in project.files_named(last, source) if p.parts[-len(parts) :] == parts]
    shared = [len(os.path.commonpath([p, source])) for p in ends]
    nearest = [p for p, n in zip(ends, shared, strict=True) if n == max(shared)]
    return nearest[0] if len(nearest) == 1 else None
