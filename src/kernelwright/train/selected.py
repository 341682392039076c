"""Which rungs and configs the calls of a step are dispatched to."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright import dispatch
from kernelwright.ops import introspect
from kernelwright.support.errors import UsageError

Rungs = dict[str, dict[str, int]]


class Selected(TorchDispatchMode):
    """Records the rung and config of each call inside the block, including gradients.

    Attributes:
        calls: the number of calls by operator and by rung with its config.
        varying: operators and rungs whose results may differ between runs.
    """

    def __init__(self):
        super().__init__()
        self.calls: dict[str, Counter[str]] = defaultdict(Counter)
        self.varying: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        call = None
        if func.namespace == "kernelwright":
            call = introspect.reached(func, args, kwargs or {})
        if call is not None:
            device = dispatch.device_of(call.named)
            serves = dispatch.explain(call.ladder, call.named, device, call.rung).serves
            name = " ".join([serves.rung.name, *(f"{k}={v}" for k, v in serves.config.items())])
            self.calls[call.ladder.name][name] += 1
            if not serves.rung.deterministic:
                self.varying.add(f"{call.ladder.name}.{serves.rung.name}")
        return func(*args, **(kwargs or {}))

    def rungs(self) -> Rungs:
        return {operator: dict(rungs) for operator, rungs in sorted(self.calls.items())}

    def check(self) -> None:
        """Raise UsageError if a run that must be deterministic would not be."""
        if self.varying:
            raise UsageError(
                f"deterministic: {', '.join(sorted(self.varying))} may give different bits"
            )


def changes(then: Rungs, now: Rungs) -> list[str]:
    """The changes of dispatch, by operator."""

    def shown(rungs: Rungs, name: str) -> str:
        return "/".join(rungs.get(name, {"nothing": 0}))

    names: list[Any] = sorted({*then, *now})
    return [f"{n} {shown(then, n)} to {shown(now, n)}" for n in names if then.get(n) != now.get(n)]
