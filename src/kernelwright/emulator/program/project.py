"""The project of a program: the only folders in which its headers and other files are searched.

Other folders, above all those for temporary files, hold files of other programs, which may appear
and vanish during a build. A file that vanishes between its listing and its reading is ignored.
"""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

from kernelwright.support.errors import UsageError

from .options import NONE, Options

LEVELS = 4  # folders above a source that may belong to its project
#: Subfolders with files that several programs of a project share.
SHARED = ("", "Common", "common", "include", "inc", "src", "utils", "util")
_SUFFIXES = (".h", ".hpp", ".hxx", ".cuh", ".hh", ".inl", ".inc", ".cu", ".cpp")
#: Files at the root of a project without a repository of its own.
_ROOT = ("README", "LICENSE", "CMakeLists", "Makefile", "makefile")
#: Folders for the files of everyone; besides them, a user's home and the temporary folder.
_NO_PROJECT = ("/", "/tmp", "/var/tmp", "/dev/shm")
_MOST = 20_000  # maximum number of a project's files that are searched


@cache
def include_folders(source: Path, options: Options = NONE) -> tuple[Path, ...]:
    """Include directories of a source, searched after the directory of the including file."""
    own = (p / name for p in _inside(source) for name in SHARED if (p / name).is_dir())
    return (*options.includes, *own)


def sibling_folders(source: Path) -> tuple[Path, ...]:
    """The other folders beside the folder of a source, and beside those above it in its project;
    the nearest first."""
    beside = (p for folder in _inside(source)[1:] for p in _subfolders(folder))
    return tuple(p for p in dict.fromkeys(beside) if p != source.parent)


def _inside(source: Path) -> list[Path]:
    """The folder of a source, then those above it up to its project's root."""
    last = root(source)
    return [p for p in _above(source) if p == last or last in p.parents]


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    except OSError:
        return []


@cache
def root(source: Path) -> Path:
    """The root of a source's project: the nearest folder with a repository, or else the highest
    with a build file, a README or a license; without one, the folder of the source, or the one
    above if its name is one of SHARED."""
    above = _above(source)
    repository = next((p for p in above if (p / ".git").exists()), None)
    if repository:
        return repository
    rooted = [p for p in above if any(f.name.startswith(_ROOT) for f in files_of(p))]
    if rooted:
        return rooted[-1]
    return next((p for p in above if p.name not in SHARED), source.parent)


def _above(source: Path) -> list[Path]:
    """The folder of a source, then those above it that may belong to its project."""
    parents = [source.parent]
    nobodys = {Path(p).resolve() for p in (*_NO_PROJECT, tempfile.gettempdir(), Path.home())}
    for folder in list(source.parent.parents)[:LEVELS]:
        if folder in nobodys or parents[-1] in nobodys:
            break
        parents.append(folder)
    return parents


def files_of(folder: Path) -> list[Path]:
    """The files of a folder in order; none if it is gone or may not be read."""
    try:
        return sorted(p for p in folder.iterdir() if p.is_file())
    except OSError:
        return []


def text_of(path: Path) -> str:
    """Raises:
    UsageError: the file does not exist, or may not be read.
    """
    try:
        return _decoded(path.read_bytes())
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}") from None


def text_or_empty(path: Path) -> str:
    """The text of a file; empty if it is gone or may not be read."""
    try:
        return _decoded(path.read_bytes())
    except OSError:
        return ""


def _decoded(content: bytes) -> str:
    return content.decode("utf-8-sig", errors="surrogateescape").replace("\r\n", "\n")


def files_named(name: str, source: Path) -> tuple[Path, ...]:
    """The headers and sources of a name anywhere in a source's project, without hidden folders."""
    return tuple(_by_name(root(source)).get(name, ()))


@cache
def _by_name(folder: Path) -> dict[str, list[Path]]:
    by_name: dict[str, list[Path]] = {}
    count = 0
    for above, names, files in os.walk(folder):
        names[:] = sorted(n for n in names if not n.startswith("."))
        for file in files:
            count += 1
            if file.endswith(_SUFFIXES):
                by_name.setdefault(file, []).append(Path(above) / file)
        if count > _MOST:
            break
    return by_name
