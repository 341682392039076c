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
from kernelwright.support import cuda_form, imports
from kernelwright.support.settings import RECORDS, settings
from kernelwright.toolchain import c_extensions, cpp_extension

from . import data
from .override import active

if TYPE_CHECKING:
    from .binding import LaunchCache


@dataclass(frozen=True)
class Source:
    """An argument of a backward's call (`Derivative::Source` in cpp_extension/node.h).

    Attributes:
        code: g the gradient of a result, o the same if it may be None, n the same, without which
            the call is not made; a a saved argument, v its value, r a saved result; c a constant.
        place: of the result or argument.
        transposed: whether the last two dimensions are exchanged.
        constant: a plain value.
    """

    code: str
    place: int = 0
    transposed: bool = False
    constant: Any = None


@dataclass(frozen=True)
class Call:
    """A call of an operator in a backward.

    Attributes:
        operator: its name.
        sources: its arguments.
        gradients: (argument of the forward, result of the call that is its gradient, whether that
            is transposed).
        matrix, columns: the call is made only if this argument of the forward is stored by columns,
            or by rows; -1 for any.
    """

    operator: str
    sources: tuple[Source, ...]
    gradients: tuple[tuple[int, int, bool], ...]
    matrix: int = -1
    columns: bool = False


@dataclass(frozen=True)
class Node:
    """How gradients are computed (`Derivative` in cpp_extension/node.h).

    Attributes:
        calls: one for the most part, of the operator's backward.
        passed: for each argument, the result whose gradient is its own; -1 for none.
        fixed: for each result, whether it has no gradient.
        when: (argument, value) that calls must have, others are differentiated in Python.
        alike: whether all tensors of a call must have one shape and dtype.
        half: whether they must not be float32, nor cast by autocast.
    """

    calls: tuple[Call, ...]
    passed: tuple[int, ...]
    fixed: tuple[bool, ...]
    when: tuple[tuple[int, Any], ...] = ()
    alike: bool = False
    half: bool = False

    @staticmethod
    def of(op: Operator, backward: Operator, fixed: list[str], same: dict[str, str]) -> Node:
        """The node of a backward's schema, whose names autograd.py explains. `fixed` are the
        results without a gradient; `same` is as in `bind`."""
        arguments = {a.name: (i, a.is_tensor) for i, a in enumerate(op.args)}
        results = {r: i for i, r in enumerate(op.results)}

        def source(name: str, kind: str) -> Source:
            if name[0] == "g" and name[1:] in results:
                return Source("o" if kind == "Tensor?" else "g", results[name[1:]])
            if name in arguments:
                place, is_tensor = arguments[name]
                return Source("a" if is_tensor else "v", place)
            return Source("r", results[name])

        gradients, passed = [], []
        for i, a in enumerate(op.args):
            of = same.get(a.name, a.name)
            computed = f"g{of}" in backward.results
            if computed:
                gradients.append((i, backward.results.index(f"g{of}"), False))
            passed.append(results[of] if not computed and a.name in same else -1)
        call = Call(
            backward.name, tuple(source(a.name, a.kind) for a in backward.args), tuple(gradients)
        )
        return Node((call,), tuple(passed), tuple(r in fixed for r in op.results))

    @staticmethod
    def alone(op: Operator, name: str, kept: str) -> Node:
        """The node for one argument `name`; its gradient is the operator's result for that of its
        own result and `kept`."""
        places = {a.name: i for i, a in enumerate(op.args)}
        sources = Source("g", 0), Source("a", places[kept])
        call = Call(op.name, sources, ((places[name], 0, False),))
        return Node((call,), (-1,) * len(op.args), (False,), alike=True)

    @property
    def is_proven(self) -> bool:
        """Whether all of its calls can be made in C++."""
        return all(caches[c.operator].in_cpp is not None for c in self.calls)

    def told(self, name: str) -> tuple[Any, ...]:
        """The tuple that is passed to C++; `name` is the node's."""
        calls = tuple(
            (
                caches[c.operator].in_cpp,
                entries[c.operator],
                tuple((s.code, s.place, s.transposed, s.constant) for s in c.sources),
                c.gradients,
                c.matrix,
                c.columns,
            )
            for c in self.calls
        )
        return name, calls, self.passed, self.fixed, self.when, self.alike, self.half


#: A machine's record: {"source": a hash, "operators": {name: calls compared}}.
RECORD = "calls.json"
#: Functions of operators that C++ may enter, by operator: what `tools/prove_calls.py` calls.
entries: dict[str, Callable] = {}
#: What runs them.
caches: dict[str, LaunchCache] = {}


@cache
def source_hash() -> str:
    """The first 16 hex digits of the SHA-256 of C and C++, and of the Python that describes plans
    and derivatives to it, in forms without comments, messages and local names."""
    native = [
        *sorted(cpp_extension.FOLDER.glob("*.h")),
        cpp_extension.FOLDER / "module.cpp",
        c_extensions.SOURCE,
    ]
    python = cpp_extension.FOLDER.with_name("gpu_executor.py"), Path(__file__)
    digest = hashlib.sha256()
    for code in (*cuda_form.codes(native), *map(imports.code, python)):
        digest.update(code.encode() + b"\0")
    return digest.hexdigest()[:16]


@cache
def proven() -> frozenset[str]:
    """The operators that are called in C++.

    Raises:
        data.Damaged: a record is damaged.
    """
    found: set[str] = set()
    for folder in (RECORDS, settings().records):
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
    entries[op.name], caches[op.name] = entry, run

    def connect(module: ModuleType) -> None:
        if run.in_cpp is None:
            return
        told = tuple(n.told(f"{op.torch_name}Backward") for n in nodes if n.is_proven)
        modes = vars(forward_ad)
        entry.__globals__["in_cpp"] = module.Entry(run.in_cpp, op.torch_name, active, modes, told)

    cpp_extension.when_loaded(connect)
