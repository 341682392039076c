"""Finds the fastest rung and config on this GPU for each bucket, the table that selection reads.

Every candidate is verified on the case before it is timed; all candidates of a case are timed in
one interleaved run. The gain over the ladder's own order is measured in the same run and stored in
the table.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract import Case, Config, Ladder, Rung
from kernelwright.dispatch import data, entry_of, launcher, source_hash, specs_of, unsupported
from kernelwright.dispatch.selection import config_for
from kernelwright.machine import clock, gpu_of, here, random_state, stats
from kernelwright.support.errors import INCONCLUSIVE, UserError
from kernelwright.workbench.verify.candidate import all_results, copy_of, expected, map_tensors
from kernelwright.workbench.verify.large_tensors import right
from kernelwright.workbench.verify.raised import one_line

from .workload import sets_of


@dataclass(frozen=True)
class Tried:
    """One rung and config on one case: median microseconds, or why it has none."""

    case: str
    bucket: str
    rung: str
    config: Config
    us: float | None
    why: str = ""


@dataclass
class TuneResult:
    """The result of tuning an operator.

    Attributes:
        sources: the hash of each rung that was tried.
        buckets: the table: {"rung", "configs"} by bucket; a config for each rung.
        gains: by bucket, the speedup of the choice over the rung of the ladder's order.
        seconds: how long tuning took.
    """

    operator: str
    capability: tuple[int, int]
    sources: dict[str, str] = field(default_factory=dict)
    buckets: dict[str, dict[str, Any]] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)
    tried: list[Tried] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def gain(self) -> float:
        """Geometric mean of the gains; 1.0 if nothing was measured."""
        logs = [math.log(g) for g in self.gains.values()]
        return math.exp(sum(logs) / len(logs)) if logs else 1.0

    def write(self, folder: Path) -> Path:
        """Write the table into a folder of tables; returns its path."""
        path = table_of(folder, self.operator, self.capability)
        table = {
            "buckets": dict(sorted(self.buckets.items())),
            "cost_seconds": round(self.seconds, 1),
            "gain_over_heuristic": {b: round(g, 3) for b, g in sorted(self.gains.items())},
            "sources": dict(sorted(self.sources.items())),
        }
        data.write(path, json.dumps(table, indent=1) + "\n")
        return path


def table_of(folder: Path, operator: str, capability: tuple[int, int]) -> Path:
    """The path of an operator's table for a compute capability in a folder of tables."""
    return folder / f"{operator}.sm_{capability[0]}{capability[1]}.json"


def sources(ladder: Ladder) -> dict[str, str]:
    """The hashes of the rungs that tuning tries; a table with other hashes is out of date."""
    return {r.name: source_hash(ladder, r) for r in ladder.rungs if r.is_gpu and r.dispatchable}


class NoGpu(UserError, RuntimeError):
    """Tuning needs a GPU, and there is none."""

    exit_code = INCONCLUSIVE


@random_state.preserved()
def tune(
    ladder: Ladder,
    *,
    quick: bool = False,
    on_case: Callable[[Case, list[Tried]], None] | None = None,
) -> TuneResult:
    """Time every rung that may be dispatched, with every config, on the operator's bench cases.

    Args:
        quick: only a few samples of each.
        on_case: called with each case and the results on it.

    Raises:
        NoGpu: there is no GPU here.
    """
    device = here()
    gpu = gpu_of(device)
    if gpu is None:
        raise NoGpu("tune needs a GPU, and there is none here")
    rule = (
        clock.StoppingRule(4, 8, 0.03, 0.02, 0.5)
        if quick
        else clock.StoppingRule(8, 32, 0.01, 0.1, 3.0)
    )
    result, start = TuneResult(ladder.name, gpu.capability, sources(ladder)), time.perf_counter()
    usual: dict[str, float] = {}
    for case in ladder.operator.cases:
        if case.use == "bench":
            tried, ordered = _case(ladder, case, device, rule)
            result.tried += tried
            if ordered is not None:
                usual[case.id] = ordered
            if on_case:
                on_case(case, tried)
    decide(result, usual)
    result.seconds = time.perf_counter() - start
    return result


