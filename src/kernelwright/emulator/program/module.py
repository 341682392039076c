"""Modules of the driver API and of NVRTC: kernels that a program compiles or loads while it runs,
as a shared library.

    python -m kernelwright.emulator.program.module FOLDER

The running program (host/modules.cpp) writes a folder: `kind`, the kind of its own build, and
either `code/NAME`, with `name`, `options` and `expressions` (one in a line), or `file`, the name of
a file of machine code, and `program`, the source of the program. It then finds `image`, the path of
a library, or `log`, why there is none.

Machine code is not emulated: in place of a file k.ptx, k64.fatbin or k_sm_90.cubin, k.cu is built.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.support import cache
from kernelwright.support.errors import CompileError, UsageError, UserError

from . import build, project, sources
from .options import NONE, Options, options
from .rewrite import kernels_of, signature
from .tokens import Token, tokens

LIBRARY = "module.so"
_DEFINE = re.compile(r"(?:-D|--define-macro)[= ]?(.+)")
_INCLUDE = re.compile(r"(?:-I|--include-path)[= ]?(.+)")
_STANDARD = re.compile(r"--?std=(.+)")
#: Options of NVRTC that change nothing here.
_OTHER = re.compile(
    r"(?:--gpu-architecture|-arch|--device-c|-dc|--device-w|-dw|--relocatable-device-code|-rdc"
    r"|--extensible-whole-program|-ewp|--device-debug|-G|--generate-line-info|-lineinfo|--dopt|-dopt"
    r"|--ptxas-options|-Xptxas|--maxrregcount|-maxrregcount|--ftz|-ftz|--prec-sqrt|-prec-sqrt"
    r"|--prec-div|-prec-div|--fmad|-fmad|--use_fast_math|-use_fast_math|--extra-device-vectorization"
    r"|-extra-device-vectorization|--modify-stack-limit|--dlink-time-opt|-dlto|--builtin-\w+|-builtin-\w+"
    r"|--disable-warnings|-w|--restrict|-restrict|--device-as-default-execution-space|-default-device"
    r"|--device-int128|-device-int128|--optimization-info|-opt-info|--display-error-number|-err-no"
    r"|--no-display-error-number|--diag-\w+|-diag-\w+|--brief-diagnostics|-brief-diag|--time|-time"
    r"|--split-compile|-split-compile|--minimal|-minimal|--pch\S*|-pch\S*|--version-ident|-dQ"
    r"|--no-source-include|-no-source-include|--undefine-macro|-U\w*|--pre-include|-include)(?:=.*|\d*)?"
)


def main(folder: Path) -> None:
    kind = (folder / "kind").read_text()
    try:
        if (folder / "file").exists():
            source = _source_of(
                (folder / "file").read_text(), Path((folder / "program").read_text())
            )
            library_path = library(source, kind)
        else:
            expressions = (folder / "expressions").read_text().split("\n")
            given = _options((folder / "options").read_text().split("\n"))
            source = folder / "code" / (folder / "name").read_text()
            library_path = library(
                source, kind, given, [e for e in expressions if e], anywhere=True
            )
    except UserError as e:
        (folder / "log").write_text(str(e).replace(f"{folder / 'code'}/", ""))
    else:
        (folder / "image").write_text(str(library_path))


def library(
    source: Path,
    kind: str,
    given: Options = NONE,
    expressions: Sequence[str] = (),
    anywhere: bool = False,
) -> Path:
    """The shared library of a source's kernels.

    Args:
        kind: of build, as the program's.
        expressions: of instances of templates, and of variables with & before them.
        anywhere: whether only the name and the text of the source count, not where it stands.

    Raises:
        CompileError: naming a line.
    """
    files = sources.own_files(source, given)
    paths = (p.name if anywhere else str(p) for p in files)
    texts = [
        part
        for p, t in zip(paths, files.values(), strict=True)
        for part in (p, build.source_bytes(t))
    ]
    own = [build.host().parent.name, build.prelude(kind).parent.name, build.rewriter_key()]
    key = ["module", kind, *given.command(), given.standard, "\n".join(expressions), *texts, *own]
    end = _table([*expressions, *(n for t in files.values() for n in _plain_kernels(t))])

    def compile_(work: Path) -> cache.Files:
        out = work / LIBRARY
        (work / "unit").mkdir()
        object_ = build.compiled_object(work / "unit", source, kind, given, whole=False, module=end)
        link = ["-shared", "-Wl,-Bsymbolic", "-pthread", str(object_), str(build.host())]
        process = build.build.run_compiler(
            work, [*link, str(build.build.runtime()), "-lm", "-o", str(out)]
        )
        if process.returncode:
            raise CompileError(build.errors.explain(process.stderr, source, {}))
        return {LIBRARY: out.read_bytes()}

    what = f"building the module {source.name} for the CPU"
    return cache.get_or_build("emulated-module", cache.key(key), what, compile_) / LIBRARY


def _table(names: Sequence[str]) -> str:
    rows = "".join(f"KW_VARIABLE({n[1:].strip()})" if n.startswith("&") else f"KW_KERNEL({n})"
                   for n in dict.fromkeys(names))  # fmt: skip
    return f'#line 1 "{build.compiler.UNIT}"\nKW_MODULE({build.build.MOST_SHARED}, {rows})\n'


def _plain_kernels(text: str) -> Iterator[str]:
    """The kernels of a text that are no templates, with their namespaces."""
    plain = {name for name, alone in kernels_of(text).items() if alone}
    all_ = tokens(text)
    spaces: list[str] = []
    for i, t in enumerate(all_):
        if t.kind == "mark" and t.text == "{":
            spaces.append(_namespace(all_, i))
        elif t.kind == "mark" and t.text == "}" and spaces:
            spaces.pop()
        elif t.text == "__global__" and (span := signature(all_, i)):
            at, end = span
            if all_[at].text in plain and all_[end + 1].text == "{":
                yield "".join(f"{s}::" for s in spaces if s) + all_[at].text


def _namespace(all_: list[Token], at: int) -> str:
    """The name of the namespace that opens at a token, or an empty text."""
    first = at
    while first and all_[first - 1].text not in (";", "{", "}", "namespace"):
        first -= 1
    named = first and all_[first - 1].text == "namespace"
    return "".join(t.text for t in all_[first:at]) if named else ""


def _options(given: Sequence[str]) -> Options:
    defines, includes, standard = list[str](), list[Path](), ""
    left = iter([g for g in given if g])
    for text in left:
        if text in ("-D", "-I", "--define-macro", "--include-path", "-arch", "-std", "--std"):
            text = f"{text}={next(left, '')}"
        if m := _DEFINE.fullmatch(text):
            defines.append(m[1])
        elif m := _INCLUDE.fullmatch(text):
            includes.append(Path(m[1]))
        elif m := _STANDARD.fullmatch(text):
            standard = m[1]
        elif not _OTHER.fullmatch(text):
            raise UsageError(f"{text}: NVRTC has no such option, or the emulator does not know it")
    return options(defines, [p for p in includes if p.is_dir()], standard)


def _source_of(file: str, program: Path) -> Path:
    """The source from which a file of machine code is made: the .cu of its name.

    Raises:
        UsageError: there is none.
    """
    stem = re.sub(r"[_.-]?(?:sm|compute)_?\d+\w?$", "", Path(file).stem)
    names = [f"{n}.cu" for n in dict.fromkeys((stem, re.sub(r"_?(?:32|64)$", "", stem)))]
    places = [Path(file).parent, program.parent, *project.include_folders(program)]
    beside = (p.resolve() / n for n in names for p in map(Path, places))
    anywhere = (p for n in names for p in project.files_named(n, program))
    source = next((p for p in (*beside, *anywhere) if p.is_file()), None)
    if source is None:
        other = " or ".join(names)
        raise UsageError(f"{file}: machine code is not emulated, and there is no {other} to build")
    return source


if __name__ == "__main__":
    main(Path(sys.argv[1]))
