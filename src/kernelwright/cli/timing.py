"""Commands that time rungs and other kernels, and compare them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelwright.support.errors import GOOD, UsageError

from .names import complete, known
from .options import Cases, Json, Quick, Record, Wide, printing, recorded, waiting, writable


def bench(
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OP",
            help="Operators; softmax means both the forward and the backward.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    case: Cases = None,
    quick: Quick = False,
    peers: Annotated[
        bool,
        typer.Option("--peers", help="Also time other installed libraries, for example Liger."),
    ] = False,
    record: Record = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the report of all records, including those of this run.",
            show_default=False,
        ),
    ] = None,
    wide: Wide = False,
    sample: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Time N sampled shapes of each operator instead of its cases."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the sampled shapes.")] = 0,
    as_json: Json = False,
) -> int:
    """Benchmark the rungs of operators against PyTorch.

    The baselines are PyTorch, torch.compile, other libraries (--peers) and the measured roofs.

    A rung is timed on a case only after its result on that case was verified. Cold: operands in
    DRAM; warm: operands in L2; host: CPU time of a call. Without a GPU, the times of GPU rungs are
    those of the shipped records.

    --sample times random shapes instead: those of real models, odd ones and others. It reports
    how much slower the dispatched rung is than the best peer and than the best rung and config,
    worst first. Without a GPU, the rungs that an H200 would dispatch are verified on these shapes.

    \b
    Examples:
      kernelwright bench softmax
      kernelwright bench softmax gelu --quick --peers
      kernelwright bench softmax.backward --case "llama 3" --record
      kernelwright bench gelu --quick --html report.html
      kernelwright bench layer_norm --sample 20 --seed 7 --peers
    """
    if sample is not None:
        if case or record or html:
            raise UsageError(
                "--sample: not with --case, --record or --html, because its shapes are random"
            )
        return _sampled(ops, sample, seed, quick, peers, wide, as_json)
    if html:
        writable(html)
    began = time.monotonic()
    with printing(as_json, wide) as out:
        with waiting("preparing", out) as say:
            from kernelwright.workbench import listing
            from kernelwright.workbench.bench import bench as module
            from kernelwright.workbench.records import records
            from kernelwright.workbench.scaffold import scaffold

            from .render import results, timings

            ladders = listing.named(scaffold.operators(ops))

            def on_case(ladder: Any, at: Any, result: Any) -> None:
                if record:  # case by case, so that an interrupted run keeps its results
                    records.save(result.records, result.environment)
                if not as_json:
                    out.print(results.bench_case(ladder, at, result), "")

            result = module.bench(
                ladders, cases=case, quick=quick, peers=peers, on_case=on_case, on_step=say
            )
        if record:
            recorded(out, records.save(result.records, result.environment))
        if html:
            with waiting("drawing the report", out):
                from kernelwright.workbench.report import report

                report.write(html, [*records.load(), *([] if record else result.records)])
        if as_json:
            out.emit(results.bench_data(ladders, result))
        else:
            spent = time.monotonic() - began
            summary = timings.summary(
                ladders, result, quick=quick, cases=case, seconds=spent, page=html
            )
            out.print(summary)
    return result.exit_code


def _sampled(
    ops: list[str], count: int, seed: int, quick: bool, peers: bool, wide: bool, as_json: bool
) -> int:
    with printing(as_json, wide) as out:
        with waiting("preparing", out) as say:
            from kernelwright.workbench import listing
            from kernelwright.workbench.bench import regret as module
            from kernelwright.workbench.scaffold import scaffold

            from .render import regret

            ladders = listing.named(scaffold.operators(ops))
            result = module.regret(
                ladders, count=count, seed=seed, quick=quick, peers=peers, on_step=say
            )
        if as_json:
            out.emit(result.as_json())
        else:
            out.print(regret.report(result))
    return result.exit_code


def tune(
    ops: Annotated[
        list[str],
        typer.Argument(
            metavar="OP",
            help="Operators; softmax means both the forward and the backward.",
            callback=known,
            autocompletion=complete,
        ),
    ],
    quick: Quick = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Find the fastest rungs and configs on this GPU.

    The results are written as a table for the GPU's compute capability. Dispatch reads it when the
    next process starts. It is written to $KW_RECORDS/tuned or, if that is unset, to the user's data
    directory; in a checkout, and for your own operators, to the operator's folder. The command
    prints the location.

    \b
    Examples:
      kernelwright tune softmax
      kernelwright tune gelu.backward --quick
    """
    with printing(as_json, wide) as out:
        with waiting("preparing", out) as say:
            from kernelwright.dispatch.selection import tables_of
            from kernelwright.workbench import listing
            from kernelwright.workbench.bench import tune as module
            from kernelwright.workbench.scaffold import scaffold

            from .render import results

            tuned: list[Any] = []
            for ladder in listing.named(scaffold.operators(ops)):

                def on_case(case: Any, tried: Any, name: str = ladder.name) -> None:
                    say(f"{name} {case.id}: {len(tried)} rungs and configs tried")

                result = module.tune(ladder, quick=quick, on_case=on_case)
                tuned.append((result, result.write(tables_of(ladder))))
                if not as_json:
                    out.print(results.tuned(*tuned[-1]))
        if as_json:
            out.emit([{"table": path, "gain": r.gain, "result": r} for r, path in tuned])
    return GOOD


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="The baseline.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The candidate: the verdict is about B.")],
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="OP", help="The operator that a FILE.py:FUNCTION computes."),
    ] = None,
    op: Annotated[
        list[str] | None,
        typer.Option(help="When comparing whole commits: only this operator. Repeatable."),
    ] = None,
    case: Cases = None,
    quick: Quick = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Compare two rungs, functions or commits: is B faster than A?

    A and B are OP.RUNG, OP (the dispatched rung), either with @COMMIT, FILE.py:FUNCTION, or @COMMIT
    alone for every operator that differs ("." is this checkout). The two are launched alternately.
    Both are verified on a case before they are timed; a difference below twice the A/A noise is
    "same". Without a GPU, PyTorch is timed on the CPU, and kernels are compiled and their
    resources compared. The Python code of both runs in this process: use `judge` for code
    that you do not trust.

    Exit codes: 0 same or faster on every case, 1 slower on a case, 2 wrong usage, 3 nothing could
    be timed, 4 not slower on any case but ambiguous on at least one, 5 the results of A or B are
    wrong, or it fails, on a case.

    \b
    Examples:
      kernelwright compare softmax.cuda_warp softmax.triton_row --quick
      kernelwright compare softmax.native my_kernels.py:fast_softmax
      kernelwright compare softmax.cuda_warp@HEAD~3 softmax.cuda_warp
      kernelwright compare @origin/main . --json
    """
    with printing(as_json, wide) as out:
        with waiting("preparing", out) as say:
            from kernelwright.workbench.compare import compare as module
            from kernelwright.workbench.compare import operands

            from .render import comparison

            stream = comparison.rows()

            def on_row(row: Any, doing: str) -> None:
                if row is None:
                    say(doing)
                elif not as_json:
                    out.print(comparison.row(stream, row))

            pairs = operands.pairs(a, b, as_, op or ())
            result = module.compare(pairs, names=(a, b), cases=case, quick=quick, on_row=on_row)
        if as_json:
            out.emit(result.as_json())
        else:
            out.print(comparison.summary(result))
    return result.exit_code


def judge(
    target: Annotated[
        str,
        typer.Argument(metavar="FILE.py:FUNCTION | FILE.cu:KERNEL", help="The kernel to judge."),
    ],
    as_: Annotated[
        str,
        typer.Option("--as", metavar="OP | SPEC.py", help="The operator that it should compute."),
    ],
    backward: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="Its backward, judged as OP.backward."),
    ] = None,
    autograd: Annotated[
        bool,
        typer.Option("--autograd", help="Also judge the gradients that autograd computes with it."),
    ] = False,
    launch: Annotated[
        Path | None,
        typer.Option(help="For a .cu file: the Python file that gives grid, block and arguments."),
    ] = None,
    case: Annotated[list[str] | None, typer.Option(help="A case's id. Repeatable.")] = None,
    seed: Annotated[int | None, typer.Option(help="Input seed (default: random).")] = None,
    nondeterministic: Annotated[
        bool,
        typer.Option("--nondeterministic", help="Do not require bitwise equal repeated results."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Strides that differ from PyTorch's and exceptions on inputs without elements "
            "are failures.",
        ),
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Take only a few samples of one case.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Maximum seconds for importing the file, and for each call.")
    ] = 120.0,
    memory: Annotated[
        float, typer.Option(help="GiB of host memory that the kernel's process may use.")
    ] = 16.0,
    html: Annotated[
        Path | None, typer.Option(help="Also write the verdict as an HTML page.")
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Check your own kernel: is it correct, how fast, what limits it?

    It is a Python function of tensors (Triton, Numba, CuPy, load_inline, ...) or a CUDA C++
    kernel with a launch file. The kernel runs in a separate process with limits; this process makes
    the inputs, computes the reference, measures the time and compares. This guards against
    accidents and cheating, not against malicious code. Without a GPU, the verdict contains
    correctness and static properties of the compiled code, but no times.

    Exit codes: 0 correct, 1 wrong, 2 wrong usage, 3 inconclusive: it cannot be judged on this
    machine, or too few inputs ran.

    \b
    Examples:
      kernelwright judge my_kernel.py:my_softmax --as softmax
      kernelwright judge my_kernel.py:fwd --as softmax --backward bwd
      kernelwright judge my_kernel.py:my_norm --as my_spec.py --autograd
      kernelwright judge my_kernel.py:my_softmax --as softmax --html verdict.html
      kernelwright judge my_kernel.cu:my_sum --as sum --launch launch.py
      kernelwright new --spec my_spec        (writes a spec to start from)
    """
    with printing(as_json, wide) as out:
        with waiting(f"starting a process for {target}", out) as say:
            from kernelwright.workbench.judge import judge as module
            from kernelwright.workbench.judge.sandbox.sandbox import Limits

            from .render import verdicts

            if html:
                writable(html)
            judged = module.judge_all(
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
            verdicts.write(judged, html)
        if as_json:
            out.emit([v.as_json() for v in judged])
        else:
            for v in judged:
                out.print(verdicts.verdict(v), "")
    return max(v.exit_code for v in judged)