def decide(result: TuneResult, usual: dict[str, float]) -> None:
    """Fill in the table: for each bucket the fastest rung and each rung's fastest config, by the
    mean over the bucket's cases, among those that ran on all of them.

    Args:
        usual: by case, microseconds of the first rung in the ladder's order.
    """
    by_bucket: dict[str, dict[tuple[str, str], dict[str, float]]] = {}
    cases: dict[str, set[str]] = {}
    for t in result.tried:
        cases.setdefault(t.bucket, set()).add(t.case)
        if t.us is not None:
            key = t.rung, json.dumps(t.config, sort_keys=True)
            by_bucket.setdefault(t.bucket, {}).setdefault(key, {})[t.case] = math.log(t.us)
    for bucket, choices in by_bucket.items():
        whole = {k: sum(v.values()) for k, v in choices.items() if v.keys() == cases[bucket]}
        if not whole:
            continue
        configs: dict[str, Config] = {}
        ranked = sorted(whole.items(), key=lambda item: item[1])
        for (rung, config), _ in ranked:
            configs.setdefault(rung, json.loads(config))
        (rung, _), best = ranked[0]
        result.buckets[bucket] = {"rung": rung, "configs": configs}
        if cases[bucket] <= usual.keys():
            before = sum(math.log(usual[c]) for c in cases[bucket])
            result.gains[bucket] = math.exp((before - best) / len(cases[bucket]))


def _case(
    ladder: Ladder, case: Case, device: torch.device, rule: clock.StoppingRule
) -> tuple[list[Tried], float | None]:
    """Everything tried on a case, and the microseconds of the first rung in the ladder's order."""
    operator, gpu = ladder.operator, gpu_of(device)
    assert gpu is not None
    tried: list[Tried] = []
    with clock.session(device):
        native = entry_of(ladder, ladder.rung("native"))
        want = expected(operator, native, case, device.type)
        specs, _ = operator.normalise(specs_of(want.args))
        bucket, cost = ladder.bucket(**specs), operator.cost(**specs)
        sets = sets_of(operator, case, device, want)
        candidates, keys = [], {}
        for rung, config in _choices(ladder, specs, device):
            name = f"{rung.name} {json.dumps(config, sort_keys=True)}"
            try:
                call = launcher(ladder, want.args, rung.name, config)
                args = map_tensors(want.args, copy_of) if operator.mutated else want.args
                verdict = right(operator, want, all_results(operator, args, call(*args.values())))
            except Exception as e:  # noqa: BLE001 - whatever a rung raises is shown in the table
                tried.append(Tried(case.id, bucket, rung.name, config, None, one_line(e)))
                continue
            if not verdict.ok:
                tried.append(Tried(case.id, bucket, rung.name, config, None, verdict.why))
                continue
            keys[name] = rung, config
            calls = [partial(call, *a.values()) for a in sets]
            candidates.append(clock.Candidate(name, calls, cost.bytes))
        del want
        times = clock.measure(candidates, device, rule).times
        del sets, candidates
    for name, (rung, config) in keys.items():
        t = times[name]
        us = stats.median(t.cold) if t.cold else None
        tried.append(Tried(case.id, bucket, rung.name, config, us, t.error))
    ordered = _ordered(ladder, specs, device)
    mine = [t.us for t in tried if (t.rung, t.config) == ordered]
    return tried, mine[0] if mine else None


def _choices(ladder: Ladder, specs, device: torch.device) -> Iterator[tuple[Rung, Config]]:
    """Rungs that may be dispatched and support the call, with each of their configs; not
    torch.compile, which would delay first calls by a compilation."""
    for rung in ladder.rungs:
        if (
            rung.dispatchable
            and rung.backend != "inductor"
            and unsupported(rung, specs, device) is None
        ):
            for config in rung.configs:
                yield rung, config


def _ordered(ladder: Ladder, specs, device: torch.device) -> tuple[str, Config]:
    """The rung dispatched without a table, proven or not: tuning may run before the ledger is
    written."""
    gpu = gpu_of(device)
    assert gpu is not None
    for name in ladder.order(gpu, **specs):
        rung = ladder.rung(name)
        if rung.dispatchable and unsupported(rung, specs, device) is None:
            return name, config_for(rung, gpu, specs)
    return "native", {}
