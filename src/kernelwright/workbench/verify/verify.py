"""Verifies rungs: runs every operator, rung, config and case through the checks.

With a GPU, everything runs natively. Without one, PyTorch rungs run on the CPU, Triton rungs in the
interpreter, Numba rungs in the simulator, CUDA C++ rungs in the emulator; those that the emulator
cannot run are compiled. `coverage.skip` limits the cases, and the reasons for all omitted cases are
counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright import toolchain
from kernelwright.contract import Case, Config, Ladder, Operator, Rung
from kernelwright.contract.compare import Accuracy, Error, compare
from kernelwright.dispatch import (
    UnknownOperator,
    device_of,
    entry_of,
    ladders,
    launcher,
    source_hash,
    specs_of,
    unsupported,
)
from kernelwright.machine import gpu_memory, random_state
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG
from kernelwright.toolchain import availability, redzones
from kernelwright.workbench.records.records import Record

from . import cuda_kernels
from .candidate import Candidate, all_results, copy_of, map_tensors, result_names
from .checks import CHECKS, Check, graph_replay, rejection
from .coverage import skip, thorough, thorough_cases
from .large_tensors import differs, noise_of_rows
from .raised import in_folder
from .trial import Trial


@dataclass(frozen=True)
class Outcome:
    """One rung and config on one case. `outcome` is pass, wrong, error or skipped; `check` is the
    check that failed."""

    outcome: str
    case: Case
    check: str = ""
    why: str = ""
    verdict: Accuracy | None = None


@dataclass(frozen=True)
class Row:
    """One rung and config on every case.

    Attributes:
        outcome: pass, wrong, error, compiled (here, not run) or unsupported.
        why: the first failure, or the meaning of "compiled".
        passed: the number of cases that passed.
        failures: the cases that did not.
        skipped: the number of omitted cases, by reason.
        worst: the comparison that used most of its budget, and its case.
        seconds: wall-clock time.
    """

    operator: str
    rung: str
    backend: str
    config: Config
    hash: str
    outcome: str
    why: str = ""
    passed: int = 0
    failures: tuple[Outcome, ...] = ()
    skipped: dict[str, int] = field(default_factory=dict)
    worst: Accuracy | None = None
    worst_case: str = ""
    seconds: float = 0.0

    def record(self, machine: str, run: str) -> Record | None:
        """The row as a record of all cases; None if it was only compiled."""
        if self.outcome == "compiled":
            return None
        left_out = "".join(f", {n} {why}" for why, n in self.skipped.items())
        counts = f"{self.passed} cases passed{left_out}"
        return Record(
            self.operator,
            self.rung,
            "*",
            machine,
            run,
            self.outcome,
            config=self.config,
            hash=self.hash,
            why=counts if self.outcome == "pass" else f"{self.why}; {counts}",
            error=_numbers(self.worst and self.worst.error),
            budget=_numbers(self.worst and self.worst.budget),
        )


@dataclass(frozen=True)
class VerifyResult:
    """All rows, and the totals."""

    rows: tuple[Row, ...]

    @property
    def ran(self) -> int:
        """Rung x config x case triples that ran."""
        return sum(r.passed + len(r.failures) for r in self.rows)

    @property
    def ok(self) -> bool:
        """Whether something ran, and everything that ran passed."""
        return self.exit_code == GOOD

    @property
    def exit_code(self) -> int:
        """0 good, 1 a check failed, 3 nothing could run."""
        if any(r.outcome in ("wrong", "error") for r in self.rows):
            return WRONG
        return GOOD if self.ran else INCONCLUSIVE

    def records(self, machine: str, run: str) -> list[Record]:
        return [r for row in self.rows if (r := row.record(machine, run))]


@random_state.preserved()
def verify(
    selection: Iterable[str] = (), *, on_result: Callable[[Row], None] | None = None
) -> VerifyResult:
    """Verify operators or single rungs on this machine.

    Args:
        selection: "softmax" (forward and backward), "softmax.backward", "softmax.triton_row",
            "softmax.backward.triton_row"; none means everything.
        on_result: called with each row as soon as it is complete.

    Raises:
        UnknownOperator, UnknownRung: an unknown name; the message lists the known ones.
    """
    rows, pairs = [], chosen(selection)
    prepare(pairs)
    for ladder, rung in pairs:
        for config in rung.configs:
            rows.append(verify_rung(ladder, rung, config))
            if on_result:
                on_result(rows[-1])
    return VerifyResult(tuple(rows))


def prepare(pairs: Iterable[tuple[Ladder, Rung]]) -> None:
    """Set the kernel languages' modes before torch imports triton in another mode."""
    for backend in {rung.backend for _, rung in pairs}:
        if availability.missing(backend, here()) is None:
            toolchain.prepare(backend)


