"""Triton rungs as kernels of an AOTInductor package.

In the table of decompositions an operator's entry is replaced by the launches of its Triton rung,
which PyTorch compiles into the package. A package serves every size of its dynamic dimensions, so a
rung is used only for a call whose plan is the same for all of them: the plan is made with open
sizes, and each condition that it relied on must follow from the ranges of the dimensions. The open
sizes are odd, so that a plan does not rely on a divisibility, which would spare it masks; a plan
that was made without it serves divisible sizes too. All other calls are decomposed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
from torch._higher_order_ops.triton_kernel_wrap import (
    kernel_side_table,
    triton_kernel_wrapper_functional,
)
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from kernelwright.contract import (
    H200,
    Gpu,
    Ladder,
    Launch,
    Plan,
    Rung,
    Scalar,
    TensorSpec,
    TritonKernel,
)
from kernelwright.contract.symbolic_int import SymbolicInt, Trace, source
from kernelwright.dispatch import ladders
from kernelwright.dispatch.autograd import of_forward
from kernelwright.dispatch.launcher import entry_of
from kernelwright.dispatch.proof import proven_on
from kernelwright.dispatch.selection import config_of, select, unsupported_on
from kernelwright.machine import gpu_of

from . import decompositions


@dataclass(frozen=True)
class Kept:
    """What became of a call.

    Attributes:
        rung: the Triton rung whose kernels are in the package; "" if the call is decomposed.
        why: why it is decomposed.
    """

    operator: str
    rung: str = ""
    why: str = ""


#: If "((n0 % 16) == 0)" was false, the plan is one for all sizes.
_DIVISIBLE = re.compile(r"\(\(.* % \d+\) == 0\)")


class _Unfit(Exception):
    """A rung cannot be used for a call; the message says why."""


def table(kept: list[Kept]) -> dict[Any, Callable]:
    """The table of decompositions with Triton rungs. What becomes of each call is appended to
    `kept`."""
    formulas = decompositions.table()
    for ladder in ladders():
        if not ladder.operator.mutated and any(r.backend == "triton" for r in ladder.rungs):
            overload = decompositions.overload_of(ladder.operator)
            formulas[overload] = _with_kernels(ladder, formulas[overload], kept)
    return formulas


def _with_kernels(ladder: Ladder, otherwise: Callable, kept: list[Kept]) -> Callable:
    op = ladder.operator

    def launched(*args: Any, rung: str | None = None) -> Any:
        full = (*args, *(a.default for a in op.args[len(args) :]))
        named = dict(zip((a.name for a in op.args), full, strict=True))
        try:
            result, used = _Call(ladder, named, rung).launched()
        except _Unfit as e:
            kept.append(Kept(op.name, why=str(e)))
            return otherwise(*args)
        kept.append(Kept(op.name, used.name))
        return result

    return launched


class _Call:
    """A call of an operator with tensors of symbolic sizes.

    Attributes:
        trace: the open sizes, of which there is one for each different symbolic expression.
        sizes: the symbolic integer of each open size.
    """

    def __init__(self, ladder: Ladder, named: dict[str, Any], rung: str | None):
        self.ladder, self.op, self.asked = ladder, ladder.operator, of_forward(rung)
        self.named = {k: _contiguous(v) for k, v in named.items()}
        self.device = next(v.device for v in named.values() if isinstance(v, torch.Tensor))
        self.gpu: Gpu = gpu_of(self.device) or H200
        self.trace, self.sizes = Trace({}), dict[str, Any]()
        self._by_expression: dict[Any, SymbolicInt] = {}

    def launched(self) -> tuple[Any, Rung]:
        rung = self._rung()
        plan = self._plan(rung)
        tensors = {k: v for k, v in self.named.items() if isinstance(v, torch.Tensor)}
        results = {
            name: self._empty(spec)
            for name, spec in zip(self.op.results, self.op.outputs(**self._specs()), strict=True)
        }
        scratch = {
            n: self._empty(s.spec).zero_() if s.zero else self._empty(s.spec)
            for n, s in plan.scratch.items()
        }
        self.written = {*results, *scratch}
        tensors |= {**results, **scratch}
        for launch in plan.launches:
            self._launch(launch, tensors)
        out = tuple(tensors[n] for n in self.op.results)
        return (out[0] if len(out) == 1 else out), rung

    def _rung(self) -> Rung:
        """The rung for the sizes of the trace: the one that is dispatched on this GPU, or the first
        proven Triton rung in the ladder's order."""
        specs = _hinted(self._specs())
        if gpu_of(self.device) is not None:
            chosen = select(self.ladder, specs, self.device, self.asked).rung
            if chosen.backend in ("triton", "torch", "inductor"):
                if chosen.backend == "triton":
                    return chosen
                raise _Unfit(f"{chosen.name} is dispatched")
        order = [*self.ladder.order(self.gpu, **specs)]
        last = len(order)
        for rung in sorted(
            self.ladder.rungs, key=lambda r: order.index(r.name) if r.name in order else last
        ):
            fits = rung.backend == "triton" and rung.dispatchable and proven_on(self.ladder, rung)
            if fits and unsupported_on(rung, specs, self.gpu) is None:
                return rung
        raise _Unfit("no proven Triton rung supports the call")

    def _plan(self, rung: Rung) -> Plan:
        config = config_of(self.ladder, rung, self.gpu, _hinted(self._specs()))
        specs = self._specs()
        try:
            reason = rung.supports(self.gpu, **specs) if rung.supports else None
            plan = entry_of(self.ladder, rung)(self.gpu, config, **specs)
        except TypeError as e:
            raise _Unfit(f"the plan of {rung.name} depends on a size: {e}") from None
        if reason:
            raise _Unfit(f"{rung.name}: {reason}")
        for expression, value in self.trace.decisions.items():
            if not self._holds(expression, value):
                raise _Unfit(f"the plan of {rung.name} needs {expression} == {value}")
        if plan.constants:
            raise _Unfit(f"{rung.name} has tables in device memory")
        return plan

    def _specs(self) -> dict[str, Any]:
        return {k: self._spec(v) if isinstance(v, torch.Tensor) else v
                for k, v in self.named.items()}  # fmt: skip

    def _spec(self, t: torch.Tensor) -> TensorSpec:
        return TensorSpec.contiguous([self._open(n) for n in t.shape], t.dtype)

    def _open(self, size: Any) -> Any:
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._by_expression:
            name = f"n{len(self.sizes)}"
            self.sizes[name], self.trace.values[name] = size, _odd(size)
            self._by_expression[expression] = self.trace.size(name)
        return self._by_expression[expression]

    def _value(self, expression: str) -> Any:
        """The symbolic integer, or the condition, that an expression over open sizes is."""
        return eval(expression, {"gcd": _gcd}, dict(self.sizes))

    def _holds(self, expression: str, decided: int) -> bool:
        if decided is False and _DIVISIBLE.fullmatch(expression):
            return True
        value = self._value(expression)
        if decided is False:
            return statically_known_true(torch.sym_not(value))
        return statically_known_true(value if decided is True else sym_eq(value, decided))

    def _symbolic(self, value: Any) -> Any:
        return self._value(source(value)) if isinstance(value, SymbolicInt) else value

    def _empty(self, spec: TensorSpec) -> torch.Tensor:
        shape, strides = ([self._symbolic(n) for n in x] for x in (spec.shape, spec.strides))
        return torch.empty_strided(shape, strides, dtype=spec.dtype, device=self.device)

    def _launch(self, launch: Launch, tensors: dict[str, torch.Tensor]) -> None:
        """Add a launch to the graph. The graph is functional: the operator returns copies of the
        tensors that the kernel writes, which Inductor later removes."""
        kernel = launch.kernel
        assert isinstance(kernel, TritonKernel)
        names = kernel.fn.arg_names[: len(launch.args)]
        args = {n: self._argument(a, tensors) for n, a in zip(names, launch.args, strict=True)}
        tuned = triton.Config({}, num_warps=kernel.num_warps, num_stages=kernel.num_stages)
        fn = triton.autotune([tuned], key=[])(kernel.fn)
        graphed = {n: v for n, v in args.items() if isinstance(v, (torch.Tensor, torch.SymInt))}
        fixed = {n: v for n, v in args.items() if n not in graphed} | kernel.constexprs
        of = self._written_by(dict(zip(names, launch.args, strict=True)))
        results = triton_kernel_wrapper_functional(
            kernel_idx=kernel_side_table.add_kernel(fn),
            constant_args_idx=kernel_side_table.add_constant_args(fixed),
            grid=[tuple(self._symbolic(n) for n in launch.grid)],
            tma_descriptor_metadata={},
            kwargs=graphed,
            tensors_to_clone=list(of),
        )
        tensors.update({of[n]: t for n, t in results.items()})

    def _written_by(self, arguments: dict[str, Any]) -> dict[str, str]:
        """The results and workspace that a launch writes, by parameter. A plan may pass a tensor a
        second time, for a parameter that the kernel does not use."""
        written: dict[str, str] = {}
        for tensor in self.written:
            takes = [n for n, a in arguments.items() if isinstance(a, str) and a == tensor]
            named = [n for n in takes if n == f"{tensor}_ptr"] if len(takes) > 1 else takes
            if takes and not named:
                raise _Unfit(f"it passes {tensor} as {' and '.join(takes)}")
            written |= dict.fromkeys(named, tensor)
        return written

    def _argument(self, argument: Any, tensors: dict[str, torch.Tensor]) -> Any:
        if isinstance(argument, str):
            return tensors[argument]
        if not isinstance(argument, Scalar) or argument.ctype not in ("i32", "i64", "f32"):
            raise _Unfit(f"an argument {argument} has no equivalent in a package")
        if isinstance(argument.value, str):
            return float(self.named[argument.value])
        return self._symbolic(argument.value)


def _odd(size: torch.SymInt) -> int:
    """An odd value of a symbolic size, near that of the trace."""
    hint = int(size.node.hint)
    return hint if hint % 2 else hint + 1


def _gcd(a: Any, b: Any) -> int:
    """The common divisor of plain integers; 0, which no plan needs, if it depends on a size."""
    return math.gcd(a, b) if isinstance(a, int) and isinstance(b, int) else 0


def _contiguous(v: Any) -> Any:
    return v.contiguous() if isinstance(v, torch.Tensor) else v


def _hinted(specs: dict[str, Any]) -> dict[str, Any]:
    """The specs with the sizes of the trace as plain integers."""

    def plain(n: Any) -> int:
        return n.value if isinstance(n, SymbolicInt) else n

    return {
        k: TensorSpec(tuple(map(plain, v.shape)), tuple(map(plain, v.strides)), v.dtype, v.align)
        if isinstance(v, TensorSpec)
        else v
        for k, v in specs.items()
    }
