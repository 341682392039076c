"""Timing: how fast is a rung, or anybody's kernel, and beside what?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD

from .names import complete, known
from .options import Cases, Json, Quick, Record, printing, recorded, waiting


def bench(
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OP ...",
            help="Operators; softmax is the forward and the backward.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Cases = None,
    quick: Quick = False,
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
    with printing(as_json) as out:
        with waiting("getting ready", out) as say:
            from kernelwright.workbench import listing
            from kernelwright.workbench.bench import bench as module
            from kernelwright.workbench.records import records
            from kernelwright.workbench.scaffold import scaffold

            from .render import results, timings

            ladders = listing.named(scaffold.operators(ops))

            def on_case(ladder: Any, at: Any, result: Any) -> None:
                if record:  # case by case: one that is stopped keeps what it has
                    records.save(result.records, result.environment)
                if not as_json:
                    out.print(results.bench_case(ladder, at, result), "")

            result = module.bench(
                ladders, cases=case, quick=quick, peers=peers, on_case=on_case, on_step=say
            )
        if record:
            recorded(out, records.save(result.records, result.environment))
        if as_json:
            out.emit(results.bench_data(ladders, result))
        else:
            out.print(timings.summary(ladders, result, quick=quick))
    return result.exit_code


def tune(
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OP ...",
            help="Operators; softmax is the forward and the backward.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    quick: Quick = False,
    as_json: Json = False,
) -> int:
    """Search the rungs' configs on this GPU; write the table for its compute capability.

    Dispatch reads the table from the next process on. It goes into $KW_RECORDS/tuned, else into the
    user's data directory; in a checkout, and for an operator of your own, into the operator's
    folder. The command says where.

    \b
    Examples:
      kernelwright tune softmax
      kernelwright tune gelu.backward --quick
    """
    with printing(as_json) as out:
        with waiting("getting ready", out) as say:
            from kernelwright.dispatch.selection import tables_of
            from kernelwright.workbench import listing
            from kernelwright.workbench.bench import tune as module
            from kernelwright.workbench.scaffold import scaffold

            from .render import results

            found: list[Any] = []
            for ladder in listing.named(scaffold.operators(ops)):

                def on_case(case: Any, tried: Any, name: str = ladder.name) -> None:
                    say(f"{name} {case.id}: {len(tried)} rungs and configs tried")

                result = module.tune(ladder, quick=quick, on_case=on_case)
                found.append((result, result.write(tables_of(ladder))))
                if not as_json:
                    out.print(results.tuned(*found[-1]))
        if as_json:
            out.emit([{"table": path, "gain": r.gain, "result": r} for r, path in found])
    return GOOD


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
    case: Cases = None,
    quick: Quick = False,
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
    with printing(as_json) as out:
        with waiting("getting ready", out) as say:
            from kernelwright.workbench.compare import compare as module
            from kernelwright.workbench.compare import operands

            from .render import comparison

            def on_row(row: Any, doing: str) -> None:
                if row is None:
                    say(doing)
                elif not as_json:
                    out.print(comparison.row(row))

            pairs = operands.pairs(a, b, as_, op or ())
            result = module.compare(pairs, names=(a, b), cases=case, quick=quick, on_row=on_row)
        if as_json:
            out.emit(result.as_json())
        else:
            out.print(comparison.summary(result))
    return result.exit_code


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
    seed: Annotated[int | None, typer.Option(help="Input seed (default: random).")] = None,
    nondeterministic: Annotated[
        bool, typer.Option("--nondeterministic", help="Equal inputs may give other bits.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Strides that differ from PyTorch's and exceptions on inputs without elements "
            "are failures.",
        ),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Time few samples of one case.")] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds that importing the file, and each call, may take.")
    ] = 120.0,
    memory: Annotated[float, typer.Option(help="GiB of host memory that it may take.")] = 16.0,
    html: Annotated[Path | None, typer.Option(help="Write the verdict as a page too.")] = None,
    as_json: Json = False,
) -> int:
    """Is anybody's kernel right, how fast is it, and what binds it?

    A Python function over tensors, whatever is inside, or a CUDA C++ kernel with a launch file. It
    runs in a process of its own, with limits; this one makes the inputs, holds the reference and
    the clock, and compares. A kernel is arbitrary code: that keeps out accidents and cheating, not
    malice. Without a GPU: right or wrong, and what it compiles to; no times.

    Exit codes: 0 right, 1 wrong, 2 wrong usage, 3 inconclusive: it cannot be judged on this
    machine, or too few inputs ran.

    \b
    Examples:
      kernelwright judge my_kernel.py:my_softmax --as softmax
      kernelwright judge my_kernel.py:fwd --as softmax --backward bwd
      kernelwright judge my_kernel.py:my_norm --as my_spec.py --autograd --html verdict.html
      kernelwright judge my_kernel.cu:my_sum --as sum --launch launch.py
      kernelwright new --spec my_spec        writes a spec to start from
    """
    with printing(as_json) as out:
        with waiting(f"starting a process for {target}", out) as say:
            from kernelwright.workbench.judge import judge as module
            from kernelwright.workbench.judge.sandbox.sandbox import Limits

            from .render import verdicts

            if html:
                verdicts.writable(html)
            found = module.judge_all(
                target,
                as_,
                backward=backward,
                autograd=autograd,
                launch=launch,
                cases=case,
                seed=seed,
                deterministic=not nondeterministic,
                strict=strict,
                quick=quick,
                limits=Limits(call_s=timeout, memory=int(memory * 2**30)),
                say=say,
            )
        if html:
            verdicts.write(found, html)
        if as_json:
            out.emit([v.as_json() for v in found])
        else:
            for v in found:
                out.print(verdicts.verdict(v), "")
    return max(v.exit_code for v in found)
