"""A command that writes a separate project around a rung."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelwright.support.errors import GOOD, UsageError

from .names import complete, known
from .options import Json, printing, waiting

STYLES = ("inline", "load", "setuptools", "cmake", "nvrtc")


def extension(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="OP.RUNG",
            help="A CUDA C++ rung, for example softmax.cuda_block.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    into: Annotated[
        Path,
        typer.Option("-o", "--into", help="The new folder; its name is the name of the package."),
    ],
    style: Annotated[
        str, typer.Option(help=f"How the kernel is built: {', '.join(STYLES)}.")
    ] = "load",
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a case to support (default: a bench case of each dtype). Repeatable."
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Export a CUDA C++ rung as a PyTorch extension.

    The project depends only on PyTorch. It contains the rung's unmodified kernel, its
    TORCH_LIBRARY binding with a fake implementation and a gradient, a test, a README, and
    run_time.py, which builds the kernel in five ways and compares them. The styles are:

    \b
    inline      source strings with load_inline     load   source files with load
    setuptools  a package with setup.py             cmake  a C++ library with CMake
    nvrtc       the kernel with NVRTC at the first call, without nvcc

    \b
    Examples:
      kernelwright extension softmax.cuda_block -o my_softmax
      kernelwright extension gelu.cuda_vec16 --style nvrtc -o my_gelu
      cd my_softmax; python run_time.py
    """
    if style not in STYLES:
        raise UsageError(f"--style: {style!r} is not one of {', '.join(STYLES)}")
    operator, _, name = rung.rpartition(".")
    if not operator:
        raise UsageError(f"OP.RUNG: name a rung as well (kernelwright list {rung} shows them)")
    with printing(as_json) as out:
        with waiting("writing", out):
            from kernelwright.dispatch import ladder
            from kernelwright.workbench import listing
            from kernelwright.workbench.extension import project

            owner = ladder(operator)
            cases = [listing.case_named(owner, c) for c in case or ()]
            written = project.write(owner, owner.rung(name), style, into, cases)
        if as_json:
            out.emit({"files": [str(p) for p in written]})
        else:
            out.print(f"{len(written)} files in {into}: start with {into / 'README.md'}")
            out.print(f"On a machine with a GPU: cd {into}; python run_time.py")
    return GOOD
