"""A sandboxed kernel as a `candidate.Runner`: checks become requests to its process."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from kernelwright.contract import Operator
from kernelwright.toolchain import redzones
from kernelwright.workbench.verify.candidate import (
    GuardedArgs,
    NotCaptured,
    Run,
    all_results,
    copy_of,
    filler,
    map_tensors,
    tensors,
)

from .sandbox import Box, Failed


@dataclass(eq=False)
class Made(Run):
    """A run in a sandbox, its process's description of each output, and whether PyTorch's operators
    wrote to a locked argument."""

    described: list[dict[str, Any]] = field(default_factory=list)
    written: bool = False


class SandboxRunner:
    """The function that a box has loaded, as a `candidate.Runner`. Results are copied into memory
    that the parent has overwritten with other values before.

    Args:
        arguments_of: turns arguments by name into {"listed": [...], "named": {...}}.
        lockable: only the kernel writes to its arguments, so they can be locked: without a GPU
            their memory is read-only. (An interpreter copies every argument back.)
        refused: ids of the cases that the function is known to reject.
        watchable: it is emulated CUDA C++, whose memory accesses and barriers can be checked.
    """

    def __init__(
        self,
        box: Box,
        operator: Operator,
        arguments_of: Callable[[dict], dict[str, Any]],
        lockable: bool = False,
        refused: set[str] | None = None,
        watchable: bool = False,
    ):
        self.box, self.operator, self.arguments_of = box, operator, arguments_of
        self.lockable, self.watchable = lockable, watchable
        self.refused = set[str]() if refused is None else refused

    def fence(self, args: dict[str, Any]) -> GuardedArgs:
        blocks: list[int] = []
        arena = self.box.arena
        fenced = GuardedArgs(args, lambda count, t: arena.empty(count, t.dtype, blocks))
        weakref.finalize(fenced, arena.release, blocks)
        return fenced

    def run(self, fenced: GuardedArgs, *, guarded: bool = False, locked: bool = False) -> Made:
        """Call the function, and wait for its results. `locked`: without a GPU, a process that
        writes to its arguments is ended."""
        box, run = self.box, self.box.next()
        answer = box.process.ask(
            "run",
            run=run,
            args=self.told(fenced.args, locked),
            guarded=guarded,
            poison=[t.nbytes for t in tensors(fenced.args)],
            release=box.released(),
        )
        described = answer["results"]
        outputs = self._fetch("fetch", run, described)
        problem = answer["allocations"]
        if guarded and problem is None:
            names = zip(self.operator.results, outputs, strict=False)
            copied = ((n, t) for n, t in names if isinstance(t, torch.Tensor) and not t.is_meta)
            problem = next(filter(None, (redzones.unwritten(n, t) for n, t in copied)), None)
        results = Made(
            fenced,
            all_results(self.operator, fenced.args, outputs),
            outputs,
            tuple(str(d.get("device", self.box.device)) for d in described),
            tuple(int(d.get("storage", 0)) for d in described),
            frozenset(map(int, answer["lent"])),
            lambda: self._fetch("fetch", run, described),
            problem,
            answer["replaced"],
            described,
            answer["written"],
        )
        weakref.finalize(results, box.forget, run)
        return results

    def timed(self, call: int, fenced: GuardedArgs) -> tuple[Any, ...]:
        """The current results of one of the timed calls."""
        described = self.box.process.ask("timed", call=call)
        outputs = self._fetch("fetch_timed", call, described)
        return all_results(self.operator, fenced.args, outputs)

    def _fetch(self, do: str, run: int, described: list[dict[str, Any]]) -> tuple[Any, ...]:
        blocks: list[int] = []
        slots = [self._slot(d, blocks) for d in described]
        told = [None if s is None else self.box.arena.describe(s) for s in slots]
        self.box.process.ask(do, run=run, slots=told)
        outputs = tuple(_result(d, s) for d, s in zip(described, slots, strict=True))
        self.box.arena.release(blocks)
        return outputs

    def _slot(self, described: dict[str, Any], blocks: list[int]) -> torch.Tensor | None:
        """Overwritten memory for a result; None if the result is not to be copied."""
        if described["type"] != "Tensor":
            return None
        dtype: torch.dtype = getattr(torch, described["dtype"])
        shape, stride = described["shape"], described["stride"]
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        extent = extent if 0 not in shape else 0
        here = torch.device(described["device"]) == self.box.device
        if not here or not 0 <= extent * dtype.itemsize <= self.box.arena.largest:
            return None
        slot = self.box.arena.empty(extent, dtype, blocks).fill_(filler(dtype))
        return slot.as_strided(shape, stride, slot.storage_offset())

    def told(self, args: dict[str, Any], locked: bool = False) -> dict[str, Any]:
        mutated = {id(t) for n in self.operator.mutated for t in tensors({n: args[n]})}

        def memory(t: torch.Tensor) -> dict[str, Any]:
            return {**self.box.arena.describe(t), "locked": locked and id(t) not in mutated}

        def told(v: Any) -> dict[str, Any]:
            if isinstance(v, torch.Tensor):
                return {"t": memory(v)}
            if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor):
                return {"l": [memory(t) for t in v]}
            if isinstance(v, torch.dtype):
                return {"dtype": str(v).removeprefix("torch.")}
            return {"v": v}

        bound = self.arguments_of(args)
        return {
            "listed": [told(v) for v in bound["listed"]],
            "named": {k: told(v) for k, v in bound["named"].items()},
        }

    def late(self, args: dict[str, Any]) -> tuple[Any, ...]:
        staged, fenced = self.fence(args), self.fence(map_tensors(args, torch.empty_like))
        described = self.run(self.fence(args)).described
        blocks: list[int] = []
        slots = [self._slot(d, blocks) for d in described]
        describe = self.box.arena.describe
        self.box.process.ask(
            "late",
            args=self.told(fenced.args),
            staged=[describe(t) for t in tensors(staged.args)],
            slots=[None if s is None else describe(s) for s in slots],
        )
        outputs = tuple(_result(d, s) for d, s in zip(described, slots, strict=True))
        self.box.arena.release(blocks)
        return all_results(self.operator, fenced.args, outputs)

    def watched(self, fenced: GuardedArgs) -> dict[str, str]:
        """The findings of the emulator's checks in a call of a kernel of a .cu, by check."""
        findings = self.box.process.ask("watched", args=self.told(fenced.args))
        return {str(check): str(text) for check, text in findings.items()}

    def threads_left(self, fenced: GuardedArgs) -> list[str]:
        return list(map(str, self.box.process.ask("threads", args=self.told(fenced.args))))

    def growth(self, fenced: GuardedArgs, calls: int) -> int:
        return int(self.box.process.ask("growth", args=self.told(fenced.args), calls=calls))

    def capture(self, fenced: GuardedArgs) -> Callable[[], tuple[Any, ...]]:
        run = self.box.next()
        try:
            described = self.box.process.ask("capture", run=run, args=self.told(fenced.args))
        except Failed as e:
            raise NotCaptured(str(e).splitlines()[0]) from e

        def replay() -> tuple[Any, ...]:
            outputs = self._fetch("replay", run, described)
            return all_results(self.operator, fenced.args, outputs)

        return replay


def _result(described: dict[str, Any], slot: torch.Tensor | None) -> Any:
    """A private copy of a result, to which the kernel's process cannot write."""
    if slot is not None:
        return copy_of(slot)
    if described["type"] == "Tensor":  # on another device, or of an implausible size
        dtype = getattr(torch, described["dtype"])
        shape, stride = described["shape"], described["stride"]
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return type(described["type"], (), {})()
