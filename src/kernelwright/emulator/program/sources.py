"""The files of a program: its source and the headers of its own, rewritten side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from kernelwright.support.errors import UsageError

from . import lockstep
from .attributes import attributes_of
from .headers import header_in_project, is_provided
from .loops import ProgramIndex, with_loops
from .options import NONE, Options
from .poison_locals import poisoned
from .project import files_of, include_folders, sibling_folders, text_of, text_or_empty
from .rewrite import kernels_of, rewritten
from .tokens import tokens

_INCLUDE = re.compile(r'^([ \t]*#[ \t]*include[ \t]*)(["<])([^">\n]+)[">]', re.M)
#: Headers of the CUDA C++ core libraries, which a host compiler reads as C++.
_CORE = re.compile(r"^(thrust|cuda/std)/")
#: Texture references, of which CUDA 12 has no declarations; other programs use the name otherwise.
_REFERENCE = re.compile(r"\btexture\s*<[^;{}()]*>\s*\w+\s*[;(]|\bcudaBindTexture")
_OWN_TEXTURE = re.compile(r"\b(?:class|struct)\s+texture\b")
#: Headers of libraries that come with the toolkit, of which projects have copies of other versions.
_LIBRARIES = re.compile(r"^(?:cub|thrust|cuda|nv)/")
#: The license of a header of the CUDA toolkit.
_TOOLKIT = re.compile(r"NOTICE TO (?:LICENSEE|USER)|NVIDIA ownership rights")
#: A string directly before a parameter of a macro, which C++11 reads as a suffix of the string.
_SUFFIX = re.compile(r'("(?:\\.|[^"\\\n])*")(?=[A-Za-z_]\w*)')
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+\(([^)]*)\)(?:\\\r?\n|[^\n])*", re.M)
_NAMED_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\(", re.M)
#: Headers that are part of the emulator even where a project has its own.
_SYSTEM = ("torch/", "ATen/", "c10/", "cuda_runtime", "cooperative_groups", "cuda_fp16", "mma.h")


def own_files(source: Path, options: Options = NONE) -> dict[Path, str]:
    """A program's own files and their text: the source first. The text of a file that is gone is
    empty."""
    files: dict[Path, str] = {}
    left = [source]
    while left:
        path = left.pop()
        if path in files:
            continue
        files[path] = text_or_empty(path)
        left += [header for _, header in _includes(files[path], path, source, options)]
    return files


def _includes(
    text: str, path: Path, source: Path, options: Options
) -> Iterator[tuple[re.Match[str], Path]]:
    searched = include_folders(source, options)
    for match in _INCLUDE.finditer(text):
        quoted, name = match[2] == '"', match[3].strip().replace("\\", "/")
        if name.startswith(_SYSTEM):
            continue
        places = (path.parent, *searched) if quoted else searched
        header = next((p / name for p in places if (p / name).is_file()), None)
        if header and is_provided(name) and (_LIBRARIES.match(name) or _of_the_toolkit(header)):
            continue  # a project's copy
        header = header or header_in_project(name, source)
        if header is not None:
            yield match, header.resolve()


def _of_the_toolkit(header: Path) -> bool:
    return _TOOLKIT.search(text_or_empty(header)) is not None


#: Suffixes of a program's other translation units; C has no mangled names.
UNITS = (".cu", ".cpp", ".cc", ".cxx", ".c")
_MAIN = re.compile(r"\bmain\s*\(")
_NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.S)


def _code(text: str) -> str:
    """A text without its comments and strings."""
    return _NO_CODE.sub(" ", text)


def _defines_main(text: str) -> bool:
    return _MAIN.search(_code(text)) is not None


def candidate_units(source: Path, options: Options = NONE) -> tuple[Path, ...]:
    """Files that may hold functions that a program declares only: those without `main` in the
    folder of its source, in folders that its project shares, and beside its headers; those beside
    the headers of these files; and those in other folders beside that of the source."""
    headers = (p.parent for p in own_files(source, options))
    near = _units(source, (*include_folders(source, options), *headers))
    theirs = _units(source, (p.parent for u in near for p in own_files(u, options)))
    return tuple(dict.fromkeys((*near, *theirs, *_units(source, sibling_folders(source)))))


def _units(source: Path, places: Iterable[Path]) -> list[Path]:
    units = (p for f in dict.fromkeys(places) for p in files_of(f) if p.suffix in UNITS)
    files = (p for p in map(Path.resolve, units) if p != source)
    return [p for p in dict.fromkeys(files) if not _defines_main(text_or_empty(p))]


def has_main(source: Path, options: Options = NONE) -> bool:
    """Whether a file or a header of its own defines `main`."""
    return any(_defines_main(text) for text in own_files(source, options).values())


def program_of(source: Path, options: Options = NONE) -> Path:
    """The file with `main` of the program that a file belongs to: the file itself, or the only one
    in the nearest of its project's folders that includes it or calls a function that it defines; or
    the file, if there is none.

    Raises:
        UsageError: there are several.
    """
    if has_main(source, options):
        return source
    called = "|".join(_host_functions(_code(text_of(source)))) or "(?!)"
    uses = re.compile(rf'#\s*include\s*"(?:[^"]*/)?{re.escape(source.name)}"|\b(?:{called})\s*\(')
    those: list[Path] = []
    for folder in (
        *include_folders(source, options),
        *sibling_folders(source),
    ):  # the nearest first
        files = (p for p in files_of(folder) if p.suffix in UNITS)
        texts = {p.resolve(): text_or_empty(p) for p in files}
        those = [p for p, text in texts.items() if uses.search(text) and _defines_main(text)]
        if those:
            break
    if len(those) > 1:
        names = ", ".join(os.path.relpath(p, source.parent) for p in those[:6])
        raise UsageError(f"{source} has no function main; run one of those that use it: {names}")
    return those[0] if those else source


def _host_functions(text: str) -> set[str]:
    """Names of functions that a text defines outside of classes, without kernels and functions for
    the device."""
    defined = re.finditer(
        r"^(?!\s)(?P<before>[^\n;{}()=#]*?)\b(?P<name>\w+)\s*\([^;{}]*?\)\s*\{", text, re.M
    )
    own_ = ("__global__", "__device__", "static", "inline")
    return {m["name"] for m in defined if not any(word in m["before"] for word in own_)}


def defines(path: Path, name: str) -> bool:
    """Whether a file seems to define a function or a variable."""
    function = rf"\b{name}\s*\((?:[^;{{}}()]|\([^()]*\))*\)\s*(?:const\s*)?(?:noexcept\s*)?\{{"
    variable = rf"^(?!\s*(?:extern|return)\b)[\w:<>,*&\t ]+[\s*&]{name}\s*(?:\[[^]]*\]\s*)*(?:=|;)"
    if path.suffix == ".c":  # int f(n) int n; { }
        function = rf"{function}|\b{name}\s*\([\w\s,]*\)\s*(?:\w[\w\s*,\[\]]*;\s*)+\{{"
    return re.search(f"{function}|{variable}", _code(text_or_empty(path)), re.M) is not None


def _spaced(text: str) -> str:
    """The text with a space between a string and a macro's parameter, as C++03 reads them."""

    def macro(match: re.Match[str]) -> str:
        names = {name.strip() for name in match[1].split(",")}

        def spaced(m: re.Match[str]) -> str:
            after = re.match(r"\w+", m.string[m.end() :])
            return f"{m[1]} " if after and after[0] in names else m[0]

        return _SUFFIX.sub(spaced, match[0])

    return _MACRO.sub(macro, text)


