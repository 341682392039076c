"""`verify --check`: data races, out-of-bounds accesses, uninitialized reads, divergent barriers.

On a GPU, compute-sanitizer's tools check the rungs; on a CPU, the emulator's checks do. Both run
the same calls (`tool_runner.watched_cases`), and their findings are reported and recorded in the
same form.
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
from kernelwright.contract.layout import REDZONE
from kernelwright.dispatch import (
    device_of,
    entry_of,
    plan_of,
    source_hash,
    specs_of,
    unsupported,
)
from kernelwright.emulator.checks import Finding, Watch
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG, ToolchainError
from kernelwright.toolchain import cpu_executor, redzones
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.verify import cuda_kernels
from kernelwright.workbench.verify.candidate import all_results, map_tensors, same_bits
from kernelwright.workbench.verify.coverage import LIMIT, skip
from kernelwright.workbench.verify.verify import chosen, here, prepare

from . import compute_sanitizer
from .compute_sanitizer import Watched
from .tool_runner import apart, runs_of

#: Seeds of the schedules under which each call runs by default.
SEEDS = (1, 2)
UNDER = "the emulator's checks"
ONE_TYPE = "other types of the same code: needs a GPU"
#: The last tiles of a Hopper rung are moved inside the matrix, where they overlap with others.
OVERLAPPING = "tiles that overlap store the same values"


@dataclass(frozen=True)
class Checked:
    """The results of every rung under every requested check."""

    rows: tuple[Watched, ...]

    @property
    def exit_code(self) -> int:
        """0 good, 1 something was found, 3 nothing could run."""
        if any(r.findings for r in self.rows):
            return WRONG
        return GOOD if any(r.calls for r in self.rows) else INCONCLUSIVE

    def records(self, machine: str, run: str) -> list[Record]:
        return [r.record(machine, run) for r in self.rows if r.calls or r.findings]


def seeds_of(seed: int | None, checks: Sequence[str]) -> tuple[int, ...]:
    """The seeds to run: the given one, or `SEEDS`.

    Raises:
        ValueError: a seed without a check, or not from 1 to 2**63 - 1.
    """
    if seed is None:
        return SEEDS
    if not checks:
        raise ValueError("--seed: selects a thread schedule of --check; give --check as well")
    if not 0 < seed < 2**63:
        raise ValueError(f"--seed {seed}: must be from 1 to 2**63 - 1")
    return (seed,)


def watch(
    selection: Iterable[str],
    checks: Sequence[str],
    seeds: Sequence[int] = SEEDS,
    *,
    on_result: Callable[[Sequence[Watched]], None] | None = None,
) -> Checked:
    """Check GPU rungs on this machine.

    Args:
        selection: as in `verify.verify`.
        checks: keys of `CHECKS`.
        seeds: one schedule each; not used by compute-sanitizer, which runs on the GPU.
        on_result: called with the rows of a rung as soon as they are complete.

    Raises:
        UnknownOperator, UnknownRung: an unknown name; the message lists the known ones.
        ToolchainError: this machine has no compute-sanitizer.
    """
    pairs = [(ladder, rung) for ladder, rung in chosen(selection) if rung.is_gpu]
    rows: list[Watched] = []
    for watched in _on_gpu(pairs, checks) if here() == "cuda" else _emulated(pairs, checks, seeds):
        rows += watched
        if on_result:
            on_result(watched)
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
    """Check one rung in the emulator: each config on its watched cases, each call under every seed.
    Returns one row per check."""
    start = time.perf_counter()
    rows = {c: Watched(ladder.name, rung.name, c, source_hash(ladder, rung), UNDER) for c in checks}
    left_out: Counter[str] = Counter()
    missing = _missing(ladder, rung)
    if missing:
        left_out[missing] += 1
    elif refused := _refused(ladder, rung):
        rows[checks[0]].findings.append(refused)
    else:
        runs, rest = emulated_runs(ladder, rung)
        overlap = not all(k.emulated for k in kernels_of(ladder, rung))
        for config, case in runs:
            call = call_of(ladder, rung, config, case)
            if isinstance(call, str):
                left_out[call] += 1
                continue
            for seed in seeds:
                for finding in call.watched(checks, seed)[1]:
                    if finding.same and overlap:
                        left_out[OVERLAPPING] += 1
                        continue
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


def _missing(ladder: Ladder, rung: Rung) -> str | None:
    """Why the emulator cannot check a rung, or None."""
    if rung.backend != "cuda":
        return f"{rung.backend}: needs a GPU"
    if all(cpu_executor.emulates(k) for k in kernels_of(ladder, rung)):
        return emulator.missing("watched")
    return cpu_executor.NOT_EMULATED


def _refused(ladder: Ladder, rung: Rung) -> str | None:
    """Build all kernels needed to check the rung; returns why that failed, or None."""
    try:
        with emulator.mode("watched"):
            emulator.ensure(kernels_of(ladder, rung))
    except ToolchainError as e:
        return f"{type(e).__name__}: {e}"
    return None


def emulated_runs(ladder: Ladder, rung: Rung) -> tuple[list[tuple[Config, Case]], int]:
    """The runs of a rung that the emulator checks, and how many are left to a GPU. Each dtype needs
    another compilation, but synchronization and addressing in float16 are the same as in bfloat16,
    and other configs are checked only in float32."""
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
    """For a rung that supports none of the watched cases' row lengths: the first case of each dtype
    that it supports, and a case with as many of the shortest such rows as can run here."""
    longest: dict[torch.dtype, Case] = {}
    cols = LIMIT["cuda"]
    for case in ladder.operator.cases:
        if skip(ladder, rung, rung.configs[0], case, "cpu") is None and _takes(ladder, rung, case):
            longest.setdefault(case.dtype, case)
            cols = min(cols, case.shape[-1])
    rows = [c for c in longest.values() if len(c.shape) == 2]
    more = [replace(c, shape=(LIMIT["cuda"] // cols, cols)) for c in rows]
    return [*longest.values(), *more]


def kernels_of(ladder: Ladder, rung: Rung) -> set[Any]:
    """All kernels launched when the rung is checked."""
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
    """One call of a rung, ready to be checked."""

    ladder: Ladder
    plan: Plan
    specs: dict[str, Any] = field(repr=False)
    copies: tuple[str, ...]
    make: Callable[[], dict[str, Any]] = field(repr=False)

    def watched(
        self, checks: Sequence[str], seed: int
    ) -> tuple[tuple[Any, ...] | None, list[Finding]]:
        """Run under one schedule. Returns the results including changed arguments (None if it was
        stopped), and the findings. Every tensor of the call is between red zones.

        An uninitialized read of shared memory is not a finding if the value does not affect the
        results: a thread may read speculatively, as compilers do, and discard the value.
        """
        results, findings = self._run(Watch(checks, seed))
        if any(f.unwritten for f in findings) and results is not None:
            other, _ = self._run(Watch((), seed, unwritten=0x3C))
            if other is not None and all(map(same_bits, results, other)):
                findings = [f for f in findings if not f.unwritten]
        return results, findings

    def sync_points(self) -> set[frozenset[tuple[str, int]]]:
        """The (file, line)s of each barrier and fence that it reaches; see `Watch.sync_points`."""
        watch = Watch((), SEEDS[0])
        self._run(watch)
        return watch.sync_points()

    def _run(self, watch: Watch) -> tuple[tuple[Any, ...] | None, list[Finding]]:
        op, plan = self.ladder.operator, self.plan
        with watch.mode(), redzones.guarded():
            run = toolchain.executor(plan, op, self.specs, self.copies, torch.device("cpu"))
        fresh = {*op.results, *(n for n, s in plan.scratch.items() if not s.zero)}
        args = self.make()
        ended, out, findings = watch.call(run, args, fresh)
        return all_results(op, args, out) if ended else None, findings


def call_of(ladder: Ladder, rung: Rung, config: Config, case: Case) -> Call | str:
    """The call of a case, or why it is not checked here."""
    op = ladder.operator

    def make() -> dict[str, Any]:
        inputs = op.inputs(case, "cpu")
        args = op.with_defaults(inputs)
        return map_tensors(args, lambda t: apart(t, "cpu", REDZONE))

    args = make()
    specs, copies = op.normalise(specs_of(args))
    why = unsupported(rung, specs, device_of(args))
    if why is None:
        return Call(ladder, _plan(ladder, rung, specs, config), specs, copies, make)
    return why


def _plan(ladder: Ladder, rung: Rung, specs: dict[str, Any], config: Config) -> Plan:
    """A plan for an H200. For clusters that loop over rows, the GPU's size is reduced to one or two
    clusters, so that each processes many rows."""
    plan = plan_of(ladder, rung, specs, config=config)
    kernels = (step.kernel for step in plan.launches)
    cluster = max((k.cluster for k in kernels if isinstance(k, CudaKernel)), default=1)
    if cluster == 1:
        return plan
    few = replace(H200, sms=cluster if cluster < 16 else 18)  # groups of multiprocessors have 18
    return entry_of(ladder, rung)(few, config, **specs)
