"""`verify --check`: races, accesses out of bounds, reads of what nobody wrote, barriers that not
all threads reach.

One command, two machines: on a GPU compute-sanitizer's tools watch the rungs, on a CPU the
emulator's checks do. Both run the same calls (`solo.watched_cases`) and their findings are told
and recorded in the same words.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from kernelwright import emulator, toolchain
from kernelwright.contract import H200, Case, Config, CudaKernel, Ladder, Plan, Rung
from kernelwright.contract.layout import REDZONE, normalise
from kernelwright.dispatch import (
    device_of,
    entry_of,
    plan_of,
    source_hash,
    specs_of,
    unsupported,
)
from kernelwright.emulator.checks import CHECKS, Finding, Watch
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG, ToolchainError
from kernelwright.toolchain import redzones
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.verify import cuda_kernels
from kernelwright.workbench.verify.candidate import all_results, map_tensors, same_bits
from kernelwright.workbench.verify.coverage import LIMIT, skip
from kernelwright.workbench.verify.verify import chosen, here, prepare

from . import compute_sanitizer
from .compute_sanitizer import Watched
from .tool_runner import apart, runs_of

#: Seeds of the schedules that each call runs under where none is asked for.
SEEDS = (1, 2)
UNDER = "the emulator's checks"
ONE_TYPE = "other types of the same code: on a GPU"


@dataclass(frozen=True)
class Checked:
    """Every rung under every check that was asked for, and what it comes to."""

    rows: tuple[Watched, ...]

    @property
    def exit_code(self) -> int:
        """0 good, 1 something was found, 3 nothing could run."""
        if any(r.findings for r in self.rows):
            return WRONG
        return GOOD if any(r.calls for r in self.rows) else INCONCLUSIVE

    def records(self, machine: str, run: str) -> list[Record]:
        return [r.record(machine, run) for r in self.rows if r.calls or r.findings]


def checks_of(names: Iterable[str]) -> tuple[str, ...]:
    """The checks that the option's values name: "races", "races,init", "all".

    Raises:
        ValueError: naming what there is.
    """
    wanted = [w for name in names for w in name.split(",")]
    for w in wanted:
        if w not in CHECKS and w != "all":
            raise ValueError(f"--check {w}: there are {', '.join(CHECKS)} and all")
    return tuple(c for c in CHECKS if c in wanted or "all" in wanted)


def seeds_of(seed: int | None, checks: Sequence[str]) -> tuple[int, ...]:
    """The seeds to run: the one that is asked for, or `SEEDS`.

    Raises:
        ValueError: a seed for no check, or none of 1 to 2**63 - 1.
    """
    if seed is None:
        return SEEDS
    if not checks:
        raise ValueError("--seed: of the schedules of --check, which is not given")
    if not 0 < seed < 2**63:
        raise ValueError(f"--seed {seed}: is not within 1 and 2**63 - 1")
    return (seed,)


def watch(
    selection: Iterable[str],
    checks: Sequence[str],
    seeds: Sequence[int] = SEEDS,
    *,
    on_result: Callable[[Sequence[Watched]], None] | None = None,
) -> Checked:
    """Watch GPU rungs on this machine.

    Args:
        selection: as in `verify.verify`.
        checks: of `CHECKS`.
        seeds: one schedule each; compute-sanitizer, which takes the GPU's, needs none.
        on_result: called with the rows of a rung as soon as they are there.

    Raises:
        UnknownOperator, UnknownRung: naming what there is.
        ToolchainError: this machine has no compute-sanitizer.
    """
    pairs = [(ladder, rung) for ladder, rung in chosen(selection) if rung.is_gpu]
    rows: list[Watched] = []
    for found in _on_gpu(pairs, checks) if here() == "cuda" else _emulated(pairs, checks, seeds):
        rows += found
        if on_result:
            on_result(found)
    return Checked(tuple(rows))


Pairs = Sequence[tuple[Ladder, Rung]]


def _on_gpu(pairs: Pairs, checks: Sequence[str]) -> Iterator[list[Watched]]:
    for ladder in dict.fromkeys(ladder for ladder, _ in pairs):
        own = [p for p in pairs if p[0] is ladder]
        for check in checks:
            yield from ([row] for row in compute_sanitizer.watch(own, check))


def _emulated(pairs: Pairs, checks: Sequence[str], seeds: Sequence[int]) -> Iterator[list[Watched]]:
    prepare((ladder, rung) for ladder, rung in pairs if rung.backend == "cuda")
    for ladder, rung in pairs:
        yield watch_rung(ladder, rung, checks, seeds)


def watch_rung(
    ladder: Ladder, rung: Rung, checks: Sequence[str], seeds: Sequence[int]
) -> list[Watched]:
    """One rung in the emulator, each config on its watched cases, each call under every seed; a row
    for each check."""
    start = time.perf_counter()
    rows = {c: Watched(ladder.name, rung.name, c, source_hash(ladder, rung), UNDER) for c in checks}
    left_out: Counter[str] = Counter()
    missing = emulator.missing("watched") if rung.backend == "cuda" else f"{rung.backend}: on a GPU"
    if missing:
        left_out[missing] += 1
    elif refused := _refused(ladder, rung):
        rows[checks[0]].findings.append(refused)
    else:
        runs, rest = emulated_runs(ladder, rung)
        for config, case in runs:
            call = call_of(ladder, rung, config, case)
            if isinstance(call, str):
                left_out[call] += 1
                continue
            for seed in seeds:
                for finding in call.watched(checks, seed)[1]:
                    row = rows.get(finding.check) or rows[checks[0]]
                    row.findings.append(f"{case.id}, seed {seed}: {finding.text}")
            for row in rows.values():
                row.calls += 1
                row.schedules += len(seeds)
        left_out[ONE_TYPE] += rest
    for row in rows.values():
        row.left_out = dict(+left_out)
        row.seconds = time.perf_counter() - start
    return list(rows.values())


def _refused(ladder: Ladder, rung: Rung) -> str | None:
    """Build what watching the rung launches, all at once; why that failed, or None."""
    try:
        with emulator.mode("watched"):
            emulator.ensure(kernels_of(ladder, rung))
    except ToolchainError as e:
        return f"{type(e).__name__}: {e}"
    return None


def emulated_runs(ladder: Ladder, rung: Rung) -> tuple[list[tuple[Config, Case]], int]:
    """The runs of a rung that the emulator watches, and how many are left to a GPU: each type's
    kernel is compiled, and threads wait and reach in float16 as they do in bfloat16, and in further
    configs as they do in float32."""
    runs = list(runs_of(ladder, rung, "cpu"))
    if not any(_takes(ladder, rung, case) for _, case in runs):
        runs = [(config, case) for config in rung.configs for case in _long(ladder, rung)]
    first = rung.configs[0]
    dtypes = {case.dtype for config, case in runs if config == first}
    kept = [
        (config, case)
        for config, case in runs
        if not (case.dtype == torch.float16 and torch.bfloat16 in dtypes)
        and (config == first or case.dtype == torch.float32 or torch.float32 not in dtypes)
    ]
    return kept, len(runs) - len(kept)


def _takes(ladder: Ladder, rung: Rung, case: Case) -> bool:
    return unsupported(rung, cuda_kernels.specs_of_case(ladder, case), torch.device("cpu")) is None


def _long(ladder: Ladder, rung: Rung) -> list[Case]:
    """For a rung of rows that no watched case has: the first case of each dtype that it takes, and
    as many of the shortest such rows as run here."""
    found: dict[torch.dtype, Case] = {}
    cols = LIMIT["cuda"]
    for case in ladder.operator.cases:
        if skip(ladder, rung, rung.configs[0], case, "cpu") is None and _takes(ladder, rung, case):
            found.setdefault(case.dtype, case)
            cols = min(cols, case.shape[-1])
    more = [replace(c, shape=(LIMIT["cuda"] // cols, cols)) for c in found.values()]
    return [*found.values(), *more]


def kernels_of(ladder: Ladder, rung: Rung) -> set[Any]:
    """Every kernel that watching the rung launches."""
    by_config: dict[int, tuple[Config, list[Case]]] = {}
    for config, case in emulated_runs(ladder, rung)[0]:
        by_config.setdefault(id(config), (config, []))[1].append(case)
    return {
        kernel
        for config, cases in by_config.values()
        for kernel in cuda_kernels.kernels_of(ladder, rung, config, cases)
    }


@dataclass(frozen=True)
class Call:
    """One call of a rung, ready to be watched."""

    ladder: Ladder
    plan: Plan
    specs: dict[str, Any] = field(repr=False)
    copies: tuple[str, ...]
    make: Callable[[], dict[str, Any]] = field(repr=False)

    def watched(
        self, checks: Sequence[str], seed: int
    ) -> tuple[tuple[Any, ...] | None, list[Finding]]:
        """Its results, changed arguments among them (None where it was stopped), and what was
        found, under one schedule. Every tensor of the call stands between red zones.

        Reads of unwritten shared memory are no finding where its content changes no bit of the
        results: a thread may read ahead, as compilers do, what it then drops.
        """
        results, found = self._run(Watch(checks, seed))
        if any(f.unwritten for f in found) and results is not None:
            other, _ = self._run(Watch((), seed, unwritten=0x3C))
            if other is not None and all(map(same_bits, results, other)):
                found = [f for f in found if not f.unwritten]
        return results, found

    def met(self) -> set[frozenset[tuple[str, int]]]:
        """The (file, line)s of each barrier and fence that it comes to: as `Watch.met`."""
        watch = Watch((), SEEDS[0])
        self._run(watch)
        return watch.met()

    def _run(self, watch: Watch) -> tuple[tuple[Any, ...] | None, list[Finding]]:
        op, plan = self.ladder.operator, self.plan
        with watch.mode(), redzones.guarded():
            run = toolchain.executor(plan, op, self.specs, self.copies, torch.device("cpu"))
        fresh = {*op.results, *(n for n, s in plan.scratch.items() if not s.zero)}
        args = self.make()
        ended, out, found = watch.call(run, args, fresh)
        return all_results(op, args, out) if ended else None, found


def call_of(ladder: Ladder, rung: Rung, config: Config, case: Case) -> Call | str:
    """The call of a case; or why it is not watched here."""
    op = ladder.operator

    def make() -> dict[str, Any]:
        made = op.inputs(case, "cpu")
        args = {a.name: made.get(a.name, a.default) for a in op.args}
        return map_tensors(args, lambda t: apart(t, "cpu", REDZONE))

    args = make()
    specs, copies = normalise(op.layout, specs_of(args))
    why = unsupported(rung, specs, device_of(args))
    if why is None:
        return Call(ladder, _plan(ladder, rung, specs, config), specs, copies, make)
    return why


def _plan(ladder: Ladder, rung: Rung, specs: dict[str, Any], config: Config) -> Plan:
    """For an H200; clusters that walk over rows for one with room for a cluster or two, so that
    each comes to many."""
    plan = plan_of(ladder, rung, specs, config=config)
    kernels = (step.kernel for step in plan.launches)
    cluster = max((k.cluster for k in kernels if isinstance(k, CudaKernel)), default=1)
    if cluster == 1:
        return plan
    few = replace(H200, sms=cluster if cluster < 16 else 18)  # groups of multiprocessors have 18
    return entry_of(ladder, rung)(few, config, **specs)