def called_units(files: dict[Path, str], units: Iterable[Path]) -> list[Path]:
    """Those of the units that define a function whose name the files use and do not define."""
    texts = [_code(text) for text in files.values()]
    open_ = {w for t in texts for w in re.findall(r"\b\w+(?=\s*\()", t)}
    open_ -= {name for t in texts for name in _host_functions(t)}
    return [p for p in units if _host_functions(_code(text_or_empty(p))) & open_]


def file_names(files: dict[Path, str]) -> dict[Path, str]:
    """What each file is called where the program is built."""
    return {path: f"{i:03}_{path.name}" for i, path in enumerate(files)}


def rewritten_files(
    files: dict[Path, str],
    source: Path,
    options: Options = NONE,
    *,
    loops: bool = False,
    without: Collection[str] = (),
    poison: bool = False,
) -> dict[str, str]:
    """{name: text} of the rewritten files; each has a #line directive that names its original.

    Args:
        loops: whether kernels get loops over the threads of a block, where that is equivalent.
        without: kernels that do not get them.
        poison: whether variables without a value are poisoned for the checks.
    """
    texts = (*files.values(), options.text())
    index = ProgramIndex(texts) if loops else None
    kernels: dict[str, bool] = {}
    for text in files.values():
        for name, plain in kernels_of(text).items():
            kernels[name] = kernels.get(name, True) and plain
    attributes = attributes_of(texts)
    words = lockstep.volatile_words(texts)
    volatile = {n for text in files.values() for n in lockstep.volatile_names(tokens(text), words)}
    called = file_names(files)
    macros = {name for text in texts for name in _NAMED_MACRO.findall(text)}
    older = any(_REFERENCE.search(text) for text in files.values())
    older &= not any(_OWN_TEXTURE.search(text) for text in files.values())
    first = "#include <kw_texture_references.h>\n" if older else ""
    undefined = options.plain_names()
    texts_by_name: dict[str, str] = {called[source]: ""}  # the first
    for path, text in files.items():
        headers = _includes(text, path, source, options)
        by_place = {m.start(): h for m, h in headers if h in called}  # without newer files

        def included(match: re.Match[str], by_place: dict[int, Path] = by_place) -> str:
            if match.start() in by_place:
                return f'{match[1]}"{called[by_place[match.start()]]}"'
            if not _CORE.match(match[3]) and not (undefined and is_provided(match[3])):
                return f"{match[1]}<kw_cub.h>" if match[3].startswith("cub/") else match[0]
            name = f"kw_{re.sub(r'[^a-z0-9]', '_', match[3])}.h"
            header = "kw_cub.h" if match[3].startswith("cub/") else match[3]
            texts_by_name[name] = _without(undefined, header)
            return f'{match[1]}"{name}"'

        whole = _spaced(_INCLUDE.sub(included, text))
        whole = (
            with_loops(whole, index, without=without)
            if index
            else poisoned(whole)
            if poison
            else whole
        )
        texts_by_name[called[path]] = f'{first}#line 1 "{path}"\n' + rewritten(
            whole, kernels, attributes, volatile if words else None, macros
        )
    return texts_by_name


_SHARING = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*[<\"](?:thrust/|cub/|cuda/std|cublas|cufft|curand|cusparse|nvrtc)",
    re.M,
)


def uses_host_libraries(files: dict[Path, str]) -> bool:
    """Whether a program includes libraries whose functions here touch device memory on the host."""
    return any(_SHARING.search(text) for text in files.values())


def _without(names: Iterable[str], header: str) -> str:
    """A header that includes another one where these macros are not defined; one of the core
    libraries as a host compiler would."""
    core = ("__CUDACC__", "__NVCC__", "__CUDA_ARCH__", "__CUDACC_VER_MAJOR__")
    macros = (*names, *(core if _CORE.match(header) else ()))
    push = "".join(f'#pragma push_macro("{m}")\n#undef {m}\n' for m in macros)
    pop = "".join(f'#pragma pop_macro("{m}")\n' for m in macros)
    policies = "#include <kw_thrust.h>\n" if header.startswith("thrust/") else ""
    wanted = "" if header.startswith("thrust/system/cuda/") else f"#include <{header}>\n"
    return f"#pragma once\n{push}{wanted}{policies}{pop}"
