"""Commands for learning: write a rung, see what its lines cost, step through it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from . import own_kernels
from .names import complete, known
from .options import Json, Wide, printing, recorded, waiting


def exercise(
    rung: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="The exercise to write (default: list the exercises).",
            show_default=False,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Verify the file you edited.")] = False,
    hint: Annotated[bool, typer.Option("--hint", help="Print the next hint.")] = False,
    solution: Annotated[
        bool, typer.Option("--solution", help="Print the diff between your file and the rung.")
    ] = False,
    into: Annotated[Path, typer.Option(help="The folder that holds your files.")] = Path(),
    list_: Annotated[
        bool, typer.Option("--list", help="List the exercises and your progress.")
    ] = False,
    setup: Annotated[
        bool, typer.Option("--setup", help="Build the emulator now, not at the first --check.")
    ] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Learn by writing a kernel, or by finding a fault in one.

    --check compares its results with PyTorch's; for CUDA C++ it also finds data races,
    out-of-bounds accesses, uninitialized reads and divergent barriers with their lines, and
    compares counters with the targets of the exercise. Needs no GPU: without one, Triton kernels
    are interpreted, Numba kernels simulated and CUDA C++ kernels emulated. Your file runs
    unmodified in a separate process.

    Exit codes of --check: 0 right, 1 unfinished or wrong, 2 wrong usage, 3 it compiles but cannot
    be run here.

    \b
    Examples:
      kernelwright exercise --setup
      kernelwright exercise
      kernelwright exercise row_sum.cuda_block
      kernelwright exercise row_sum.cuda_block --hint
      kernelwright exercise row_sum.cuda_block --check
      kernelwright exercise row_sum.cuda_block --solution
      kernelwright exercise --json | jq '.[].state'
    """
    if rung is None and (check or hint or solution):
        raise UsageError("NAME: name the exercise (see kernelwright exercise)")
    if check + hint + solution + setup > 1:
        raise UsageError("--check, --hint, --solution, --setup: give only one of them")
    with printing(as_json, wide) as out:
        with waiting("reading the exercises", out) as say:
            from kernelwright.workbench.exercise import exercise as module
            from kernelwright.workbench.exercise import watched

            from .render import exercises as show

            if setup:
                watched.set_up()
            chosen = None if rung is None or list_ else module.named(rung)
            if chosen is None:
                document: Any = module.standings(into)
                shown: Any = show.listing(document, into)
                code = GOOD
            elif check:
                document = module.check(chosen, into, on_case=lambda case: say(f"checking {case}"))
                path = into / module.files.source(chosen).file_name
                shown = show.checked(chosen, path, document, module.following(into))
                code = module.EXITS[document["outcome"]]
            elif hint:
                number, text = module.hint(chosen, into)
                document = {"hint": number, "of": len(chosen.hints), "text": text}
                shown, code = show.hint(chosen, number, text), GOOD
            elif solution:
                document = module.solution(chosen, into)
                shown, code = show.solution(document, chosen), GOOD
            else:
                path = module.write(chosen, into)
                document, shown, code = {"file": str(path)}, show.written(chosen, path), GOOD
        if as_json:
            out.emit(document)
        else:
            out.print(shown)
    return code


