"""Verifies a learner's version of a rung, in a separate process (started by `exercise.check`).

The learner's kernel replaces the rung's: the rung's module is imported a second time under another
name, with the learner's functions (or, for CUDA C++, the learner's file) in it. Everything else is
the rung's own: plan, configs, `supports`, and verify's checks on the operator's cases, the simplest
first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright import emulator, toolchain
from kernelwright.contract import H200, Case, CudaKernel, Ladder, Plan, Rung
from kernelwright.contract.compare import FACTOR, ULPS, ulp
from kernelwright.dispatch import plan_of, specs_of
from kernelwright.support.errors import NoSpace, ToolchainError
from kernelwright.support.words import are, counted
from kernelwright.toolchain import availability, nvrtc
from kernelwright.workbench.compare.compare import on_case
from kernelwright.workbench.compare.operands import of_rung
from kernelwright.workbench.verify.candidate import all_results, copy_of, map_tensors, result_names
from kernelwright.workbench.verify.checks import CHECKS, Check
from kernelwright.workbench.verify.coverage import of_each_dtype, thorough_cases
from kernelwright.workbench.verify.trial import Trial
from kernelwright.workbench.verify.verify import candidate, here, verify_case

from . import clues, files, watched

PATIENCE = 10.0  # seconds without progress, after which a kernel of an exercise is ended


@dataclass(frozen=True)
class Outcome:
    """The result of a check.

    Attributes:
        outcome: "right", "compiled" (it cannot be run here), "unfinished", "wrong" or "error".
        why: the first error.
        case: the simplest input that shows the error.
        where: which elements are wrong on that input, and by how much.
        findings: races, out-of-bounds accesses and so on, each with its line.
        clues: what the rung's text has and the learner's lacks, as possible causes.
        passed: cases that passed.
        unchecked: why the emulator's checks did not run.
        counts: the exercise's counters.
        counted_on: the input on which they were counted.
    """

    outcome: str
    why: str = ""
    case: str = ""
    where: str = ""
    findings: tuple[str, ...] = ()
    clues: tuple[str, ...] = ()
    passed: int = 0
    unchecked: str = ""
    counts: tuple[watched.Count, ...] = ()
    counted_on: str = ""


def substituted(of: files.Source, path: Path) -> tuple[Ladder, Rung]:
    """The exercise's ladder and rung, with the learner's kernel in place of the rung's."""
    toolchain.prepare(of.rung.backend)
    module, entry = of.rung.entry.split(":")
    folders = module.split(".")[:-1]
    stem = ".".join((*folders, f"_exercise_{of.file_name.replace('.', '_')}"))
    copy = _loaded(f"{of.ladder.package}.{stem}", of.ladder.module_of(of.rung))
    if of.is_cuda:
        setattr(copy, entry, _with_source(getattr(copy, entry), of.path, path.resolve()))
    else:
        theirs = _loaded(f"{of.ladder.package}.{stem}_of_learner", path)
        for name in files.names_given(of, path.read_text(encoding="utf-8")):
            setattr(copy, name, getattr(theirs, name))
    rung = replace(of.rung, entry=f"{stem}:{entry}")
    rungs = tuple(rung if r is of.rung else r for r in of.ladder.rungs)
    return replace(of.ladder, rungs=rungs), rung


