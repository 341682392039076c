"""Is B faster than A? Both are verified on each case, then timed with alternating launches.

On every case A, B and a second A (the control) are sampled in rounds of random order. The verdict
is about B: its speedup over A, the median of the paired ratios, with a bootstrap 95% interval. A
difference below twice the A/A noise is "same"; if the interval, the SM clocks or a large A/A noise
do not allow a decision, the verdict is "ambiguous".
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernelwright.contract import Case, Ladder, Operator
from kernelwright.dispatch import entry_of, ladder, specs_of
from kernelwright.machine import clock, here, random_state, stats
from kernelwright.support import errors
from kernelwright.workbench.bench.bench import stopping_rule
from kernelwright.workbench.bench.workload import chosen, sets_of, unfit
from kernelwright.workbench.verify.candidate import (
    Expected,
    all_results,
    copy_of,
    expected,
    map_tensors,
)
from kernelwright.workbench.verify.large_tensors import right
from kernelwright.workbench.verify.raised import one_line

from .operands import Bound, Side

#: Verdicts on a case, the one that decides the overall verdict first, and their exit codes.
EXITS = {
    "wrong": errors.UNEQUAL,
    "error": errors.UNEQUAL,
    "slower": errors.WRONG,
    "ambiguous": errors.AMBIGUOUS,
    "faster": errors.GOOD,
    "same": errors.GOOD,
}
#: If A differs from itself by more than this fraction, the verdict is not "same".
UNSTEADY = 0.1


@dataclass(frozen=True)
class Row:
    """Both sides on one case.

    Attributes:
        a, b: the rungs or functions that ran.
        verdict: about B: "faster", "slower", "same", "ambiguous"; "wrong" or "error" if that is
            true of either side; "untimed" if nothing was timed.
        why: what is wrong, or why nothing was timed.
        ratio, low, high: the speedup of B over A, and its 95% interval.
        noise: the A/A noise.
        a_us, b_us: median microseconds per launch.
    """

    operator: str
    case: str
    a: str
    b: str
    verdict: str
    why: str = ""
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    noise: float | None = None
    a_us: float | None = None
    b_us: float | None = None


@dataclass(frozen=True)
class Facts:
    """What the kernels of both sides compile to, if there is no GPU to time them: results of
    `kernelwright inspect`, one per launch; empty for a side without kernels."""

    operator: str
    case: str
    a: list[dict[str, Any]]
    b: list[dict[str, Any]]


@dataclass
class Compared:
    """The results of two sides on every case, and the overall verdict."""

    a: str
    b: str
    rows: list[Row] = field(default_factory=list)
    facts: list[Facts] = field(default_factory=list)

    @property
    def timed(self) -> list[Row]:
        return [r for r in self.rows if r.ratio is not None]

    @property
    def verdict(self) -> str:
        """The worst case's verdict: wrong or error, slower, ambiguous, then faster, then same;
        "untimed" if nothing could be timed, "same" if nothing differs."""
        verdicts = {r.verdict for r in self.rows} or {"same"}
        return next((v for v in EXITS if v in verdicts), "untimed")

    @property
    def ratio(self) -> float | None:
        """Geometric mean of B's speedup over the timed cases."""
        ratios = [r.ratio for r in self.timed if r.ratio]
        return statistics.geometric_mean(ratios) if ratios else None

    @property
    def exit_code(self) -> int:
        """0 same or faster, 1 slower, 3 nothing could be timed, 4 ambiguous, 5 wrong."""
        return EXITS.get(self.verdict, errors.INCONCLUSIVE)

    def as_json(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "exit": self.exit_code,
            "ratio": self.ratio,
            **asdict(self),
        }


@random_state.preserved()
def compare(
    sides: Iterable[tuple[Side, Side]],
    *,
    names: tuple[str, str],
    cases: list[str] | None = None,
    quick: bool = False,
    on_row: Callable[[Row | None, str], None] = lambda row, doing: None,
) -> Compared:
    """Compare pairs of sides, one pair per operator.

    Args:
        names: A and B as the user wrote them.
        cases: ids, or parts of labels ("gpt-2"); by default those that `bench` times here.
        quick: only a few samples of each.
        on_row: called without a row before a case is timed, and with it afterwards.

    Raises:
        UnknownCase: no operator has such a case.
    """
    result, pairs, device = Compared(*names), list(sides), here()
    work = chosen([ladder(a.operator) for a, _ in pairs], cases, device)
    looked_at: set[tuple[str, str]] = set()
    for a, b in pairs:
        for lad, case in work:
            if lad.name != a.operator:
                continue
            on_row(None, f"comparing on {lad.name} {case.id}")
            row, kernels = on_case(a, b, lad, case, quick)
            result.rows.append(row)
            on_row(row, "")
            if any(kernels) and kernels not in looked_at:
                looked_at.add(kernels)
                facts = [_inspected(s, k, case) for s, k in zip((a, b), kernels, strict=True)]
                result.facts.append(Facts(lad.name, case.id, *facts))
    return result


