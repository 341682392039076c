"""Commands that show the operators, the machine, the compiled code and the records."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .names import complete, known
from .options import Json, Record, Wide, printing, recorded, waiting


def list_(
    ops: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP",
            help="Operators (default: all).",
            show_default=False,
            callback=known,
            autocompletion=complete,
        ),
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """List operators and rungs, and which rung is dispatched.

    \b
    Examples:
      kernelwright list
      kernelwright list softmax
      kernelwright list --json | jq '.operators[].name'
    """
    with printing(as_json, wide) as out:
        with waiting("reading the ladders", out):
            from kernelwright.workbench import listing

            from .render import results

            operators = listing.listing(ops or ())
        if as_json:
            out.emit(operators)
        else:
            out.print(results.listing(operators))
    return GOOD


def env(
    roofs: Annotated[
        bool, typer.Option(help="Measure memory bandwidth and FLOP/s (about 10 s).")
    ] = True,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure fewer sizes (about 3 s).")
    ] = False,
    record: Record = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Show this machine's hardware, backends and bandwidth.

    The roofs are the measured limits of the hardware: memory bandwidth, FLOP/s and launch latency.

    \b
    Examples:
      kernelwright env
      kernelwright env --no-roofs --json
    """
    with printing(as_json, wide) as out:
        with waiting("reading the machine's properties", out) as say:
            from kernelwright.workbench import env as module

            from .render import results

            said: Callable[[Any], None] = lambda r: say(f"measuring {r.rung} {r.case}")  # noqa: E731
            machine = module.env(roofs=roofs, quick=quick, on_roof=said)
        if record:
            from kernelwright.workbench.records import records

            recorded(out, records.save(machine.roofs, machine.environment))
        if as_json:
            out.emit(results.env_data(machine))
        else:
            out.print(results.env(machine))
    return GOOD


def inspect(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="OP[.RUNG]",
            help="A rung. For an operator alone: the rung dispatched on an H200.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    arch: Annotated[
        str, typer.Option(help="The GPU architecture to compile for: sm_80, sm_90a, sm_100a, ...")
    ] = "sm_90a",
    case: Annotated[str | None, typer.Option(help="A case's id (default: the first case).")] = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="Print the PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Print the machine code (SASS).")] = False,
    ttgir: Annotated[bool, typer.Option("--ttgir", help="Print Triton's GPU IR.")] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Show what a rung compiles to: registers, spills, occupancy.

    Needs no GPU: the compilers run on the CPU.

    \b
    Examples:
      kernelwright inspect softmax.triton_row
      kernelwright inspect gelu.cuda_vec16 --arch sm_80 --sass | less
    """
    with printing(as_json, wide) as out:
        with waiting(f"compiling {rung} for {arch}", out):
            from kernelwright.workbench import inspection as module
            from kernelwright.workbench import listing

            from .render import results, terminal

            ladder, chosen = listing.rung_named(rung)
            at = listing.case_named(ladder, case) if case else None
            with terminal.checked():
                inspections = module.inspect(ladder, chosen.name, at, arch)
        texts = [k for k, on in (("ptx", ptx), ("sass", sass), ("ttgir", ttgir)) if on]
        if as_json:
            out.emit([i.as_json(texts=bool(texts)) for i in inspections])
        elif texts:
            for i in inspections:
                for kind in texts:
                    out.print(getattr(i, kind) or f"({i.kernel} has no {kind})", markup=False)
        else:
            for i in inspections:
                out.print(results.inspection(i), "")
    return GOOD


def report(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> int:
    """Write all results as one self-contained HTML page.

    It shows ladders, rooflines, sources and diffs, and opens offline in any browser.

    \b
    Examples:
      kernelwright report
      kernelwright report -o /tmp/ladders.html
    """
    if not output.parent.is_dir():
        raise UsageError(f"-o: there is no folder {output.parent}; create it first")
    if output.is_dir() or not os.access(output.parent, os.W_OK):
        from kernelwright.support.durable import WriteError

        why = "is a folder" if output.is_dir() else "is in a folder that is not writable"
        raise WriteError(f"-o: {output} cannot be written: it {why}; choose another file")
    with printing(as_json) as out:
        with waiting("drawing the report", out):
            import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
            from kernelwright.workbench.report import report as module

            size = module.write(output)
        if as_json:
            out.emit({"file": str(output), "bytes": size})
        else:
            out.print(f"{output}: {size / 1e6:.1f} MB, opens offline in any browser")
    return GOOD