def dissect(
    rungs: Annotated[
        list[str],
        typer.Argument(
            metavar="OP.RUNG | FILE.cu:KERNEL",
            help="Rungs, for example sum.cuda_strided; or a kernel of a file.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Annotated[
        list[str] | None,
        typer.Option(
            help="A case's id (default: a small case of several blocks). Repeatable.",
        ),
    ] = None,
    launch: own_kernels.Launch = None,
    record: Annotated[
        bool,
        typer.Option("--record", help="Save the result for the READMEs and the report."),
    ] = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Count the memory traffic of each line of a CUDA C++ kernel.

    Runs the rung on the CPU and groups the accesses of a warp's lanes as a GPU would. Needs no GPU.

    \b
    requests    memory instructions issued by warps
    lanes       mean number of active lanes of a request, out of 32
    sectors     32-byte sectors of global memory per request (32 floats: 4)
    efficiency  requested bytes / bytes in those sectors
    passes      passes through the 32 banks of shared memory per request
    conflicts   additional passes because lanes need several words of a bank

    Then it lists the divergent branches, and compares the traffic with the bytes that the operator
    must move. docs: "dissect and debug" describes the model, its limits and a comparison with a
    GPU's counters. With OP alone, every CUDA C++ rung that supports the case is shown.

    \b
    Examples:
      kernelwright dissect sum.cuda_strided
      kernelwright dissect sum.cuda_interleaved sum.cuda_sequential
      kernelwright dissect softmax.cuda_warp --case 4096x768-f32-dim=-1
      kernelwright dissect softmax --json | jq '.[].launches[].accesses'
      kernelwright dissect mine.cu:my_sum --launch launch.py
    """
    kernel = own_kernels.named(rungs, launch)
    if kernel:
        return own_kernels.dissect(kernel, launch, as_json, wide)
    with printing(as_json, wide) as out:
        with waiting("preparing", out) as say:
            from kernelwright.workbench import listing
            from kernelwright.workbench.binary_info import dissect as module
            from kernelwright.workbench.verify import verify

            from .render import dissection, terminal

            pairs = [p for p in verify.chosen(rungs) if p[1].backend == "cuda" or "." in rungs[0]]
            dissections: list[Any] = []
            for ladder, rung in pairs:
                for at in [listing.case_named(ladder, c) for c in case or ()] or [None]:
                    if at and len(pairs) > 1 and not module.takes(ladder, rung, at):
                        continue
                    say(f"dissecting {ladder.name}.{rung.name}")
                    with terminal.checked():
                        dissections.append(module.dissect(ladder, rung, at))
                    if not as_json:
                        source = ladder.folder / rung.sources[0]
                        out.print(dissection.dissection(dissections[-1], source), "")
        if record:
            recorded(out, module.save(dissections))
        if as_json:
            out.emit([module.as_json(d) for d in dissections])
    return GOOD


def debug(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="OP.RUNG | FILE.cu:KERNEL",
            help="A rung, for example sum.cuda_strided; or a kernel of a file.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Annotated[
        str | None,
        typer.Option(help="A case's id (default: a small case that the rung supports)."),
    ] = None,
    launch: own_kernels.Launch = None,
) -> int:
    """Step through a kernel in a debugger, on the CPU.

    Execution stops at the kernel's first line. Triton runs in its interpreter under pdb: `p x`
    prints a whole block of values, and every program stops. Numba runs in its simulator under pdb
    and stops in the first thread of the first block. PyTorch runs under pdb.

    CUDA C++ runs in the emulator under gdb and stops in the first thread of the first block.
    Expressions may use threadIdx and blockIdx (break 20 if threadIdx.x == 5); `cuda threads` shows
    where the block's threads are, `cuda thread 3` inspects another thread, and `cuda go 3` runs
    until that thread reaches this line. See `help cuda`.

    \b
    Examples:
      kernelwright debug sum.cuda_strided
      kernelwright debug softmax.triton_row --case 5x33-f32-dim=-1
      kernelwright debug mine.cu:my_sum --launch launch.py
    """
    kernel = own_kernels.named([rung], launch)
    if kernel:
        own_kernels.debug(kernel, launch)
    from kernelwright.workbench import listing
    from kernelwright.workbench.binary_info import debug as module

    from .render import terminal

    ladder, chosen = listing.rung_named(rung)
    with terminal.checked():
        at = listing.case_named(ladder, case) if case else module.small_case(ladder, chosen)
        module.session(ladder, chosen, at)
    return GOOD


def new(
    op: Annotated[
        str | None,
        typer.Argument(
            metavar="OP",
            help="FAMILY/NAME, for example elementwise/scale; with --into, NAME.",
            show_default=False,
        ),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Write NAME.py instead: a spec for `judge`."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="The destination folder (default: its family in ops/ of this checkout)."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Create an operator: a folder that passes `verify`, to edit.

    \b
    Examples:
      kernelwright new elementwise/cube
      kernelwright new cube --into . && kernelwright verify ./cube
      kernelwright new --spec my_spec
      kernelwright judge my_kernel.py:fn --as my_spec.py
    """
    if (op is None) == (spec is None):
        raise UsageError(
            "OP, --spec: give exactly one of them, for example kernelwright new elementwise/scale"
        )
    with printing(as_json) as out:
        from kernelwright.workbench.scaffold import scaffold

        if spec is not None:
            path = scaffold.spec(spec, into)
            if as_json:
                out.emit({"spec": path.stem, "files": [str(path)]})
            else:
                out.print(path)
                out.print(f"next: kernelwright judge my_kernel.py:fn --as {path}")
            return GOOD
        assert op is not None
        written = scaffold.new(op, into)
        if as_json:
            out.emit({"operator": op, "files": [str(p) for p in written]})
        else:
            for path in written:
                out.print(path)
            name = written[0].parent.resolve() if into else op.rpartition("/")[2]
            out.print(f"next: kernelwright verify {name}")
    return GOOD
