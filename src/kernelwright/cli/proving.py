"""Commands that verify rungs and show on which GPU each has been proven."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from kernelwright.support.errors import GOOD

from . import own_kernels
from .names import complete, known
from .options import Json, Record, Wide, printing, recorded, waiting


def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="OP | OP.RUNG | FILE.cu:KERNEL",
            help="Operators and rungs (default: all). With --check, a kernel of a file.",
            show_default=False,
            callback=known,
            autocompletion=complete,
        ),
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option(
            "--check",
            metavar="races|bounds|init|divergence|all",
            help="Check every memory access and barrier of GPU rungs instead of comparing results. "
            "Repeatable.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            help="With --check on a CPU: run only the thread schedule of this seed. Each finding "
            "names its seed.",
            show_default=False,
        ),
    ] = None,
    launch: own_kernels.Launch = None,
    record: Record = False,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Verify rungs against a float64 reference implementation.

    The inputs are ordinary and adversarial: empty and very large tensors, NaN, infinities, strides.

    The error allowed is twice that of PyTorch's own operator plus 2 ulp, or, where terms cancel,
    plus float32's rounding noise. Without a GPU, Triton rungs are interpreted, Numba rungs
    simulated and CUDA C++ rungs emulated.

    --check looks for data races, out-of-bounds accesses, uninitialized reads and divergent
    barriers instead. On a GPU it runs compute-sanitizer; without one it runs the CUDA C++ emulator,
    which reports the line in the rung and both threads (docs: "CUDA C++ on a CPU").

    \b
    Examples:
      kernelwright verify
      kernelwright verify softmax
      kernelwright verify softmax.triton_row --json
      kernelwright verify sum --check races
      kernelwright verify sum.cuda_last_warp --check all --seed 7
      kernelwright verify mine.cu:my_sum --launch launch.py --check all
    """
    kernel = own_kernels.named(names or (), launch)
    if kernel:
        return own_kernels.check(kernel, launch, check or (), seed, as_json)
    if check or seed is not None:
        return _watch(names or (), check or (), seed, record, wide, as_json)
    with printing(as_json, wide) as out:
        from kernelwright.workbench.scaffold import scaffold
        from kernelwright.workbench.verify import verify as module

        from .render import verification

        with waiting("verifying", out):
            chosen = scaffold.operators(names or ())
            stream = verification.verifying(module.chosen(chosen))
            shown = None if as_json else lambda row: out.print(verification.verified(stream, row))
            result = module.verify(chosen, on_result=shown)
        if record:
            from kernelwright.machine import here, slug
            from kernelwright.workbench.bench import bench as timing
            from kernelwright.workbench.records import ledger as proofs
            from kernelwright.workbench.records import records

            run = timing.new_run()
            environment = timing.environment(run, here())
            recorded(out, records.save(result.records(slug(here()), run), environment))
            proofs.write_proven()
        if as_json:
            out.emit({"ok": result.ok, "ran": result.ran, "rows": result.rows})
        else:
            out.print(verification.verify_summary(result))
    return result.exit_code


def _watch(
    names: Iterable[str],
    check: Iterable[str],
    seed: int | None,
    record: bool,
    wide: bool,
    as_json: bool,
) -> int:
    """verify --check."""
    with printing(as_json, wide) as out:
        from kernelwright.emulator.checks import checks_of
        from kernelwright.workbench.sanitize import report
        from kernelwright.workbench.scaffold import scaffold
        from kernelwright.workbench.verify import verify as verify_

        from .render import findings, terminal

        with terminal.checked():
            checks = checks_of(check)
            seeds = report.seeds_of(seed, checks)
        with waiting("checking", out):
            chosen = scaffold.operators(names)
            stream = findings.watching(verify_.chosen(chosen), checks)
            shown = None if as_json else lambda rows: out.print(findings.watched(stream, rows))
            watched = report.watch(chosen, checks, seeds, on_result=shown)
        if record:
            from kernelwright.machine import here, slug
            from kernelwright.workbench.bench import bench as timing
            from kernelwright.workbench.records import records

            run = timing.new_run()
            environment = timing.environment(run, here())
            recorded(out, records.save(watched.records(slug(here()), run), environment))
        if as_json:
            out.emit({"ok": watched.exit_code == GOOD, "seeds": seeds, "rows": watched.rows})
        else:
            out.print(findings.summary(watched))
    return watched.exit_code


def ledger(
    check: Annotated[
        bool,
        typer.Option("--check", help="Fail if an unproven rung could be dispatched by default."),
    ] = False,
    merge: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="First merge records made on another machine (its $KW_RECORDS). Records of other "
            "versions of the sources are dropped. Repeatable.",
            show_default=False,
        ),
    ] = None,
    wide: Wide = False,
    as_json: Json = False,
) -> int:
    """Show which rungs are proven, and on which GPU.

    A rung is proven on a GPU if its current source has passed verification there. Only proven
    rungs are dispatched by default.

    \b
    Examples:
      kernelwright ledger
      kernelwright ledger --check
      kernelwright ledger --merge from-the-gpu/records
    """
    with printing(as_json, wide) as out:
        with waiting("reading the records", out):
            from kernelwright.workbench.records import ledger as module
            from kernelwright.workbench.records import merge as merging

            from .render import results, terminal

            with terminal.checked():
                merged = merging.merge(merge) if merge else None
            account = module.ledger()
        if as_json:
            out.emit(account)
        else:
            out.print(results.ledger(account))
            if merged:
                out.print(results.merged(merged))
    return account.exit_code if check else GOOD
