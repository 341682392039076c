"""The command line: argument parsing only. What it calls is in workbench/."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kernelwright.workbench.terminal import Output

GOOD, USAGE = 0, 2

app = typer.Typer(
    name="kernelwright",
    help="GPU operators for PyTorch, every one a ladder: verify it, time it, see why it is fast.",
    epilog="Start with: kernelwright list. Exit codes: 0 good, 1 a check failed, 2 wrong usage, "
    "3 nothing could run.",
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Record = Annotated[
    bool, typer.Option("--record", help="Keep the outcome in the records (or in $KW_RECORDS).")
]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code. A user's mistake is one line, no traceback."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    # Typer's usage errors, by the base class of the one that it exports.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=arguments, standalone_mode=False)
    except usage_error as e:
        code = _say(USAGE, e.format_message(), arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _say(130, "stopped", arguments)
    except BrokenPipeError:  # the reader of a pipe has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = GOOD
    except Exception as e:
        from kernelwright.workbench import terminal

        known = terminal.exit_code_of(e)
        if known is None:
            raise
        code = _say(known, str(e), arguments)
    sys.exit(code or GOOD)


def _say(code: int, message: str, arguments: list[str]) -> int:
    print(f"kernelwright: {message}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message, "exit": code}))
    return code


def _output(as_json: bool) -> AbstractContextManager[Output]:
    from kernelwright.workbench import terminal

    return terminal.output(as_json)


def _waiting(what: str, out: Output) -> AbstractContextManager[Callable[[str], None]]:
    from kernelwright.workbench import terminal

    return terminal.waiting(what, out)


def _mistake(what: str) -> Exception:
    from kernelwright.workbench import terminal

    return terminal.Mistake(what)


@app.command("list")
def list_(as_json: Json = False) -> int:
    """Operators, their rungs in order, what works here and which rung serves.

    \b
    Examples:
      kernelwright list
      kernelwright list --json | jq '.operators[].name'
    """
    with _output(as_json) as out:
        with _waiting("reading the ladders", out):
            from kernelwright.workbench import listing, show

            found = listing.listing()
        if as_json:
            out.emit(found)
        else:
            out.print(show.listing(found))
    return GOOD


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OP | OP.RUNG ...]", help="None: everything.", show_default=False),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="races|bounds|init|divergence|all",
            help="Watch every access to memory and every barrier of GPU rungs instead of comparing "
            "results. May be repeated.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="With --check on a CPU: the one order of threads to run; a finding names its own.",
            show_default=False,
        ),
    ] = None,
    record: Record = False,
    as_json: Json = False,
) -> int:
    """Prove rungs right against float64, adversarial inputs included.

    An error may be twice what PyTorch's own operator makes, plus 2 ulp, or plus float32's
    rounding noise where terms cancel. Without a GPU, Triton
    rungs are interpreted, Numba rungs simulated and CUDA C++ rungs emulated.

    --check asks another question: do threads race, touch memory that is not theirs, read what
    nobody wrote, miss each other at barriers? On a GPU compute-sanitizer answers; without one the
    emulator of CUDA C++ does, with the rung's line and both threads (docs/emulator.md).

    \b
    Examples:
      kernelwright verify
      kernelwright verify softmax
      kernelwright verify softmax.triton_row --json
      kernelwright verify sum --check races
      kernelwright verify sum.cuda_last_warp --check all --seed 7
    """
    if check or seed is not None:
        return _watch(names or (), check or (), seed, record, as_json)
    with _output(as_json) as out:
        from kernelwright.workbench import scaffold, show
        from kernelwright.workbench import verify as module

        with _waiting("verifying", out):
            shown = None if as_json else lambda row: out.print(show.verified(row))
            result = module.verify(scaffold.operators(names or ()), on_result=shown)
        if record:
            from kernelwright.machine import here, slug
            from kernelwright.toolchain.settings import settings
            from kernelwright.workbench import bench as timing
            from kernelwright.workbench import ledger as proofs
            from kernelwright.workbench import records

            run = timing.new_run()
            records.save(result.records(slug(here()), run), timing.environment(run, here()))
            proofs.write_proven(settings().records)
        if as_json:
            out.emit({"ok": result.ok, "ran": result.ran, "rows": result.rows})
        else:
            out.print(show.verify_summary(result))
    return result.exit_code


def _watch(
    names: Iterable[str], check: Iterable[str], seed: int | None, record: bool, as_json: bool
) -> int:
    """verify --check."""
    with _output(as_json) as out:
        from kernelwright.workbench import scaffold, show_watching, terminal, watching

        with terminal.checked():
            checks = watching.checks_of(check)
            seeds = watching.seeds_of(seed, checks)
        with _waiting("watching", out):
            shown = None if as_json else lambda rows: out.print(show_watching.watched(rows))
            found = watching.watch(scaffold.operators(names), checks, seeds, on_result=shown)
        if record:
            from kernelwright.machine import here, slug
            from kernelwright.workbench import bench as timing
            from kernelwright.workbench import records

            run = timing.new_run()
            records.save(found.records(slug(here()), run), timing.environment(run, here()))
        if as_json:
            out.emit({"ok": found.exit_code == 0, "seeds": seeds, "rows": found.rows})
        else:
            out.print(show_watching.summary(found))
    return found.exit_code


@app.command()
def env(
    roofs: Annotated[bool, typer.Option(help="Measure the machine's roofs, in about 10 s.")] = True,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, in about 3 s.")] = False,
    record: Record = False,
    as_json: Json = False,
) -> int:
    """What this machine is, which backends work on it, and its measured roofs.

    \b
    Examples:
      kernelwright env
      kernelwright env --no-roofs --json
    """
    with _output(as_json) as out:
        with _waiting("looking at the machine", out) as say:
            from kernelwright.workbench import env as module
            from kernelwright.workbench import show

            said: Callable[[Any], None] = lambda r: say(f"measuring {r.rung} {r.case}")  # noqa: E731
            found = module.env(roofs=roofs, quick=quick, on_roof=said)
        if record:
            from kernelwright.workbench import records

            records.save(found.roofs, found.environment)
        if as_json:
            out.emit(show.env_data(found))
        else:
            out.print(show.env(found))
    return GOOD


@app.command()
def bench(
    ops: Annotated[list[str], typer.Argument(metavar="OP ...")],
    case: Annotated[
        list[str] | None,
        typer.Option(help="A case's id, or words of its label (gpt-2). Repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few samples of each.")] = False,
    peers: Annotated[bool, typer.Option("--peers", help="Other libraries too.")] = False,
    record: Record = False,
    as_json: Json = False,
) -> int:
    """Time ladders beside torch, torch.compile, the peers and the machine's roof, in one run.

    A rung is proven right on the case before it is timed. Cold: operands in DRAM; warm: in L2;
    host: what a call costs the CPU. Rungs that need a GPU stand, without one, beside their record.

    \b
    Examples:
      kernelwright bench softmax
      kernelwright bench softmax gelu --quick --peers
      kernelwright bench softmax.backward --case "llama 3" --record
    """
    with _output(as_json) as out:
        with _waiting("getting ready", out) as say:
            from kernelwright.workbench import bench as module
            from kernelwright.workbench import listing, records, scaffold, show

            ladders = listing.named(scaffold.operators(ops))

            def on_case(ladder: Any, at: Any, result: Any) -> None:
                if result is None:
                    say(f"timing {ladder.name} {at.id}")
                elif not as_json:
                    out.print(show.bench_case(ladder, at, result), "")

            result = module.bench(ladders, cases=case, quick=quick, peers=peers, on_case=on_case)
        if record:
            records.save(result.records, result.environment)
        if as_json:
            out.emit(show.bench_data(ladders, result))
    return result.exit_code


@app.command()
def tune(
    ops: Annotated[list[str], typer.Argument(metavar="OP ...")],
    quick: Annotated[bool, typer.Option("--quick", help="A few samples of each.")] = False,
    as_json: Json = False,
) -> int:
    """Search the rungs' configs on this GPU; write the table for its compute capability.

    \b
    Examples:
      kernelwright tune softmax
      kernelwright tune gelu.backward --quick
    """
    with _output(as_json) as out:
        with _waiting("getting ready", out) as say:
            from kernelwright.workbench import listing, scaffold, show
            from kernelwright.workbench import tune as module

            found: list[Any] = []
            for ladder in listing.named(scaffold.operators(ops)):

                def on_case(case: Any, tried: Any, name: str = ladder.name) -> None:
                    say(f"{name} {case.id}: {len(tried)} rungs and configs tried")

                result = module.tune(ladder, quick=quick, on_case=on_case)
                found.append((result, result.write(ladder.folder)))
                if not as_json:
                    out.print(show.tuned(*found[-1]))
        if as_json:
            out.emit([{"table": path, "gain": r.gain, "result": r} for r, path in found])
    return GOOD


@app.command()
def inspect(
    rung: Annotated[str, typer.Argument(metavar="OP.RUNG")],
    arch: Annotated[str, typer.Option(help="sm_80, sm_90a, sm_100a, ...")] = "sm_90a",
    case: Annotated[str | None, typer.Option(help="A case's id; default: the first.")] = None,
    ptx: Annotated[bool, typer.Option("--ptx", help="Print the PTX.")] = False,
    sass: Annotated[bool, typer.Option("--sass", help="Print the machine code.")] = False,
    ttgir: Annotated[bool, typer.Option("--ttgir", help="Print Triton's GPU IR.")] = False,
    as_json: Json = False,
) -> int:
    """What a rung compiles to: registers, spills, occupancy, instruction mix. Needs no GPU.

    \b
    Examples:
      kernelwright inspect softmax.triton_row
      kernelwright inspect gelu.cuda_vec16 --arch sm_80 --sass | less
    """
    with _output(as_json) as out:
        with _waiting(f"compiling {rung} for {arch}", out):
            from kernelwright.workbench import inspect as module
            from kernelwright.workbench import listing, show, terminal

            ladder, chosen = listing.rung_named(rung)
            at = listing.case_named(ladder, case) if case else None
            with terminal.checked():
                found = module.inspect(ladder, chosen.name, at, arch)
        texts = [k for k, on in (("ptx", ptx), ("sass", sass), ("ttgir", ttgir)) if on]
        if as_json:
            out.emit([i.as_json(texts=bool(texts)) for i in found])
        elif texts:
            for i in found:
                for kind in texts:
                    out.print(getattr(i, kind) or f"({i.kernel} has no {kind})", markup=False)
        else:
            for i in found:
                out.print(show.inspection(i), "")
    return GOOD


@app.command()
def dissect(
    rungs: Annotated[list[str], typer.Argument(metavar="OP.RUNG ...")],
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
    with _output(as_json) as out:
        with _waiting("getting ready", out) as say:
            from kernelwright.workbench import dissect as module
            from kernelwright.workbench import listing, show_dissect, terminal, verify

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
                        out.print(show_dissect.dissection(found[-1], source), "")
        if record:
            module.save(found)
        if as_json:
            out.emit([module.as_json(d) for d in found])
    return GOOD


@app.command()
def debug(
    rung: Annotated[str, typer.Argument(metavar="OP.RUNG")],
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
    from kernelwright.workbench import debug as module
    from kernelwright.workbench import listing, terminal

    ladder, chosen = listing.rung_named(rung)
    with terminal.checked():
        at = listing.case_named(ladder, case) if case else module.small_case(ladder, chosen)
        module.session(ladder, chosen, at)
    return GOOD


@app.command()
def ledger(
    check: Annotated[
        bool, typer.Option("--check", help="Fail where a default would be unproven.")
    ] = False,
    as_json: Json = False,
) -> int:
    """What is proven on which GPU, and what is not.

    \b
    Examples:
      kernelwright ledger
      kernelwright ledger --check
    """
    with _output(as_json) as out:
        with _waiting("reading the records", out):
            from kernelwright.workbench import ledger as module
            from kernelwright.workbench import show

            found = module.ledger()
        if as_json:
            out.emit(found)
        else:
            out.print(show.ledger(found))
    return found.exit_code if check else GOOD


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="What was.")],
    b: Annotated[str, typer.Argument(metavar="B", help="What is: the verdict is about B.")],
    as_: Annotated[
        str | None, typer.Option("--as", metavar="OP", help="What a function computes.")
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(help="Of two whole commits, this operator only. Repeatable."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="A case's id, or words of its label (gpt-2). Repeatable."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few samples of each.")] = False,
    as_json: Json = False,
) -> int:
    """Is B faster than A? Two rungs, functions or commits, timed in turns, with a verdict.

    A and B are OP.RUNG, OP (the rung that serves), either @COMMIT, FILE.py:FUNCTION, or @COMMIT
    alone for every operator that differs ("." is this checkout). Both are proven right on a case
    before they are timed; a difference below twice what A differs from itself is "same". Without
    a GPU, PyTorch is timed on the CPU, and kernels are compiled and set side by side.
    The Python of both sides runs in this process: what you do not trust is for `judge`.

    Exit codes: 0 same or faster on every case, 1 slower on one, 2 wrong usage, 3 nothing could be
    timed, 4 none is slower but one is ambiguous, 5 a side is wrong or fails on a case.

    \b
    Examples:
      kernelwright compare softmax.cuda_warp softmax.triton_row --quick
      kernelwright compare softmax.native my_kernels.py:fast_softmax
      kernelwright compare softmax.cuda_warp@HEAD~3 softmax.cuda_warp
      kernelwright compare @origin/main . --json
    """
    with _output(as_json) as out:
        with _waiting("getting ready", out) as say:
            from kernelwright.workbench import compare as module
            from kernelwright.workbench import show_compare, sides

            def on_row(row: Any, doing: str) -> None:
                if row is None:
                    say(doing)
                elif not as_json:
                    out.print(show_compare.row(row))

            pairs = sides.pairs(a, b, as_, op or ())
            result = module.compare(pairs, names=(a, b), cases=case, quick=quick, on_row=on_row)
        if as_json:
            out.emit(result.as_json())
        else:
            out.print(show_compare.summary(result))
    return result.exit_code


@app.command()
def judge(
    target: Annotated[
        str, typer.Argument(metavar="FILE.py:FUNCTION | FILE.cu:KERNEL", help="What to judge.")
    ],
    as_: Annotated[
        str, typer.Option("--as", metavar="OP | SPEC.py", help="What it claims to compute.")
    ],
    backward: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="Its backward; judged as OP.backward."),
    ] = None,
    autograd: Annotated[
        bool, typer.Option("--autograd", help="The gradients that autograd finds through it too.")
    ] = False,
    launch: Annotated[
        Path | None, typer.Option(help="How a .cu is launched: grid, block, arguments.")
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="A case's id. Repeatable.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of all values; by default one that nobody can foresee.")
    ] = None,
    nondeterministic: Annotated[
        bool, typer.Option("--nondeterministic", help="Equal inputs may give other bits.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Time few samples of one case.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds that one call may take.")] = 120.0,
    memory: Annotated[float, typer.Option(help="GiB of host memory that it may take.")] = 16.0,
    html: Annotated[Path | None, typer.Option(help="Write the verdict as a page too.")] = None,
    as_json: Json = False,
) -> int:
    """Is anybody's kernel right, how fast is it, and what binds it?

    A Python function over tensors, whatever is inside, or a CUDA C++ kernel with a launch file. It
    runs in a process of its own, with limits; this one makes the inputs, holds the reference and
    the clock, and compares. A kernel is arbitrary code: that keeps out accidents and cheating, not
    malice. Without a GPU: right or wrong, and what it compiles to; no times.

    Exit codes: 0 right, 1 wrong, 2 wrong usage, 3 it took no input.

    \b
    Examples:
      kernelwright judge my_kernel.py:my_softmax --as softmax
      kernelwright judge my_kernel.py:fwd --as softmax --backward bwd
      kernelwright judge my_kernel.py:my_norm --as my_spec.py --autograd --html verdict.html
      kernelwright judge my_kernel.cu:my_sum --as sum --launch launch.py
      kernelwright new --spec my_spec        writes a spec to start from
    """
    with _output(as_json) as out:
        with _waiting(f"starting a process for {target}", out) as say:
            from kernelwright.workbench import judge as module
            from kernelwright.workbench import show_judge
            from kernelwright.workbench.sandbox import Limits

            found = module.judge_all(
                target,
                as_,
                backward=backward,
                autograd=autograd,
                launch=launch,
                cases=case,
                seed=seed,
                deterministic=not nondeterministic,
                quick=quick,
                limits=Limits(call_s=timeout, memory=int(memory * 2**30)),
                say=say,
            )
        if html:
            show_judge.write(found, html)
        if as_json:
            out.emit([v.as_json() for v in found])
        else:
            for v in found:
                out.print(show_judge.verdict(v), "")
    return max(v.exit_code for v in found)


@app.command()
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
        raise _mistake("OP.RUNG: name the exercise (kernelwright exercise lists them)")
    if check and solution:
        raise _mistake("--check, --solution: one of them at a time")
    with _output(as_json) as out:
        with _waiting("reading the exercises", out) as say:
            from kernelwright.workbench import exercise as module
            from kernelwright.workbench import show_exercise as show

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


@app.command()
def report(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> int:
    """One self-contained HTML page from the records: ladders, rooflines, sources, diffs.

    \b
    Examples:
      kernelwright report
      kernelwright report -o /tmp/ladders.html
    """
    if not output.parent.is_dir():
        raise _mistake(f"-o: there is no folder {output.parent}")
    with _output(as_json) as out:
        with _waiting("drawing the report", out):
            import kernelwright.ops  # noqa: F401
            from kernelwright.workbench import report as module

            size = module.write(output)
        if as_json:
            out.emit({"file": str(output), "bytes": size})
        else:
            out.print(f"{output}: {size / 1e6:.1f} MB, opens offline in any browser")
    return GOOD


@app.command()
def new(
    op: Annotated[
        str | None,
        typer.Argument(metavar="[OP]", help="A Python name in lower case.", show_default=False),
    ] = None,
    spec: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Instead: NAME.py, a spec to judge kernels by."),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="The folder to put it in; default: ops/ of this checkout."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Scaffold an operator: a folder that verifies as written, to be changed from there.

    \b
    Examples:
      kernelwright new squared_relu
      kernelwright new squared_relu --into . && kernelwright verify ./squared_relu
      kernelwright new --spec my_spec && kernelwright judge my_kernel.py:fn --as my_spec.py
    """
    if (op is None) == (spec is None):
        raise _mistake("OP, --spec: name an operator or a spec, one of the two")
    with _output(as_json) as out:
        from kernelwright.workbench import scaffold

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
            name = written[0].parent.resolve() if into else op
            out.print(f"next: kernelwright verify {name}")
    return GOOD


if __name__ == "__main__":
    main()
