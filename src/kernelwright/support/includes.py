"""Which headers a C++ or CUDA C++ source takes in: for hashing, for compiling and for caches alike.

Only headers of ours are followed, that is, those found beside a file or in `INCLUDE`; the CUDA
toolkit's and the compiler's own are known by their version.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from .errors import CompileError

#: Device headers that operators share; every CUDA C++ source is compiled with `-I` of it.
INCLUDE = Path(__file__).resolve().parent.parent / "include"

_LITERAL = (
    r'R"(?P<end>[^\s()\\]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])*\''
)
_COMMENT = re.compile(rf"(?P<kept>{_LITERAL})|//(?:\\\n|[^\n])*|/\*.*?\*/", re.S)
_SPACE = re.compile(rf"(?P<kept>{_LITERAL})|\s+", re.S)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t]*$", re.M)

#: Where a header speaks PTX to a GPU and C++ to a CPU; neither branch has directives of its own.
_FOR_CPU = re.compile(
    r"^#ifdef __CUDA_ARCH__\n((?:(?!#).*\n)*?)(?:#else\n(?:(?!#).*\n)*?)?#endif\b.*", re.M
)


def folders(source: Path, shared: Path = INCLUDE) -> tuple[Path, ...]:
    """Where a compiler looks for our headers of a source: `-I` options, in this order."""
    return source.resolve().parent, shared


def files(source: Path, shared: Path = INCLUDE) -> tuple[Path, ...]:
    """A source and our headers that it takes in, each once, in the order in which they come.

    A name in quotes is looked up beside the file that has it, then, as a name in angle brackets
    is, in the `folders` of the source. Both branches of an `#if` are followed.

    Args:
        shared: the folder of headers that operators share.

    Raises:
        CompileError: an `#include` that names its file by a macro.
    """
    found: dict[Path, None] = {}
    _follow(source.resolve(), folders(source, shared), found)
    return tuple(found)


def texts(source: Path) -> list[str]:
    """Name and text of each of a source's `files`: what a compiled kernel is known by."""
    return [part for path in files(source) for part in (path.name, path.read_text())]


def code(path: Path) -> str:
    """A file as a GPU's compiler reads it: no comments, no layout, and nothing for a CPU."""
    return _code(path.read_text())


@cache  # sources share headers
def _code(text: str) -> str:
    text = _FOR_CPU.sub(r"\1", _without_comments(text))
    lines = (_SPACE.sub(lambda m: m["kept"] or " ", line).strip() for line in text.split("\n"))
    # a directive ends with its line; elsewhere the end of a line is a space
    return " ".join(f"\n{line}\n" if line.startswith("#") else line for line in lines if line)


def _follow(path: Path, folders: tuple[Path, ...], found: dict[Path, None]) -> None:
    if path in found:
        return
    found[path] = None
    for what in _DIRECTIVE.findall(_without_comments(path.read_text())):
        quoted, name = what[:1] == '"', what[1:-1]
        if what[:1] + what[-1:] not in ('""', "<>"):
            raise CompileError(f"{path}: #include {what}: write the header's name itself")
        places = (path.parent, *folders) if quoted else folders
        header = next((p / name for p in places if (p / name).is_file()), None)
        if header is not None:
            _follow(header.resolve(), folders, found)


@cache
def _without_comments(text: str) -> str:
    return _COMMENT.sub(lambda m: m["kept"] or " ", text).replace("\\\n", " ")
