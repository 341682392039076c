"""Regret on sampled shapes: how much slower the dispatched rung is than the best peer and than the
best rung and config that this package has.

Everything timed on a case is verified on it first, and timed alternately in one run, with a copy of
the same bytes as the roof. Without a GPU nothing can be timed: the rung that an H200 would dispatch
is verified on each sampled shape, in the interpreter or the emulator.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.contract import Case, Config, Ladder, Plan, Rung
from kernelwright.dispatch import entry_of, launcher, plan_of, specs_of, unsupported
from kernelwright.dispatch.selection import Choice, config_for, select
from kernelwright.machine import clock, gpu_of, here, random_state, stats
from kernelwright.support.errors import GOOD, INCONCLUSIVE, WRONG
from kernelwright.workbench import listing
from kernelwright.workbench.verify.candidate import (
    Expected,
    all_results,
    copy_of,
    expected,
    map_tensors,
)
from kernelwright.workbench.verify.coverage import LIMIT
from kernelwright.workbench.verify.large_tensors import right
from kernelwright.workbench.verify.raised import one_line

from . import roofs
from .case_bench import near
from .sampling import sample
from .workload import peers_of, sets_of

MOST_BYTES = 1 << 29  # maximum size of a case's largest tensor on a GPU
LEAST_BYTES = 1 << 18  # minimum; smaller ones would need too many sets to exceed the cache
QUANTILES = (50, 90, 95, 99)  # percent
LARGE = 64 << 20  # minimum bytes moved by a case that is compared with the roof
RULE = clock.StoppingRule(least=12, most=40, width=0.01, candidate_s=0.1, seconds=1.5)
QUICK = clock.StoppingRule(least=6, most=16, width=0.02, candidate_s=0.03, seconds=0.5)


@dataclass(frozen=True)
class Sampled:
    """One sampled case.

    Attributes:
        dispatched: the rung, with its config; `why` it is dispatched, or on what it was verified.
        bytes: the minimum that the case moves.
        us: medians in microseconds by name: "dispatched", "torch", "torch.compile", the other
            peers, "roof", and every rung with its config.
        over_peer: the dispatched rung's time over the best peer's, the median of paired samples,
            with its 95% interval in `low` and `high`; None if no peer was timed.
        trouble: by name, what was wrong or why something was not run.
    """

    operator: str
    case: str
    stratum: str
    dispatched: str
    why: str
    bytes: int = 0
    us: dict[str, float] = field(default_factory=dict)
    peer: str = ""
    over_peer: float | None = None
    low: float | None = None
    high: float | None = None
    trouble: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The fastest of this package's rungs and configs that was timed, "" if none was."""
        ours = {n: t for n, t in self.us.items() if n.startswith("rung:")}
        return min(ours, key=lambda n: ours[n], default="")

    @property
    def regret(self) -> float | None:
        """The dispatched rung's time over that of the best known rung and config."""
        if not self.best or "dispatched" not in self.us:
            return None
        return max(1.0, self.us["dispatched"] / self.us[self.best])

    @property
    def of_roof(self) -> float | None:
        """The dispatched rung's rate as a fraction of the roof's."""
        both = "roof" in self.us and "dispatched" in self.us
        return self.us["roof"] / self.us["dispatched"] if both else None


@dataclass(frozen=True)
class Summary:
    """The distribution over an operator's sampled cases; None if nothing was timed.

    Attributes:
        verified: the number of cases that ran without error.
        speedup: geometric mean of the best peer's time over ours.
        behind: share of the cases that are more than 2% behind the best peer.
        slowest: our time over the best peer's in the worst case.
        regret: our time over the best known config's, at the 95th percentile.
        over_peer, over_best: our time over the best peer's, and over the best known config's, at
            each of QUANTILES.
        of_roof: geometric mean over the cases that move at least LARGE bytes.
    """

    cases: int
    timed: int
    verified: int
    wrong: int
    speedup: float | None
    behind: float | None
    slowest: float | None
    regret: float | None
    over_peer: dict[int, float]
    over_best: dict[int, float]
    of_roof: float | None


