"""What toolchain/host, in C++, is told of an operator: how it is called, and its autograd node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch.autograd import forward_ad

from kernelwright.contract import Operator
from kernelwright.toolchain import host

from .override import active

if TYPE_CHECKING:
    from .binding import LaunchCache


@dataclass(frozen=True)
class Node:
    """How a backward is called (`Derivative` in toolchain/host/node.h).

    Attributes:
        only: the place of the one argument that wants a gradient; -1 for any.
        sources: of the backward's arguments, (code, place): g the gradient of a result, o the same
            if it may be None; a an argument that is kept, v its value, r a result that is kept.
        gradients: of each argument: the backward's result, -2 - r for the gradient of result r, or
            -1 for none.
        fixed: of each result, whether it has no gradient.
        run, call: the backward, and the same where something may intercept calls.
    """

    only: int
    sources: tuple[tuple[str, int], ...]
    gradients: tuple[int, ...]
    fixed: tuple[bool, ...]
    run: LaunchCache
    call: Callable

    @staticmethod
    def of(
        op: Operator,
        backward: Operator,
        fixed: list[str],
        same: dict[str, str],
        run: LaunchCache,
        call: Callable,
    ) -> Node:
        """Of a backward's schema, whose names autograd.py explains. `fixed` are the results without
        a gradient, `same` is as `bind` says."""
        arguments = {a.name: (i, a.is_tensor) for i, a in enumerate(op.args)}
        results = {r: i for i, r in enumerate(op.results)}

        def source(name: str, kind: str) -> tuple[str, int]:
            if name[0] == "g" and name[1:] in results:
                return "o" if kind == "Tensor?" else "g", results[name[1:]]
            if name in arguments:
                place, is_tensor = arguments[name]
                return "a" if is_tensor else "v", place
            return "r", results[name]

        def gradient(name: str) -> int:
            of = same.get(name, name)
            if f"g{of}" in backward.results:
                return backward.results.index(f"g{of}")
            return -2 - results[of] if name in same else -1

        return Node(
            -1,
            tuple(source(a.name, a.kind) for a in backward.args),
            tuple(gradient(a.name) for a in op.args),
            tuple(r in fixed for r in op.results),
            run,
            call,
        )

    @staticmethod
    def alone(op: Operator, name: str, kept: str, run: LaunchCache, call: Callable) -> Node:
        """Of the one argument `name`: its gradient is made of the result's and of `kept`."""
        places = {a.name: i for i, a in enumerate(op.args)}
        gradients = tuple(0 if a.name == name else -1 for a in op.args)
        return Node(places[name], (("g", 0), ("a", places[kept])), gradients, (False,), run, call)

    def told(self, name: str) -> tuple[Any, ...]:
        """What C++ takes; `name` is the node's."""
        calls = self.run.in_cpp, self.call
        return (name, self.only, self.sources, self.gradients, self.fixed, *calls)


def enter(op: Operator, entry: Any, run: LaunchCache, nodes: list[Node]) -> None:
    """Let an operator's function call C++ first, once that is there. Of `nodes`, the first that
    holds for a call is made."""
    if op.mutated or any(a.kind == "Tensor[]" for a in op.args):
        return

    def connect(module: ModuleType) -> None:
        told = tuple(n.told(f"{op.torch_name}Backward") for n in nodes)
        modes = vars(forward_ad)
        entry.__globals__["in_cpp"] = module.Entry(run.in_cpp, op.torch_name, active, modes, told)

    host.when_loaded(connect)
