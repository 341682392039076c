"""The headers that a C++ or CUDA C++ source includes, for hashing, compiling and caching.

Only our headers are followed: those in a file's own folder or in `INCLUDE`. Headers of the CUDA
toolkit and the compiler are identified by their version.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .errors import CompileError

#: Shared device headers; every CUDA C++ source is compiled with `-I` of this folder.
INCLUDE = Path(__file__).resolve().parent.parent / "include"

LITERAL = r'R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\''
_COMMENT = re.compile(rf"(?P<kept>{LITERAL})|//(?:\\\n|[^\n])*|/\*.*?\*/", re.S)
_SPACE = re.compile(rf"(?P<kept>{LITERAL})|\s+", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t]*$", re.M)

#: A header's PTX for GPUs and its C++ for CPUs; neither branch contains further directives.
_FOR_CPU = re.compile(
    r"^#ifdef __CUDA_ARCH__\n((?:(?!#).*\n)*?)(?:#else\n(?:(?!#).*\n)*?)?#endif\b.*", re.M
)


def folders(source: Path, shared: Path = INCLUDE) -> tuple[Path, ...]:
    """The folders in which a compiler finds our headers of a source: `-I` options, in order."""
    return source.resolve().parent, shared


def files(source: Path, shared: Path = INCLUDE) -> tuple[Path, ...]:
    """A source and our headers that it includes, each once, in order of first inclusion.

    A quoted name is looked up in the including file's folder and then, like a name in angle
    brackets, in the `folders` of the source. Both branches of an `#if` are followed.

    Args:
        shared: the folder of shared headers.

    Raises:
        CompileError: an `#include` names its file by a macro.
    """
    found: dict[Path, None] = {}
    _follow(source.resolve(), folders(source, shared), found)
    return tuple(found)


def texts(source: Path) -> list[str]:
    """Name and text of each of a source's `files`, which identify a compiled kernel."""
    return [part for path in files(source) for part in (path.name, path.read_text())]


def code(path: Path) -> str:
    """A file as the GPU compiler sees it: without comments, layout and CPU-only code."""
    return _code(path.read_text())


@cache  # sources share headers
def _code(text: str) -> str:
    text = _FOR_CPU.sub(r"\1", _without_comments(text))
    lines = (_SPACE.sub(lambda m: m["kept"] or " ", line).strip() for line in text.split("\n"))
    # a directive ends with its line; elsewhere the end of a line is a space
    return " ".join(f"\n{line}\n" if line.startswith("#") else line for line in lines if line)


def inlined(source: Path, shared: Path = INCLUDE) -> str:
    """The `code` of a source with that of our headers where they are first included: equal for
    texts of which a compiler makes the same, wherever their files are."""
    return " ".join(_inlined(source.resolve(), folders(source, shared), set()))


def _inlined(path: Path, folders: tuple[Path, ...], seen: set[Path]) -> Iterator[str]:
    for line in (x.strip() for x in code(path).split("\n")):
        included = _DIRECTIVE.fullmatch(line)
        header = _header(included[1], path, folders) if included else None
        if header is None and line not in ("", "#pragma once"):
            yield f"\n{line}\n" if line.startswith("#") else line
        elif header is not None and header not in seen:
            if "\n#pragma once\n" in code(header):
                seen.add(header)
            yield from _inlined(header, folders, seen)


def _follow(path: Path, folders: tuple[Path, ...], found: dict[Path, None]) -> None:
    if path in found:
        return
    found[path] = None
    for what in _included(path.read_text()):
        header = _header(what, path, folders)
        if header is not None:
            _follow(header, folders, found)


def _header(what: str, path: Path, folders: tuple[Path, ...]) -> Path | None:
    """Our header of an `#include` in a file."""
    quoted, name = what[:1] == '"', what[1:-1]
    if what[:1] + what[-1:] not in ('""', "<>"):
        raise CompileError(f"{path}: #include {what}: write the header's name literally")
    places = (path.parent, *folders) if quoted else folders
    return next(((p / name).resolve() for p in places if (p / name).is_file()), None)


@cache  # sources share headers
def _included(text: str) -> list[str]:
    return _DIRECTIVE.findall(_without_comments(text))


@cache
def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda m: m["kept"] or " ", text).replace("\\\n", " ")