@dataclass
class RegretResult:
    seed: int
    rows: list[Sampled] = field(default_factory=list)

    @property
    def worst_first(self) -> list[Sampled]:
        return sorted(self.rows, key=lambda r: -(r.over_peer or r.regret or 0.0))

    def summary(self, operator: str | None = None) -> Summary:
        """The summary of one operator, or of all."""
        rows = [r for r in self.rows if operator in (None, r.operator)]
        ratios = sorted(r.over_peer for r in rows if r.over_peer)
        regrets = sorted(r.regret for r in rows if r.regret)
        reached = [r.of_roof for r in rows if r.of_roof and r.bytes >= LARGE]
        return Summary(
            cases=len(rows),
            timed=sum("dispatched" in r.us for r in rows),
            verified=sum(not r.trouble for r in rows),
            wrong=sum("dispatched" in r.trouble for r in rows),
            speedup=1 / _geometric(ratios) if ratios else None,
            behind=sum(r > 1.02 for r in ratios) / len(ratios) if ratios else None,
            slowest=ratios[-1] if ratios else None,
            regret=_quantiles(regrets).get(95),
            over_peer=_quantiles(ratios),
            over_best=_quantiles(regrets),
            of_roof=_geometric(reached) if reached else None,
        )

    @property
    def operators(self) -> list[str]:
        return list(dict.fromkeys(r.operator for r in self.rows))

    @property
    def exit_code(self) -> int:
        """0 good, 1 something dispatched was wrong, 3 nothing could be timed."""
        if any("dispatched" in r.trouble for r in self.rows):
            return WRONG
        return GOOD if any(r.us for r in self.rows) else INCONCLUSIVE

    def as_json(self) -> dict[str, Any]:
        names = [None, *self.operators]
        return {
            "seed": self.seed,
            "summary": {name or "*": self.summary(name) for name in names},
            "cases": [
                {"row": r, "best": r.best, "regret": r.regret, "of_roof": r.of_roof}
                for r in self.worst_first
            ],
        }


@random_state.preserved()
def regret(
    ladders: Iterable[Ladder],
    *,
    count: int,
    seed: int,
    quick: bool = False,
    peers: bool = False,
    on_row: Callable[[Sampled], None] = lambda row: None,
    on_step: Callable[[str], None] = lambda words: None,
) -> RegretResult:
    """Time the dispatched rung on sampled cases of each ladder.

    Args:
        count: the number of cases per operator.
        quick: only a few samples; each rung only with the config that its heuristic chooses.
        peers: other libraries to time, besides PyTorch's own operator and torch.compile.

    Raises:
        NotSampled: see `sampling.sample`.
    """
    device = here()
    result = RegretResult(seed)
    for ladder in ladders:
        for number, (stratum, case) in enumerate(drawn(ladder, count, seed, device), 1):
            on_step(f"{ladder.name}: {number} of {count}, {case.id}")
            if device.type == "cuda":
                row = _Timing(ladder, case, stratum, device, quick, peers).row()
            else:
                row = _emulated(ladder, case, stratum, device)
            result.rows.append(row)
            on_row(row)
    return result


def drawn(ladder: Ladder, count: int, seed: int, device: torch.device) -> list[tuple[str, Case]]:
    """Sampled cases of a ladder, of sizes that the device can time or emulate."""
    if device.type == "cuda":
        return sample(ladder.operator, count, seed, MOST_BYTES, LEAST_BYTES)
    return sample(ladder.operator, count, seed, 2 * LIMIT["triton"])


def _emulated(ladder: Ladder, case: Case, stratum: str, device: torch.device) -> Sampled:
    """Verify on a CPU the rung that an H200 would dispatch."""
    specs = listing.specs_of(ladder, case)
    rung, config = listing.served(ladder, listing.H200, specs)
    row = partial(Sampled, ladder.name, case.id, stratum, _name(rung, config), "on an H200")
    why = unsupported(rung, specs, device)
    if why is None and case.numel > LIMIT[rung.backend]:
        why = f"more than {LIMIT[rung.backend]} elements: needs a GPU"
    if why:
        return row(trouble={"not run here": why})
    want = expected(ladder.operator, entry_of(ladder, ladder.rung("native")), case, device.type)
    wrong, _ = _checked(ladder, rung, config, want)
    return row(trouble={"dispatched": wrong} if wrong else {})


def _checked(
    ladder: Ladder, rung: Rung, config: Config, want: Expected
) -> tuple[str, Callable[..., Any] | None]:
    """What is wrong with a rung's results, or "" and its bound function."""
    operator = ladder.operator
    try:
        call = launcher(ladder, want.args, rung.name, config)
        args = map_tensors(want.args, copy_of)
        verdict = right(operator, want, all_results(operator, args, call(*args.values())))
    except Exception as e:  # noqa: BLE001 - whatever a rung raises is its outcome, and is shown
        return one_line(e), None
    return ("", call) if verdict.ok else (verdict.why, None)


