"""One candidate on one case: the runs that checks examine.

A candidate runs in this process (`LocalRunner`) or in a separate one (`sandbox.Box`), with the same
interface for checks.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from kernelwright.contract import Case, Operator
from kernelwright.contract.compare import Accuracy, compare
from kernelwright.toolchain import redzones

from . import captures
from .candidate import (
    Candidate,
    Expected,
    GuardedArgs,
    NotCaptured,
    Run,
    Runner,
    address,
    all_results,
    expected,
    result_names,
    tensors,
)
from .integrity import Snapshot


@dataclass(eq=False)
class LocalRunner:
    """Runs a candidate in this process."""

    operator: Operator
    call: Callable[..., Any]
    device: str

    def fence(self, args: dict[str, Any]) -> GuardedArgs:
        return GuardedArgs(args)

    def _results(self, args: dict[str, Any]) -> tuple[Any, ...]:
        return all_results(self.operator, args, self.call(*args.values()))

    def run(self, fenced: GuardedArgs, *, guarded: bool = False) -> Run:
        problem = replaced = None
        if guarded:
            before = Snapshot()
            with redzones.guarded() as guard:
                results = self._results(fenced.args)
            if self.device == "cuda":
                torch.cuda.synchronize()
            problem, replaced = guard.check(), before.replaced()
            before.restore()
        else:
            results = self._results(fenced.args)
        outputs = results[: len(self.operator.results)]
        return Run(
            fenced,
            results,
            outputs,
            tuple(str(getattr(t, "device", "")) for t in outputs),
            tuple(map(address, outputs)),
            frozenset(map(address, tensors(fenced.args))),
            lambda: outputs,
            problem,
            replaced,
        )

    def late(self, args: dict[str, Any]) -> tuple[Any, ...]:
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # about 10 ms
            fenced = GuardedArgs(args)
            results = tuple(r.clone() for r in self._results(fenced.args))
            stream.synchronize()
        return results

    def threads_left(self, fenced: GuardedArgs) -> list[str]:
        before = set(threading.enumerate())
        self.call(*fenced.args.values())
        return [t.name for t in threading.enumerate() if t not in before]

    def growth(self, fenced: GuardedArgs, calls: int) -> int:
        torch.cuda.synchronize()
        gc.collect()  # memory in reference cycles is not a leak
        before = torch.cuda.memory_allocated()
        for _ in range(calls):
            self.call(*fenced.args.values())
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated() - before

    def capture(self, fenced: GuardedArgs) -> Callable[[], tuple[Any, ...]]:
        torch.cuda.synchronize()
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        try:
            with torch.cuda.graph(graph, pool=pool):
                results = self._results(fenced.args)
        except Exception as e:
            captures.end_recording(pool)
            raise NotCaptured(f"{type(e).__name__}: {str(e).splitlines()[0]}") from e

        def replay() -> tuple[Any, ...]:
            graph.replay()
            torch.cuda.synchronize()
            return results

        return replay


@dataclass(eq=False)
class Trial:
    """A candidate on a case. Each comparison made by a check is appended to `verdicts`.

    `seed` changes all values of the case, so that a user's kernel cannot know them in advance.
    """

    candidate: Candidate
    case: Case
    device: str
    verdicts: list[Accuracy] = field(default_factory=list)
    seed: int = 0

    @property
    def operator(self) -> Operator:
        return self.candidate.operator

    @cached_property
    def runner(self) -> Runner:
        return self.candidate.runner or LocalRunner(self.operator, self.candidate.call, self.device)

    def expected(self, seed: int = 0, tail: int = 0) -> Expected:
        """A case's expected results. `tail`: the seed of only the last values of its tensors."""
        case = replace(self.case, seed=self.seed + seed, tail=tail and self.seed + tail)
        return expected(self.operator, self.candidate.native, case, self.device)

    def fence(self, seed: int = 0) -> GuardedArgs:
        """Copies of the case's arguments, to pass to the candidate."""
        return self.runner.fence(self.expected(seed).args)

    def run(self, fenced: GuardedArgs) -> Run:
        return self.runner.run(fenced)

    @cached_property
    def first(self) -> Run:
        """The first call, with red zones and poisoned outputs."""
        return self.runner.run(self.fence(), guarded=True)

    def judge(self, results: tuple, want: Expected) -> str | None:
        """Why results are wrong by value, or None."""
        if len(results) != len(want.native):
            return f"{len(results)} results, should be {len(want.native)}"
        if self.candidate.check:
            return self.candidate.check(want.args, results) or None
        names = result_names(self.operator, want.args)
        exact = self.operator.exact
        yardstick = want.native
        if self.candidate.is_native and not self.candidate.deterministic:
            yardstick = map(_finite_of, results, want.native)
        for name, out, native, reference, noise in zip(
            names, results, yardstick, want.reference, want.noise, strict=True
        ):
            verdict = compare(out, native, reference, noise=noise, exact=exact)
            self.verdicts.append(verdict)
            if not verdict.ok:
                return f"{name}: {verdict.why}"
        return None


def _finite_of(result: torch.Tensor, native: torch.Tensor) -> torch.Tensor:
    """The yardstick for PyTorch's own function where it adds in an order that differs from call to
    call: its error in one call is no bound for its error in another, and it has no other bound.
    What is left to check is where its result is NaN or infinite."""
    return result.where(result.isfinite(), native)