def _loaded(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _with_source(plan: Callable[..., Plan], real: Path, theirs: Path) -> Callable[..., Plan]:
    """The plan function, with one .cu file replaced by another."""

    def planned(*args: Any, **specs: Any) -> Plan:
        real_plan = plan(*args, **specs)
        launches = tuple(
            replace(step, kernel=replace(step.kernel, source=theirs))
            if isinstance(step.kernel, CudaKernel) and step.kernel.source == real
            else step
            for step in real_plan.launches
        )
        return replace(real_plan, launches=launches)

    return planned


def check(
    of: files.Source,
    path: Path,
    *,
    before: Callable[[Case], None] = lambda case: None,
    cases: Callable[[Case], bool] = lambda case: True,
) -> Outcome:
    """Run the checks on a learner's file: numerics, the emulator's checks, the counters.

    Args:
        before: called before each case.
        cases: the cases to run.
    """
    text = path.read_text(encoding="utf-8")
    if why := files.unfinished(of, text):
        return Outcome("unfinished", why)
    try:
        ladder, rung = substituted(of, path)
        missing = availability.missing(rung.backend, here())
        if missing and rung.backend == "cuda":
            compiled = _compiled(ladder, rung)
            return Outcome("compiled", f"{compiled} kernels compile for {H200.arch}; {missing}")
    except NoSpace:
        raise
    except Exception as e:  # noqa: BLE001 - whatever a learner's file raises is the outcome
        return Outcome("error", _error_text(e, path))
    taken = [c for c in ladder.operator.cases if c.use == "verify" and cases(c)]
    outcome = verified(ladder, rung, sorted(taken, key=simplest_first), before)
    if outcome.outcome == "right" and here() == "cpu":
        before(taken[0])
        return _watched(of, ladder, rung, outcome)
    if outcome.outcome in ("wrong", "error"):
        return _explained(of, ladder, rung, outcome, path, text)
    return outcome


def verified(
    ladder: Ladder,
    rung: Rung,
    taken: list[Case],
    before: Callable[[Case], None] = lambda case: None,
) -> Outcome:
    """Numerics: the checks of `verify`, up to the first case that is not right."""
    passed, seen = 0, set[object]()
    for config, order in [*((c, 0) for c in rung.configs), *_orders(rung)]:
        further = config != rung.configs[0] or order
        for case in taken:
            if here() == "cpu" and not further and kinds(case) <= seen:
                continue
            if further and case not in _further(ladder):
                continue
            before(case)
            schedule = emulator.Schedule(seed=order, block_seed=order, patience=PATIENCE)
            with emulator.mode(schedule=schedule):
                outcome = verify_case(ladder, rung, config, case, _checks(ladder, case))
                where = _where(ladder, rung, config, case) if outcome.check == "value" else ""
            passed += outcome.outcome == "pass" and not order
            seen |= kinds(case) if outcome.outcome == "pass" else set()
            if outcome.outcome in ("wrong", "error"):
                why = f"{outcome.check}: {outcome.why}" if outcome.check else outcome.why
                why += f", with threads in another order (seed {order})" if order else ""
                return Outcome(outcome.outcome, why, case.id, where, passed=passed)
    if not passed:
        missing = availability.missing(rung.backend, here())
        return Outcome("error", f"nothing could run here: {missing or 'no case fits'}")
    return Outcome("right", passed=passed)


def kinds(case: Case) -> set[object]:
    """The kinds of cases of which this one is an example. Without a GPU a case takes long, and one
    that adds no kind to those before it is omitted."""
    each = (case.shape, case.params, case.layout, case.values, (case.dtype, case.numel > 32))
    return set(enumerate(each))


def _further(ladder: Ladder) -> tuple[Case, ...]:
    """The cases for further configs and for other thread orders."""
    return thorough_cases(ladder) if here() == "cuda" else of_each_dtype(ladder)


def _checks(ladder: Ladder, case: Case) -> tuple[Check, ...]:
    """The checks that a kernel can fail; the fake is the operator's. Without a GPU a call takes
    long, and the checks that repeat it run on one case per dtype."""
    again = here() == "cuda" or case in of_each_dtype(ladder)
    return tuple(c for c in CHECKS if c.name != "fake" and (again or not c.again))


def _explained(
    of: files.Source, ladder: Ladder, rung: Rung, outcome: Outcome, path: Path, text: str
) -> Outcome:
    """The outcome with the findings of the emulator's checks on the same input, or else with the
    line that raised and with possible causes from the text."""
    if outcome.why.startswith(BUILT):  # nothing could run
        return replace(outcome, why=outcome.why.splitlines()[0].split(": ", 1)[1], case="")
    case = next((c for c in ladder.operator.cases if c.id == outcome.case), None)
    if case and not of.is_cuda and outcome.outcome == "error":
        outcome = replace(outcome, why=f"{_raising_line(ladder, rung, case, path)}{outcome.why}")
    if case and here() == "cpu" and watched.missing(rung) is None:
        outcome = replace(outcome, findings=tuple(watched.findings(ladder, rung, case)))
    return outcome if outcome.findings else replace(outcome, clues=tuple(clues.clues_of(of, text)))


#: How the outcome of a kernel that a compiler rejects begins; the line and the reason follow.
BUILT = "CompileError: "


def _raising_line(ladder: Ladder, rung: Rung, case: Case, path: Path) -> str:
    """Where a Python kernel raises on a case; "" if it does not raise again."""
    trial = Trial(candidate(ladder, rung, rung.configs[0], here()), case, here())
    try:
        trial.candidate.call(*map_tensors(trial.expected().args, copy_of).values())
    except Exception as e:  # noqa: BLE001 - the first run's failure is the one that is reported
        return _at_line(e, path)
    return ""


def _watched(of: files.Source, ladder: Ladder, rung: Rung, outcome: Outcome) -> Outcome:
    """The emulator's checks and the counters, for a kernel whose results are right."""
    if missing := watched.missing(rung):
        return replace(outcome, unchecked=missing)
    cases = watched.cases(ladder, rung)
    for case in cases:
        findings = tuple(watched.findings(ladder, rung, case))
        if findings:
            why = "the results are right, but not reliably"
            return replace(outcome, outcome="wrong", why=why, case=case.id, findings=findings)
    if not of.exercise.targets:
        return outcome
    counts = watched.counted(ladder, rung, cases[0], of.exercise.targets)
    outcome = replace(outcome, counts=counts, counted_on=cases[0].id)
    if of.exercise.faulty and not all(c.met for c in counts):
        why = "the results are right, but a target is missed"
        return replace(outcome, outcome="wrong", why=why, case=cases[0].id)
    return outcome


def _orders(rung: Rung) -> list[tuple[dict[str, Any], int]]:
    """Configs and seeds for further runs of CUDA C++ on the CPU with threads and blocks in random
    orders: without a necessary barrier, the result may be right by luck in one order."""
    random = rung.backend == "cuda" and here() == "cpu"
    return [(rung.configs[0], seed) for seed in (1, 2, 3)] if random else []


def timed(of: files.Source, path: Path) -> list[dict[str, Any]]:
    """Time the rung (A) and the learner's version (B) alternately on this GPU, on the largest bench
    case of up to 2**28 elements that the rung supports."""
    ladder, rung = substituted(of, path)
    sides = of_rung("the rung", of.ladder, of.rung), of_rung("yours", ladder, rung)
    cases = [c for c in ladder.operator.cases if c.use == "bench" and c.numel <= 2**28]
    for case in sorted(cases, key=lambda c: -c.numel):
        row, _ = on_case(*sides, of.ladder, case, quick=False)
        if row.verdict != "untimed":
            return [asdict(row)]
    return []


def simplest_first(case: Case) -> tuple:
    """A sort key: ordinary values, then special ones; contiguous first; float32 first; by size."""
    return (
        case.values != "normal",
        case.layout != "contiguous",
        case.dtype != torch.float32,
        case.numel,
    )


def _compiled(ladder: Ladder, rung: Rung) -> int:
    """Compile the kernels of the thorough cases for an H200; returns how many."""
    kernels: set[CudaKernel] = set()
    for case in thorough_cases(ladder):
        op = ladder.operator
        specs, _ = op.normalise(specs_of(op.inputs(case, "cpu")))
        if rung.supports is None or rung.supports(H200, **specs) is None:
            steps = plan_of(ladder, rung, specs, config=rung.configs[0]).launches
            kernels |= {step.kernel for step in steps if isinstance(step.kernel, CudaKernel)}
    for kernel in kernels:
        nvrtc.compile(kernel, H200.arch)
    return len(kernels)


def _error_text(e: Exception, path: Path) -> str:
    """The text of an exception, with the learner's line if it has one."""
    if isinstance(e, SyntaxError):
        return f"line {e.lineno}: {e.msg}: {(e.text or '').strip()}"
    kind = "" if isinstance(e, ToolchainError) else f"{type(e).__name__}: "
    return f"{_at_line(e, path)}{kind}{e}"


def _at_line(e: BaseException | None, path: Path) -> str:
    """The innermost line of the learner's file in a traceback or its cause's, or ""."""
    at = ""
    while e:
        frames = traceback.extract_tb(e.__traceback__)
        lines = [f.lineno for f in frames if Path(f.filename) == path]
        at = f"line {lines[-1]}: " if lines else at
        e = e.__cause__
    return at


def _where(ladder: Ladder, rung: Rung, config: dict[str, Any], case: Case) -> str:
    """Which elements of the first wrong result are wrong, and the first of them; "" if a second run
    does not show the same error."""
    trial = Trial(candidate(ladder, rung, config, here()), case, here())
    want = trial.expected()
    args = map_tensors(want.args, copy_of)
    try:
        results = all_results(ladder.operator, args, trial.candidate.call(*args.values()))
    except Exception:  # noqa: BLE001 - the first run's failure is the one that is reported
        return ""
    names = result_names(ladder.operator, args)
    for i, (name, got) in enumerate(zip(names, results, strict=True)):
        place = located(got, want.reference[i], want.native[i], want.noise[i])
        if place:
            return f"{name}: {place}"
    return ""


def located(got, reference, native, noise=None) -> str:
    """A description of the elements whose error exceeds the acceptance rule's limit."""
    if got.shape != reference.shape or not got.dtype.is_floating_point:
        return ""
    unit = ulp(reference, got.dtype)
    unit = unit if noise is None else torch.maximum(unit, noise)
    theirs = ((native.double() - reference).abs() / unit).nan_to_num(0, 0, 0)
    allowed = (FACTOR * theirs.max() + ULPS) * unit if theirs.numel() else unit
    same = (got.double() - reference).abs() <= allowed
    same |= (got == native) | (got.isnan() & native.isnan())
    bad = (~same).nonzero()
    if not len(bad):
        return ""
    first = tuple(bad[0].tolist())
    at = f"[{', '.join(map(str, first))}]" if first else ""
    of = counted(got.numel(), "element")
    said = f"{len(bad)} of {of} {are(len(bad))} wrong; the first{' is ' + at if at else ''}: "
    said += f"{got[first].item():.6g}, should be {reference[first].item():.6g}"
    low, high = bad.amin(0).tolist(), bad.amax(0).tolist()
    within = [
        f"index {d} {a}" if a == b else f"index {d} {a} to {b}"
        for d, (a, b, n) in enumerate(zip(low, high, got.shape, strict=True))
        if b - a + 1 < n
    ]
    return f"{said}; all of them at {', '.join(within)}" if within and len(bad) > 1 else said


def _main() -> None:
    """The process: reads a request from standard input; writes one line per case and, last, the
    outcome to standard output. What the learner's file prints is redirected to standard error."""
    from .exercise import named

    request = json.load(sys.stdin)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(what: dict[str, Any]) -> None:
        print(json.dumps(what), file=answers, flush=True)

    of = files.source(named(request["name"]))
    path = Path(request["path"])
    try:
        outcome = check(of, path, before=lambda c: say({"case": c.id}))
    except NoSpace as e:
        say({"no space": str(e)})
        return
    on_gpu = outcome.outcome == "right" and here() == "cuda"
    forgiving = here() == "cuda" and of.rung.backend in ("cuda", "numba")
    times = timed(of, path) if on_gpu else []
    say({**asdict(outcome), "timed": times, "forgiving": forgiving})


if __name__ == "__main__":
    _main()
