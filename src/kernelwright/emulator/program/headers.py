"""Finds the headers of a program: those of the emulator and of NVIDIA, and those of its project in
folders that only the project's makefile names."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from kernelwright.support.errors import ToolchainError

from .. import compiler

PROGRAM = "program"
LEVELS = 4  # folders above a source that may belong to its project
_SYSTEM = (Path("/usr/include"), Path("/usr/local/include"))
_SUFFIXES = (".h", ".hpp", ".hxx", ".cuh", ".hh", ".inl", ".inc", ".cu", ".cpp")
#: Files at the root of a project.
_ROOT = ("README", "LICENSE", "CMakeLists", "Makefile", "makefile", ".git")
_MOST = 20_000  # maximum number of a project's files that are searched


@cache
def emulated() -> tuple[Path, ...]:
    """The folders of the emulator's headers, which come before NVIDIA's."""
    mine = compiler.HERE / "include"
    return (mine / PROGRAM, mine, compiler.HERE, *nvidia())


@cache
def nvidia() -> tuple[Path, ...]:
    """Folders of the CUDA toolkit's headers.

    Raises:
        ToolchainError: there are none.
    """
    from cuda import pathfinder

    found = pathfinder.find_nvidia_header_directory("cudart")
    if not found:
        raise ToolchainError(
            "the headers of the CUDA toolkit are missing: pip install nvidia-cuda-runtime"
        )
    return Path(found), Path(found) / "cccl"


@cache
def emulates(name: str) -> bool:
    """Whether a header of the toolkit is that of the emulator or of NVIDIA's packages. Headers of
    its samples are the project's."""
    return not name.startswith("helper_") and any((p / name).is_file() for p in emulated())


@cache
def in_project(name: str, source: Path) -> Path | None:
    """The file of the source's project whose path ends with `name`, if neither the emulator nor the
    system has such a header: the one that shares most folders with the source; None if several do.
    """
    last = Path(name).name
    if "." not in last or any((p / name).exists() for p in (*emulated(), *_SYSTEM)):
        return None
    parts = tuple(part for part in Path(name).parts if part not in (".", ".."))
    ends = [p for p in _files(_root(source)).get(last, ()) if p.parts[-len(parts) :] == parts]
    shared = [len(os.path.commonpath([p, source])) for p in ends]
    nearest = [p for p, n in zip(ends, shared, strict=True) if n == max(shared)]
    return nearest[0] if len(nearest) == 1 else None


def _root(source: Path) -> Path:
    """The highest folder above a source that looks like the root of a project."""
    above = [source.parent, *source.parent.parents][: LEVELS + 1]
    rooted = [p for p in above if any(f.startswith(_ROOT) for f in os.listdir(p))]
    return rooted[-1] if rooted else source.parent


@cache
def _files(root: Path) -> dict[str, list[Path]]:
    """The files in a folder and below by name, without hidden folders."""
    found: dict[str, list[Path]] = {}
    count = 0
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith("."))
        for file in files:
            count += 1
            if file.endswith(_SUFFIXES):
                found.setdefault(file, []).append(Path(folder) / file)
        if count > _MOST:
            break
    return found