def on_case(a: Side, b: Side, lad: Ladder, case: Case, quick: bool) -> tuple[Row, tuple[str, str]]:
    """Both sides on one case, and static facts of the kernels that only a GPU can time."""
    device, operator, none = here(), lad.operator, ("", "")
    if why := unfit(case, device):
        return Row(lad.name, case.id, a.name, b.name, "untimed", why), none
    with clock.session(device):
        inputs = operator.inputs(case, device.type)
        inputs = operator.with_defaults(inputs)
        bound = [_bound(side, inputs) for side in (a, b)]
        row = partial(Row, lad.name, case.id, bound[0].rung, bound[1].rung)
        missing = [x for x in bound if x.call is None]
        if missing:
            verdict = "error" if any(x.failed for x in missing) else "untimed"
            why = "; ".join(f"{n}: {x.why}" for n, x in zip("AB", bound, strict=True) if x.why)
            return row(verdict, why), (bound[0].kernels, bound[1].kernels)
        calls = [x.call for x in bound if x.call]
        want = expected(operator, entry_of(lad, lad.rung("native")), case, device.type)
        for name, call in zip("AB", calls, strict=True):
            if failed := _failed(call, operator, want):
                return row(failed[0], f"{name}: {failed[1]}"), none
        sets = sets_of(operator, case, device, want)
        specs, _ = operator.normalise(specs_of(want.args))
        cost = operator.cost(**specs)
        candidates = [
            clock.Candidate(n, [partial(call, *args.values()) for args in sets], cost.bytes)
            for n, call in zip(("A", "B", "A again"), (*calls, calls[0]), strict=True)
        ]
        del inputs, want
        measured = clock.measure(candidates, device, stopping_rule(device, quick, None))
        del sets, candidates
    times = measured.times.items()
    if errors := [f"{n}: {t.error}" for n, t in times if t.error]:
        return row("error", "; ".join(errors)), none
    return row(**judged(*(t.cold for _, t in times), clock_spread=measured.clock_spread)), none


def judged(a, b, control, *, clock_spread: float = 0.0) -> dict[str, Any]:
    """A row's values from samples that were taken alternately."""
    compared = stats.compare(
        b, a, noise=stats.noise(a, control), clock_spread=clock_spread
    )  # B's speedup: A's time over B's
    if compared.verdict == "same" and compared.noise > UNSTEADY:
        compared = replace(compared, verdict="ambiguous")
    return {**asdict(compared), "a_us": stats.median(a), "b_us": stats.median(b)}


def _bound(side: Side, args: dict[str, Any]) -> Bound:
    try:
        return side.runner(args)
    except Exception as e:  # noqa: BLE001 - whatever a side raises is its verdict, and is shown
        return Bound(side.name, None, one_line(e), failed=True)


def _failed(call: Callable, operator: Operator, want: Expected) -> tuple[str, str] | None:
    """(verdict, why) of a call that is not right on a case, or None."""
    try:
        args = map_tensors(want.args, copy_of) if operator.mutated else want.args
        verdict = right(operator, want, all_results(operator, args, call(*args.values())))
    except Exception as e:  # noqa: BLE001 - as above
        return "error", one_line(e)
    return None if verdict.ok else ("wrong", verdict.why)


def _inspected(side: Side, kernels: str, case: Case) -> list[dict[str, Any]]:
    """The result of a side's own `kernelwright inspect` of its kernels, for an H200."""
    if not kernels:
        return []
    home = Path(str(sys.modules[side.package].__file__)).parents[1]
    words = ("inspect", kernels, "--case", case.id, "--json")
    done = subprocess.run(
        [sys.executable, "-c", f"from {side.package}.cli import main; main()", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(home)},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return [{"error": last.removeprefix("kernelwright: ")}]
    return json.loads(done.stdout)