@dataclass
class _Timing:
    """One ladder on one sampled case, on a GPU."""

    ladder: Ladder
    case: Case
    stratum: str
    device: torch.device
    quick: bool
    peers: bool

    def row(self) -> Sampled:
        operator = self.ladder.operator
        with clock.session(self.device):
            native = entry_of(self.ladder, self.ladder.rung("native"))
            want = expected(operator, native, self.case, self.device.type)
            specs, _ = operator.normalise(specs_of(want.args))
            chosen = select(self.ladder, specs, self.device, None)
            self.cost = operator.cost(**specs)
            self.sets = sets_of(operator, self.case, self.device, want)
            self.trouble: dict[str, str] = {}
            candidates = list(self._candidates(chosen, specs, want))
            del want
            times = clock.measure(candidates, self.device, QUICK if self.quick else RULE).times
            del candidates, self.sets
        return self._row(chosen, {n: t.cold for n, t in times.items() if t.cold})

    def _row(self, chosen: Choice, samples: dict[str, Sequence[float]]) -> Sampled:
        us = {n: stats.median(t) for n, t in samples.items() if not n.startswith("roof:")}
        roof = [stats.median(t) for n, t in samples.items() if n.startswith("roof:")]
        theirs = {n: t for n, t in us.items() if n != "dispatched" and not n.startswith("rung:")}
        peer = min(theirs, key=lambda n: theirs[n], default="")
        ratio = low = high = None
        if peer and "dispatched" in samples:
            compared = stats.compare(samples["dispatched"], samples[peer], noise=0.0)
            ratio, low, high = 1 / compared.ratio, 1 / compared.high, 1 / compared.low
        return Sampled(
            self.ladder.name, self.case.id, self.stratum, _name(chosen.rung, chosen.config),
            chosen.why, self.cost.bytes, us | ({"roof": min(roof)} if roof else {}), peer, ratio,
            low, high, self.trouble,
        )  # fmt: skip

    def _candidates(
        self, chosen: Choice, specs: dict[str, Any], want: Expected
    ) -> Iterator[clock.Candidate]:
        yield from self._rung("dispatched", chosen.rung, chosen.config, want)
        yield from self._rung("torch", self.ladder.rung("native"), {}, want)
        if self.peers:
            if "compiled" in self.ladder.names:
                yield from self._rung("torch.compile", self.ladder.rung("compiled"), {}, want)
            yield from self._others(want)
        for rung, config in self._choices(specs):
            yield from self._rung(f"rung:{_name(rung, config)}", rung, config, want)
        if self.cost.bytes:
            mix = roofs.nearest(self.cost.mix, self.device)
            yield from roofs.roof_candidates(mix, self.cost.bytes, self.device)

    def _rung(
        self, name: str, rung: Rung, config: Config, want: Expected
    ) -> Iterator[clock.Candidate]:
        wrong, call = _checked(self.ladder, rung, config, want)
        if wrong or call is None:
            self.trouble[name] = wrong
            return
        calls = [partial(call, *args.values()) for args in self.sets]
        yield clock.Candidate(name, calls, self.cost.bytes)

    def _others(self, want: Expected) -> Iterator[clock.Candidate]:
        """The other libraries' functions that can be captured in a CUDA graph."""
        for peer in peers_of(self.ladder):
            if peer.syncs_host or importlib.util.find_spec(peer.requires) is None:
                continue
            try:
                args = map_tensors(want.args, copy_of)
                results = all_results(self.ladder.operator, args, peer.make(**args)())
                verdict = right(self.ladder.operator, want, results)
                if not (peer.random or verdict.ok or near(verdict)):
                    self.trouble[peer.name] = verdict.why
                    continue
                calls = [peer.make(**args) for args in self.sets]
            except Exception as e:  # noqa: BLE001 - whatever a library raises is shown
                self.trouble[peer.name] = one_line(e)
                continue
            yield clock.Candidate(peer.name, calls, self.cost.bytes)

    def _choices(self, specs: dict[str, Any]) -> Iterator[tuple[Rung, Config]]:
        """Every rung that may be dispatched and supports the call, with each config that launches
        something different; with `quick`, only with the config that its heuristic chooses."""
        gpu = gpu_of(self.device)
        assert gpu is not None
        seen: list[Plan] = []
        for rung in self.ladder.rungs:
            if not (rung.dispatchable and rung.is_gpu) or unsupported(rung, specs, self.device):
                continue
            for config in (config_for(rung, gpu, specs),) if self.quick else rung.configs:
                plan = plan_of(self.ladder, rung, specs, device=self.device, config=config)
                if all(plan.launches != other.launches for other in seen):
                    seen.append(plan)
                    yield rung, config


def _name(rung: Rung, config: Config) -> str:
    return f"{rung.name} {json.dumps(config, sort_keys=True)}" if config else rung.name


def _quantiles(ordered: Sequence[float]) -> dict[int, float]:
    """The quantiles of sorted values, by percent; empty if there are no values."""
    return {q: ordered[math.ceil(q * len(ordered) / 100) - 1] for q in QUANTILES if ordered}


def _geometric(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
