"""Learning: write a rung yourself, see what its lines cost, step through it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .names import complete, known
from .options import Json, printing, recorded, waiting


def exercise(
    rung: Annotated[
        str | None,
        typer.Argument(metavar="[OP.RUNG]", help="None: list them.", show_default=False),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Judge the file you have edited.")] = False,
    solution: Annotated[
        bool, typer.Option("--solution", help="The difference between your file and the rung.")
    ] = False,
    into: Annotated[Path, typer.Option(help="The folder of your files.")] = Path(),
    list_: Annotated[
        bool, typer.Option("--list", help="The exercises, and where you stand.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Learn by writing: a rung with its body taken out, and judged as the rung itself is.

    Without a GPU too: Triton is interpreted, Numba simulated and CUDA C++ run as `verify` does.
    Your file is run as it is, in a process of its own.

    Exit codes of --check: 0 right, 1 not done yet or wrong, 2 wrong usage, 3 it compiles, and can
    not be run here.

    \b
    Examples:
      kernelwright exercise
      kernelwright exercise sum.cuda_sequential
      kernelwright exercise sum.cuda_sequential --check
      kernelwright exercise sum.cuda_sequential --solution
      kernelwright exercise --json | jq '.[].state'
    """
    if rung is None and (check or solution):
        raise UsageError("OP.RUNG: name the exercise (kernelwright exercise lists them)")
    if check and solution:
        raise UsageError("--check, --solution: one of them at a time")
    with printing(as_json) as out:
        with waiting("reading the exercises", out) as say:
            from kernelwright.workbench.exercise import exercise as module

            from .render import exercises as show

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
            metavar="OP.RUNG ...",
            help="A rung, as in sum.cuda_strided.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Annotated[
        list[str] | None,
        typer.Option(help="A case's id; default: a small one of several blocks. Repeatable."),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep it where READMEs and the report read.")
    ] = False,
    as_json: Json = False,
) -> int:
    """What each line of a CUDA C++ rung costs a warp: sectors, bank conflicts, idle lanes.

    Runs the rung on the CPU and groups the accesses of a warp's lanes as a GPU would. Needs no GPU.

    \b
    requests    accesses by warps: lanes that run an instruction together make one
    lanes       of 32 that took part, in the mean
    sectors     of 32 bytes of global memory that a request touches; 4 is the least for 32 lanes
                of 4 bytes each
    efficiency  of the bytes in those sectors, those asked for; over 100% where lanes share them
    passes      through the 32 banks of shared memory that a request takes
    conflicts   passes beyond those that its bytes need: a bank asked for several words

    \b
    Then the branches where lanes of one warp go different ways, and the traffic against what the
    operator must move. docs/dissect.md has the model, its limits and a comparison with a GPU's
    counters. OP alone is every CUDA C++ rung of it that takes the case.

    \b
    Examples:
      kernelwright dissect sum.cuda_strided
      kernelwright dissect sum.cuda_interleaved sum.cuda_sequential --case 1048576-f32-dim=None
      kernelwright dissect softmax --case 4096x768-f32-dim=-1 --json | jq '.[].launches[].accesses'
    """
    with printing(as_json) as out:
        with waiting("getting ready", out) as say:
            from kernelwright.workbench import listing
            from kernelwright.workbench.binary_info import dissect as module
            from kernelwright.workbench.verify import verify

            from .render import dissection, terminal

            pairs = [p for p in verify.chosen(rungs) if p[1].backend == "cuda" or "." in rungs[0]]
            found: list[Any] = []
            for ladder, rung in pairs:
                for at in [listing.case_named(ladder, c) for c in case or ()] or [None]:
                    if at and len(pairs) > 1 and not module.takes(ladder, rung, at):
                        continue
                    say(f"dissecting {ladder.name}.{rung.name}")
                    with terminal.checked():
                        found.append(module.dissect(ladder, rung, at))
                    if not as_json:
                        source = ladder.folder / rung.sources[0]
                        out.print(dissection.dissection(found[-1], source), "")
        if record:
            recorded(out, module.save(found))
        if as_json:
            out.emit([module.as_json(d) for d in found])
    return GOOD


def debug(
    rung: Annotated[
        str,
        typer.Argument(
            metavar="OP.RUNG",
            help="A rung, as in sum.cuda_strided.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Annotated[
        str | None, typer.Option(help="A case's id; default: a small one that it takes.")
    ] = None,
) -> int:
    """Step through a rung, from its kernel's first line. Needs no GPU.

    Triton runs in its interpreter under pdb: `p x` shows a whole block of values; each program is
    stopped in. Numba runs in its simulator under pdb, in the first thread of the first block.
    PyTorch runs under pdb. CUDA C++ runs in the emulator under gdb, stopped in the first thread of
    the first block: threadIdx and blockIdx stand in any expression (break 20 if threadIdx.x == 5),
    `cuda threads` shows where the block's threads are, `cuda thread 3` looks at another one,
    `cuda go 3` runs until it comes here; `help cuda`.

    \b
    Examples:
      kernelwright debug sum.cuda_strided
      kernelwright debug softmax.triton_row --case 5x33-f32-dim=-1
    """
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
            metavar="[OP]",
            help="FAMILY/NAME, as in elementwise/scale; with --into a name alone.",
            show_default=False,
        ),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Instead: NAME.py, a spec to judge kernels by."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="The folder to put it in; default: its family in ops/ of this checkout."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Scaffold an operator: a folder that verifies as written, to be changed from there.

    \b
    Examples:
      kernelwright new elementwise/cube
      kernelwright new cube --into . && kernelwright verify ./cube
      kernelwright new --spec my_spec && kernelwright judge my_kernel.py:fn --as my_spec.py
    """
    if (op is None) == (spec is None):
        raise UsageError("OP, --spec: name an operator or a spec, one of the two")
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