def chosen(selection: Iterable[str] = ()) -> list[tuple[Ladder, Rung]]:
    """The rungs selected by names, in the ladders' order, without duplicates."""
    everything = [(ladder, rung) for ladder in ladders() for rung in ladder.rungs]
    wanted = [pair for name in selection for pair in _named(name)]
    return [pair for pair in everything if pair in wanted] if wanted else everything


def _named(name: str) -> list[tuple[Ladder, Rung]]:
    known = {ladder.name: ladder for ladder in ladders()}
    family = [x for x in known.values() if x.name == name or x.name == f"{name}.backward"]
    if family:
        return [(ladder, rung) for ladder in family for rung in ladder.rungs]
    operator, _, rung = name.rpartition(".")
    if operator not in known:
        raise UnknownOperator(
            f"operator {operator or name!r}: there is no such operator; "
            f"there are {', '.join(known)}"
        )
    return [(known[operator], known[operator].rung(rung))]


def here() -> str:
    """The device that this machine verifies on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def verify_rung(ladder: Ladder, rung: Rung, config: Config) -> Row:
    """One rung and config on every case of its operator."""
    start = time.perf_counter()
    op, skipped, passed, failures, worst = ladder.operator, Counter(), 0, [], None
    for case in op.cases:
        outcome = verify_case(ladder, rung, config, case)
        if outcome.outcome == "skipped":
            skipped[outcome.why] += 1
        elif outcome.outcome == "pass":
            passed += 1
        else:
            failures.append(outcome)
        used = usage(outcome.verdict)
        if outcome.verdict and (worst is None or used > usage(worst.verdict)):
            worst = outcome
    why = ""
    if failures:
        first = failures[0]
        check = f"{first.check}: " if first.check else ""
        kind, why = first.outcome, f"{first.case.id}: {check}{first.why}"
    elif passed:
        kind = "pass"
    elif rung.backend == "cuda" and here() == "cpu":
        kind, why = cuda_kernels.compile_rung(ladder, rung, config)
    else:
        kind, why = "unsupported", next(iter(skipped), "no case")
    return Row(
        op.name,
        rung.name,
        rung.backend,
        config,
        source_hash(ladder, rung),
        kind,
        why,
        passed,
        tuple(failures),
        dict(skipped),
        worst.verdict if worst else None,
        worst.case.id if worst else "",
        time.perf_counter() - start,
    )


def verify_case(
    ladder: Ladder,
    rung: Rung,
    config: Config,
    case: Case,
    checks: tuple[Check, ...] = CHECKS,
    among: Callable[[Ladder, Rung], Iterable[tuple[Config, Case]]] = cuda_kernels.of_a_cpu,
) -> Outcome:
    """One rung and config on one case. `among`: configs and cases to build together for a CPU."""
    device = here()
    reason = skip(ladder, rung, config, case, device)
    if reason:
        return Outcome("skipped", case, why=reason)
    if case.use == "big":
        with gpu_memory.exclusive():
            return _verify_big(ladder, rung, config, case)
    trial = Trial(candidate(ladder, rung, config, device), case, device)
    try:
        args = trial.expected().args
        reason = unsupported(rung, _normalised(ladder, args), device_of(args))
        if reason is None and rung.backend in ("cuda", "triton") and device == "cpu":
            reason = cuda_kernels.beyond_a_cpu(ladder, rung, config, case)
        if reason:
            return Outcome("skipped", case, why=reason)
        if rung.backend == "cuda" and device == "cpu":
            why = cuda_kernels.refusal(ladder, rung, among)
            if why:
                return Outcome("error", case, why=why)
        if rung.syncs_host:
            checks = tuple(c for c in checks if c.run is not graph_replay)
        rejected = rejection(
            trial, thorough=thorough(ladder, rung, config, case, device), checks=checks
        )
    except Exception as e:  # noqa: BLE001 - whatever a rung raises is its outcome, and is shown
        return Outcome("error", case, why=in_folder(ladder, e))
    worst = max(trial.verdicts, key=usage, default=None)
    if rejected:
        return Outcome("wrong", case, *rejected, worst)
    return Outcome("pass", case, verdict=worst)


def _verify_big(ladder: Ladder, rung: Rung, config: Config, case: Case) -> Outcome:
    """Verify a case of more than 2**31 elements, which tests address arithmetic. A float64
    reference does not fit into memory as well, so a result is compared with PyTorch's own, unless
    the operator has a float64 result of few elements. The case is skipped if PyTorch's part needs
    more memory than other processes leave."""
    op = ladder.operator
    free = torch.cuda.mem_get_info()[0] / 2**30
    try:
        args = op.with_defaults(op.inputs(case, "cuda"))
        reason = unsupported(rung, _normalised(ladder, args), device_of(args))
        if reason:
            return Outcome("skipped", case, why=reason)
        theirs = map_tensors(args, copy_of) if op.mutated else args
        want = all_results(op, theirs, entry_of(ladder, ladder.rung("native"))(*theirs.values()))
        try:
            got = all_results(op, args, launcher(ladder, args, rung.name, config)(*args.values()))
            torch.cuda.synchronize()
        except torch.OutOfMemoryError as e:  # the rung's own
            return Outcome("error", case, why=in_folder(ladder, e))
        why = _difference(op, args, got, want)
    except torch.OutOfMemoryError:
        why = f"needs more than {free:.0f} GiB of free GPU memory"
        return Outcome("skipped", case, why=why)
    except Exception as e:  # noqa: BLE001 - whatever a rung raises is its outcome, and is shown
        return Outcome("error", case, why=in_folder(ladder, e))
    return Outcome("wrong", case, "value", why) if why else Outcome("pass", case)


def _difference(
    op: Operator,
    args: dict[str, Any],
    got: tuple[torch.Tensor, ...],
    want: tuple[torch.Tensor, ...],
) -> str | None:
    """Which result is wrong, and why."""
    exact = op.large(**args) if op.large else {}
    for i, (name, mine, theirs) in enumerate(zip(result_names(op, args), got, want, strict=True)):
        if name in exact:
            compared = compare(mine, theirs, exact[name][0], noise=exact[name][1])
            why = None if compared.ok else compared.why
        else:
            why = differs(mine, theirs, partial(noise_of_rows, op, args, theirs, i))
        if why:
            return f"{name}: {why}"
    return None


def candidate(ladder: Ladder, rung: Rung, config: Config, device: str) -> Candidate:
    """The rung as a candidate, bound as in dispatch: once for each kind of call, then cached."""
    op = ladder.operator
    names = [a.name for a in op.args]
    bound: dict[tuple, Callable[..., Any]] = {}

    def call(*args):
        named = dict(zip(names, args, strict=True))
        key = (str(specs_of(named)), redzones.active is not None)
        if key not in bound:
            bound[key] = launcher(ladder, named, rung.name, config)
        return bound[key](*args)

    def sibling(case: Case) -> Case | None:
        for other in thorough_cases(ladder):
            same = other.dtype == case.dtype and other.shape != case.shape
            if same and skip(ladder, rung, config, other, device) is None:
                args = op.inputs(other, device)
                if unsupported(rung, _normalised(ladder, args), device_of(args)) is None:
                    return other
        return None

    native = entry_of(ladder, ladder.rung("native"))
    # torch.compile chooses among kernels by timing them, so its bits are not promised
    deterministic = rung.deterministic and rung.backend != "inductor"
    is_native = rung.name == "native"
    return Candidate(op, call, native, deterministic, sibling, is_native=is_native)


def usage(verdict: Accuracy | None) -> float:
    """The largest ratio of an error to its budget; more than 1 is wrong."""
    if verdict is None or verdict.error is None or verdict.budget is None:
        return 0.0 if verdict is None or verdict.ok else float("inf")
    error, budget = asdict(verdict.error), asdict(verdict.budget)
    return max(error[k] / budget[k] if budget[k] else float(error[k] > 0) for k in error)


def _numbers(e: Error | None) -> dict[str, float] | None:
    return None if e is None else asdict(e)


def _normalised(ladder: Ladder, args: dict[str, Any]) -> dict[str, Any]:
    return ladder.operator.normalise(specs_of(args))[0]
