"""Times one ladder on one case: its rungs, PyTorch, peers, guests and roofs, in one run."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from kernelwright.contract import H200, Case, Ladder, Peer, Rung
from kernelwright.contract.compare import Accuracy
from kernelwright.dispatch import entry_of, launcher, source_hash, specs_of, unsupported
from kernelwright.dispatch.selection import config_of
from kernelwright.machine import (
    clock,
    gpu_of,
    last_level_cache,
    slug,
    stats,
    timers,
)
from kernelwright.workbench.records import metrics, records
from kernelwright.workbench.records.records import Record
from kernelwright.workbench.verify.candidate import (
    Expected,
    all_results,
    copy_of,
    expected,
    map_tensors,
)
from kernelwright.workbench.verify.large_tensors import right
from kernelwright.workbench.verify.raised import one_line

from . import roofs
from .bottleneck import bound
from .cpu_verification import stand_in
from .result import BenchResult, Guest, Skipped
from .workload import peers_of, set_bytes, sets_of

SHIPPED = "nvidia-h200"  # the machine whose records are shown for rungs that cannot be timed here


@dataclass
class CaseBench:
    """One ladder on one case: make the inputs, verify each rung, then time all of them."""

    ladder: Ladder
    case: Case
    device: torch.device
    rule: clock.StoppingRule
    launch_us: float
    result: BenchResult
    stand_ins: dict[tuple[str, str], str]
    say: Callable[[str], None] = lambda words: None

    def run(self, peers: bool, guests: Sequence[Guest] = ()) -> Iterator[Record]:
        operator = self.ladder.operator
        self._give_back()
        with clock.session(self.device):
            native = entry_of(self.ladder, self.ladder.rung("native"))
            self.say("PyTorch's result, and the reference in float64")
            want = expected(operator, native, self.case, self.device.type)
            self._give_back()
            self.specs, _ = operator.normalise(specs_of(want.args))
            self.cost = operator.cost(**self.specs)
            self.set_bytes = set_bytes(operator, want.args)
            by_name, candidates, roofs_of = {}, [], ""
            sets = sets_of(operator, self.case, self.device, want)
            for rung in self.ladder.rungs:
                record, call = self._rung(rung, want)
                self._give_back()
                if record:
                    by_name[rung.name] = record
                if call:
                    calls = [partial(call, *args.values()) for args in sets]
                    candidates.append(self._candidate(rung.name, calls))
            for peer in self._peers(peers):
                name = f"peer:{peer.name}"
                record, calls = self._peer(peer, want, sets)
                self._give_back()
                if record:
                    by_name[name] = record
                if calls and peer.syncs_host:
                    track = partial(timers.launched, calls, self.device)
                    candidates.append(clock.Candidate(name, (), self.cost.bytes, track=track))
                elif calls:
                    candidates.append(self._candidate(name, calls))
            for guest in guests:
                by_name[guest.name], track = self._guest(guest, want, sets)
                if track:
                    candidates.append(clock.Candidate(guest.name, (), self.cost.bytes, track=track))
            del want
            self._give_back()
            calls = [partial(native, *args.values()) for args in sets]
            by_name["control"] = self._record("control", "pass")
            candidates.append(clock.Candidate("control", calls, self.cost.bytes))
            if any(sum(side) for side in (self.cost.reads, self.cost.writes)):
                roofs_of = roofs.nearest(self.cost.mix, self.device)
                candidates += roofs.roof_candidates(roofs_of, self.cost.bytes, self.device)
            candidates += roofs.product_candidates(self.cost.products, self.device)
            self.say("timing")
            measured = clock.measure(candidates, self.device, self.rule)
            del sets, candidates, calls
        self._note(measured)
        yield from self._finished(by_name, measured.times, roofs_of)

    def _give_back(self) -> None:
        """Return freed memory to the driver. The references of a large case fragment the
        allocator's memory, and graphs use their own pool, which cannot take the fragments."""
        if self.device.type == "cuda":
            gc.collect()  # autograd graphs of peers hold memory in cycles
            torch.cuda.empty_cache()

    def _candidate(self, name: str, calls: list[Callable]) -> clock.Candidate:
        gpu = self.device.type == "cuda"
        warm = self.set_bytes <= last_level_cache(self.device) // 2
        return clock.Candidate(name, calls, self.cost.bytes, warm=warm, host=gpu)

    def _record(self, rung: str, outcome: str, why: str = "", **rest) -> Record:
        return Record(
            self.ladder.name, rung, self.case.id, slug(self.device), self.result.run, outcome,
            why=why, bytes=self.cost.bytes, flops=self.cost.flops, **rest,
        )  # fmt: skip

    def _skip(self, rung: str, why: str, elsewhere: Record | None = None) -> None:
        self.result.skipped.append(Skipped(self.ladder.name, rung, self.case.id, why, elsewhere))

    def _rung(self, rung: Rung, want: Expected) -> tuple[Record | None, Callable | None]:
        """The rung's record so far, and its bound function if it is right."""
        self.say(f"is {rung.name} right?")
        if self.device.type != "cuda" and rung.is_gpu:
            shipped = _shipped(self.ladder, rung, self.case)
            self._skip(rung.name, f"{self._stand_in(rung)}; timed on {SHIPPED}", shipped)
            return None, None
        why = unsupported(rung, self.specs, self.device)
        if why:
            self._skip(rung.name, why)
            return None, None
        config = config_of(self.ladder, rung, gpu_of(self.device) or H200, self.specs)
        rest: dict[str, Any] = {"config": config, "hash": source_hash(self.ladder, rung)}
        try:
            call = launcher(self.ladder, want.args, rung.name, config)
            args = self._private(want)
            verdict = right(
                self.ladder.operator,
                want,
                all_results(self.ladder.operator, args, call(*args.values())),
            )
        except torch.OutOfMemoryError as e:
            return self._no_memory(rung.name, e), None
        except Exception as e:  # noqa: BLE001 - whatever a rung raises is its outcome, and is shown
            return self._record(rung.name, "error", one_line(e), **rest), None
        rest["error"] = asdict(verdict.error) if verdict.error else None
        rest["budget"] = asdict(verdict.budget) if verdict.budget else None
        if not verdict.ok:
            return self._record(rung.name, "wrong", verdict.why, **rest), None
        rest["workspace"] = self._workspace(lambda: call(*args.values()))
        return self._record(rung.name, "pass", **rest), call

    def _no_memory(self, name: str, error: torch.OutOfMemoryError) -> None:
        """Lacking memory is a property of this GPU, not a fault of the rung."""
        self._skip(name, f"not run: memory. {one_line(error)}")

    def _private(self, want: Expected) -> dict[str, Any]:
        """The arguments, copied if the operator changes them."""
        return map_tensors(want.args, copy_of) if self.ladder.operator.mutated else want.args

    def _stand_in(self, rung: Rung) -> str:
        """What was done on this machine with a rung that only a GPU can time; done once for all
        cases."""
        key = self.ladder.name, rung.name
        if key not in self.stand_ins:
            self.stand_ins[key] = stand_in(self.ladder, rung, self.device)
        return self.stand_ins[key]

    def _peers(self, wanted: bool) -> Iterator[Peer]:
        for peer in peers_of(self.ladder):
            if not wanted:
                self._skip(f"peer:{peer.name}", "peers were not requested")
            elif importlib.util.find_spec(peer.requires) is None:
                self._skip(f"peer:{peer.name}", f"{peer.requires} is not installed")
            elif self.device.type != "cuda":
                self._skip(f"peer:{peer.name}", "needs a GPU")
            else:
                yield peer

    def _peer(self, peer: Peer, want: Expected, sets) -> tuple[Record | None, list[Callable]]:
        name = f"peer:{peer.name}"
        try:
            args = self._private(want)
            run = peer.make(**args)
            results = all_results(self.ladder.operator, args, run())
            if peer.random:
                verdict = Accuracy([_form(r) for r in results] == [_form(r) for r in want.native])
            else:
                verdict = right(self.ladder.operator, want, results)
            if not verdict.ok and not near(verdict):
                return self._record(name, "wrong", verdict.why), []
            del results
            workspace = self._workspace(run)
            calls = [peer.make(**args) for args in sets]
        except torch.OutOfMemoryError as e:
            return self._no_memory(name, e), []
        except NotImplementedError as e:
            return self._skip(name, f"does not compute this case: {one_line(e)}"), []
        except Exception as e:  # noqa: BLE001 - whatever a library raises is shown
            return self._record(name, "error", one_line(e)), []
        why = "" if verdict.ok else f"less accurate than our error budget: {verdict.why}"
        error = asdict(verdict.error) if verdict.error else None
        return self._record(name, "pass", why, error=error, workspace=workspace), calls

    def _workspace(self, run: Callable[[], Any]) -> int:
        """Peak bytes of a call after warm-up, in addition to its results."""
        if self.device.type != "cuda":
            return 0
        gc.collect()  # otherwise memory held in cycles would be freed during the call
        torch.cuda.reset_peak_memory_stats(self.device)
        results = run()
        most, kept = torch.cuda.max_memory_allocated(self.device), torch.cuda.memory_allocated()
        del results
        return most - kept

    def _guest(self, guest: Guest, want: Expected, sets) -> tuple[Record, Callable | None]:
        try:
            verdict, track = guest.enter(self.case, want, sets)
        except Exception as e:  # noqa: BLE001 - whatever a guest raises is shown
            return self._record(guest.name, "error", one_line(e)), None
        error = asdict(verdict.error) if verdict.error else None
        budget = asdict(verdict.budget) if verdict.budget else None
        outcome = "pass" if verdict.ok else "wrong"
        record = self._record(guest.name, outcome, verdict.why, error=error, budget=budget)
        return record, track if verdict.ok else None

    def _note(self, measured: clock.Result) -> None:
        """Store the run's noise and the driver's clock readings."""
        name = f"{self.ladder.name} {self.case.id}"
        native, again = (measured.times.get(n) for n in ("native", "control"))
        if native and again and native.cold and again.cold:
            spread = stats.noise(native.cold, again.cold)
            self.result.noise[self.ladder.name, self.case.id] = spread
        if measured.readings:
            mhz = [r.sm_mhz for r in measured.readings if r.sm_mhz]
            self.result.environment["clocks"][name] = {
                "sm_mhz": [min(mhz), max(mhz)] if mhz else None,
                "spread": round(measured.clock_spread, 4),
                "watts": max(r.watts or 0.0 for r in measured.readings),
                "throttled": sorted({t for r in measured.readings for t in r.throttled}),
            }

    def _finished(self, by_name, times, mix: str) -> Iterator[Record]:
        """The records with their times; the roof's is that of its fastest candidate."""
        roof = {n: t for n, t in times.items() if n.startswith(f"roof:{mix} ") and t.cold}
        best = min(roof, key=lambda n: stats.median(roof[n].cold), default=None)
        roof_us = None
        if best:
            roof_us = stats.median(roof[best].cold)
            config = {"kernel": best.split(" ", 1)[1]}
            record = self._record(f"roof:{mix}", "pass", config=config)
            yield replace(record, cold=roof[best].cold, flops=0)
        products = list(self._product_roofs(times))
        yield from products
        products_us = metrics.least_of_products(products)
        for name, record in by_name.items():
            t = times.get(name)
            if t is None or record.outcome != "pass":
                yield record
            elif t.error:
                yield replace(record, outcome="error", why=t.error)
            else:
                limit = bound(
                    stats.median(t.cold),
                    roof_us,
                    self.launch_us,
                    self.cost,
                    self.device,
                    products_us,
                )
                yield replace(record, cold=t.cold, warm=t.warm, host=t.host, bound=limit)

    def _product_roofs(self, times: dict[str, clock.Times]) -> Iterator[Record]:
        """The matrix-product roofs for each kind of product in the cost."""
        n = roofs.product_size(self.device)
        for kind, operations in self.cost.products.items():
            t = times[f"roof:{kind} {n}x{n}x{n}"]
            record = self._record(f"roof:{kind}", "error" if t.error else "pass", t.error)
            config = {"size": n, "operations": operations}
            yield replace(record, config=config, cold=t.cold, bytes=0, flops=2 * n**3)


def _form(t: torch.Tensor) -> tuple:
    return t.shape, t.dtype


def near(verdict: Accuracy) -> bool:
    """A peer may be less accurate than a rung, but it must compute the same function."""
    return bool(verdict.error and verdict.budget and verdict.error.norm <= 10 * verdict.budget.norm)


def _shipped(ladder: Ladder, rung: Rung, case: Case) -> Record | None:
    shipped = records.load(SHIPPED, ladder.name)
    mine = [r for r in shipped if r.rung == rung.name and r.case == case.id and r.cold]
    return min(mine, key=lambda r: stats.median(r.cold), default=None)
