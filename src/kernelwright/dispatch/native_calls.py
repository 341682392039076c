"""Calls of operators in C++ (toolchain/cpp_extension): where they are proven, how an operator is
called, and its node in autograd's graph.

An operator is called in C++ if its calls there and in Python have been compared on a GPU with the
current source (tools/prove_calls.py). Otherwise its calls stay in Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from torch.autograd import forward_ad

from kernelwright.contract import Operator
from kernelwright.support import imports, includes
from kernelwright.support.settings import DATA, settings
from kernelwright.toolchain import c_extensions, cpp_extension

from . import data
from .override import active

if TYPE_CHECKING:
    from .binding import LaunchCache


@dataclass(frozen=True)
class Node:
    """How a backward is called (`Derivative` in toolchain/cpp_extension/node.h).

    Attributes:
        only: the position of the one argument that requires a gradient; -1 for any.
        sources: (code, position) of each of the backward's arguments: g is the gradient of a
            result, o the same if it may be None, a a saved argument, v its value, r a saved result.
        gradients: for each argument: the index of the backward's result, -2 - r for the gradient of
            result r, or -1 for none.
        fixed: for each result, whether it has no gradient.
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
        """The node of a backward's schema, whose names autograd.py explains. `fixed` are the
        results without a gradient; `same` is as in `bind`."""
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
        """The node for one argument `name`; its gradient needs the result's and `kept`."""
        places = {a.name: i for i, a in enumerate(op.args)}
        gradients = tuple(0 if a.name == name else -1 for a in op.args)
        return Node(places[name], (("g", 0), ("a", places[kept])), gradients, (False,), run, call)

    def told(self, name: str) -> tuple[Any, ...]:
        """The tuple that is passed to C++; `name` is the node's."""
        calls = self.run.in_cpp, self.call
        return (name, self.only, self.sources, self.gradients, self.fixed, *calls)


#: A machine's record: {"source": a hash, "operators": {name: calls compared}}.
RECORD = "calls.json"
#: Functions of operators that C++ may enter, by operator: what `tools/prove_calls.py` calls.
entries: dict[str, Callable] = {}


@cache
def source_hash() -> str:
    """The first 16 hex digits of the SHA-256 of C and C++ without comments, and of the Python that
    describes plans and derivatives to it."""
    native = [
        *sorted(cpp_extension.FOLDER.glob("*.h")),
        cpp_extension.FOLDER / "module.cpp",
        c_extensions.SOURCE,
    ]
    python = cpp_extension.FOLDER.with_name("gpu_executor.py"), Path(__file__)
    digest = hashlib.sha256()
    for code in (*map(includes.code, native), *map(imports.code, python)):
        digest.update(code.encode() + b"\0")
    return digest.hexdigest()[:16]


@cache
def proven() -> frozenset[str]:
    """The operators that are called in C++.

    Raises:
        data.Damaged: a record is damaged.
    """
    found: set[str] = set()
    for folder in (DATA / "records", settings().records):
        for path in sorted(folder.glob(f"*/{RECORD}")) if folder else ():
            record = data.document(path, {})
            if record.get("source") == source_hash():
                found |= record["operators"].keys()
    return frozenset(found)


def start() -> None:
    """Begin to load the C++ extension, if any operator is called in C++."""
    if proven():
        cpp_extension.start()


def calls() -> str:
    """A phrase that says for how many operators C++ is proven."""
    count = len(proven())
    return f"C++ is proven for {count} operators" if count else "C++ is unproven, not used"


def status() -> str:
    """The language in which calls of operators run on a GPU, and why."""
    return f"{cpp_extension.status()}; {calls()}" if proven() else f"Python: {calls()}"


def stays_in_python(op: Operator) -> bool:
    """Whether C++ cannot call an operator: it neither increments version counters nor takes lists
    of tensors."""
    return bool(op.mutated) or any(a.kind == "Tensor[]" for a in op.args)


def install_entry(op: Operator, entry: Any, run: LaunchCache, nodes: list[Node]) -> None:
    """Let an operator's function call C++ first, once the extension is loaded. The first of `nodes`
    that applies to a call is made."""
    if stays_in_python(op):
        return
    entries[op.name] = entry

    def connect(module: ModuleType) -> None:
        if run.in_cpp is None:
            return
        told = tuple(n.told(f"{op.torch_name}Backward") for n in nodes if n.run.in_cpp is not None)
        modes = vars(forward_ad)
        entry.__globals__["in_cpp"] = module.Entry(run.in_cpp, op.torch_name, active, modes, told)

    cpp_extension.when_loaded(connect)
