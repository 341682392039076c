"""The autograd of an operator: a kernel at the dispatcher's key Autograd, so that everything that
differentiates PyTorch's operators differentiates ours (functorch, torch.compile, an exported
program, a direct call of torch.ops), and a faster Function for plain eager calls.

Backward schemas are read by name: argument `gy` is the gradient of result `y`, any other name is
the forward's argument or result of that name (and is saved), result `gx` is the gradient of `x`.
An argument `Tensor? gh` is None if result `h` received no gradient; a `Tensor gh` is zeros then.

Both save the same values for the backward. `kernel` applies a Function whose forward continues
below autograd, once for each level of functorch. `eager` is for calls that nothing intercepts: its
forward runs the operator itself, and autograd's engine calls its backward directly.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from kernelwright.contract import Ladder, Operator, TensorSpec

from .double_backward_guard import Unpacked, alive, refusing
from .generated import INTERCEPTION_CHECKS, compiled, listed, spec_of, special
from .launcher import entry_of
from .native_calls import Node
from .override import active

if TYPE_CHECKING:
    from .binding import LaunchCache, Runs


@dataclass
class Derivative:
    """A gradient as plain code over plain values.

    Attributes:
        keep: statements that save in `ctx` what the backward takes: arguments, results and `rung`.
        backward: `backward(ctx, *gradients of results)` returns the gradients of the arguments and
            of `rung`.
        names: globals of `keep`; `eager_names`: those that differ in the eager Function.
        node: the derivative for C++, instead of the eager Function; None if it has no such form.
    """

    keep: str
    backward: Callable
    names: dict[str, Any] = field(default_factory=dict)
    eager_names: dict[str, Any] = field(default_factory=dict)
    node: Node | None = None


def kernel(
    op: Operator,
    run: Runs,
    overload: Any,
    derivative: Derivative,
    apply: Callable,
    differentiable: Callable,
    composed: bool,
) -> Callable:
    """The operator's kernel at the key Autograd: `kernel(keys, *args, rung=None)`.

    Args:
        apply: for calls that nothing intercepts; see `eager`.
        differentiable: plain PyTorch that forward mode differentiates.
        composed: the operator only calls others, which show themselves to what intercepts calls.
    """
    results = ", ".join(op.results)
    forward = f"""
def forward(ctx, {listed(op)}, rung, keys):
    {results} = lowered(overload, keys, ({listed(op)},), rung)
    {derivative.keep}
    return {results}
"""

    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return *derivative.backward(Unpacked(ctx), *map(alive, grads)), None

    members = {
        "forward": staticmethod(
            compiled(forward, "forward", **derivative.names, overload=overload, lowered=_lowered)
        ),
        "backward": staticmethod(backward),
    }
    recorded = _function(f"{op.torch_name}_autograd", members).apply
    if _of_lists(op):
        recorded = _refused(op, lambda *args: _lowered(overload, args[-1], args[:-2], args[-2]))

    def in_level(*args: Any) -> Any:
        with enable_single_level_autograd_function():
            return recorded(*args)

    intercepted = f"compiling() or dispatch_modes() or {special(op)}"
    given = ", ".join(f"{a.name}=default_{a.name}" for a in op.args)
    source = f"""
def kernel(keys, {given}, *, rung=None):
    if forward_ad._current_level >= 0:
        return differentiable({listed(op)})
    wanted = grad_enabled() and ({wants_gradient(op)})
    if functorch():
        if wanted:
            return in_level({listed(op)}, rung, keys)
    elif {"False" if composed else f"(rung and '/' in rung) or {intercepted}"}:
        if wanted:
            return recorded({listed(op)}, rung, keys)
    elif wanted:
        return apply({listed(op)}, rung)
    else:
        return run({listed(op)}, rung)
    return lowered(overload, keys, ({listed(op)},), rung)
"""
    return run.used_by(
        compiled(
            source,
            "kernel",
            **INTERCEPTION_CHECKS,
            **{f"default_{a.name}": a.default for a in op.args},
            forward_ad=forward_ad,
            differentiable=differentiable,
            in_level=in_level,
            recorded=recorded,
            apply=apply,
            lowered=_lowered,
            overload=overload,
        )
    )


def _lowered(overload: Any, keys: Any, args: tuple, rung: str | None) -> Any:
    """The call below autograd. For functorch's next level modes are as outside of the Function,
    whose forward autograd runs without them."""
    keys = keys & torch._C._after_autograd_keyset
    with torch._C._AutoDispatchBelowAutograd():
        if not torch._C._are_functorch_transforms_active():
            return overload.redispatch(keys, *args, rung=rung)
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
            return overload.redispatch(keys, *args, rung=rung)


def wants_gradient(op: Operator) -> str:
    """Source of a test whether an argument requires a gradient."""
    tests = {
        "Tensor": "{0}.requires_grad",
        "Tensor?": "({0} is not None and {0}.requires_grad)",
        "Tensor[]": "any([t.requires_grad for t in {0}])",
    }
    return " or ".join(tests[a.kind].format(a.name) for a in op.args if a.kind in tests) or "False"


def _function(name: str, members: dict[str, Any]) -> Any:
    """A Function whose `apply` is in C++ and does not look for functorch, which `kernel` has done:
    that of torch.autograd.Function does, and up to torch 2.13 binds defaults through inspect, which
    costs more than a launch."""
    base = (torch.autograd.function._SingleLevelFunction,)
    key = torch.autograd.Function._compiled_autograd_key  # which compiled autograd asks for
    members = {**members, "_compiled_autograd_key": staticmethod(key)}
    return types.new_class(name, base, exec_body=lambda body: body.update(members))


def eager(op: Operator, run: Runs, derivative: Derivative) -> Callable:
    """`apply(*args, rung)` for calls that nothing intercepts."""
    if _of_lists(op):
        return _refused(op, run.without_versions)
    results = ", ".join(op.results)
    source = f"""
def forward(ctx, {listed(op)}, rung):
    {f"{results} = " if results else ""}run({listed(op)}, rung)
    {derivative.keep}
    return {results or None}
"""
    names = {**derivative.names, **derivative.eager_names}
    forward = run.used_by(compiled(source, "forward", **names))
    members = {"forward": staticmethod(forward), "backward": staticmethod(derivative.backward)}
    function = _function(op.torch_name, members)
    # the function that the engine calls; PyTorch's own apply would first look up the user's
    # function, in two calls
    function._backward_cls.apply = derivative.backward
    return function.apply


def none(op: Operator) -> Derivative:
    def backward(ctx, *grads):
        raise NotImplementedError(_undifferentiable(op))

    return Derivative("pass", backward)


def _undifferentiable(op: Operator) -> str:
    return f"{op.name} cannot be differentiated; use the operator without its gradients"


def _of_lists(op: Operator) -> bool:
    return any(a.kind == "Tensor[]" for a in op.args)


def _refused(op: Operator, run: Callable) -> Callable:
    """`run` of an operator of lists, which a Function does not look into: its result cannot be
    differentiated."""

    def apply(*args: Any) -> torch.Tensor:
        with torch.no_grad():
            result = run(*args)
        tensors = [t for a in args if isinstance(a, (list, tuple)) for t in a]
        sources = [t for t in tensors if t.requires_grad]
        return refusing(_undifferentiable(op), result, sources)

    return apply


@dataclass(frozen=True)
class Rule:
    """A derivative written by hand.

    Attributes:
        save: `save(ctx, arguments, result or results)` keeps what the backward needs.
        backward: `backward(ctx, *gradients of results)` returns the gradients of the arguments.
        node: the same for C++, if its calls are few and known.
    """

    save: Callable[..., None]
    backward: Callable[..., tuple[Any, ...]]
    node: Node | None = None


def by_rule(op: Operator, rule: Rule) -> Derivative:
    results = ", ".join(op.results)
    keep = f"save(ctx, ({listed(op)},), {f'({results})' if len(op.results) > 1 else results})"

    def backward(ctx, *grads):
        return *rule.backward(ctx, *grads), None

    return Derivative(keep, backward, {"save": rule.save}, node=rule.node)


def formula_of(
    ladder: Ladder, statistics: Callable | None = None, rung_name: str = "manual"
) -> Callable:
    """The PyTorch rung of a ladder as plain code, which autograd and forward mode differentiate:
    the given one, or `native` if there is no such rung.

    Args:
        statistics: see `bind`.
    """
    rung = ladder.rung(rung_name if rung_name in ladder.names else "native")
    names = [a.name for a in ladder.operator.args]
    entry: list[Callable] = []

    def load() -> bool:
        if not entry:
            entry.append(entry_of(ladder, rung))
        return True

    # Makes torch.compile call it while tracing, because it cannot trace the import.
    # torch.compiler.assume_constant_result does the same, but imports the compiler.
    setattr(load, "_dynamo_marked_constant", True)  # noqa: B010

    def formula(*args: Any) -> Any:
        load()
        if statistics is not None:
            named = dict(zip(names, args, strict=True))
            args = tuple({**named, **statistics(**named)}.values())
        return entry[0](*args)

    return formula


def derivative_from_reference(op: Operator, formula: Callable) -> Derivative:
    """The gradient of a backward (double backward) by differentiating its formula. Further
    derivatives exist as far as PyTorch differentiates the formula's own operators."""
    tensors = [a.name for a in op.args if a.is_tensor]
    kept = [a.name for a in op.args if not a.is_tensor]
    grads = ", ".join(f"g{r}" for r in op.results)
    keep = f"""
    ctx.save_for_backward({", ".join(tensors)})
    ctx.kept = ({"".join(f"{n}, " for n in kept)})
"""
    back = f"""
def backward(ctx, {grads}):
    {"".join(f"{n}, " for n in tensors)} = ctx.saved_tensors
    {f"{''.join(f'{n}, ' for n in kept)} = ctx.kept" if kept else ""}
    return *pulled(formula, ({listed(op)},), ctx.needs_input_grad, ({grads},)), None
"""
    return Derivative(keep.strip(), compiled(back, "backward", formula=formula, pulled=_pulled))


def _pulled(formula: Callable, args: tuple, wanted: tuple, grads: tuple) -> list[Any]:
    """The gradients of a formula's arguments, None for those that are not needed."""
    at = [i for i, want in enumerate(wanted[: len(args)]) if want]

    def of(*some):
        given = dict(zip(at, some, strict=True))
        return formula(*(given.get(i, a) for i, a in enumerate(args)))

    pull = torch.func.vjp(of, *(args[i] for i in at))[1]
    by_place = dict(zip(at, pull(grads[0] if len(grads) == 1 else grads), strict=True))
    return [by_place.get(i) for i in range(len(args))]


def derivative_from_backward_op(
    op: Operator,
    backward: Ladder,
    call: Callable,
    run: LaunchCache,
    same: dict[str, str],
) -> Derivative:
    """A derivative that saves the tensors named in the backward's schema and calls the backward.

    Args:
        call, run: the backward's function, and the function that runs it if nothing intercepts
            calls.
        same: `same_gradient` of `bind`.
    """
    names = _Names.of(op, backward.operator, same)
    back = f"""
def backward(ctx, {names.grads}):
    {names.unpack}
    {names.zeros}
    {names.refused}
    {names.results} = ({_CALLED.format(special(backward.operator))})({names.wanted}, rung)
    return {names.returned}, None
"""
    run_backward = compiled(
        back,
        "backward",
        **INTERCEPTION_CHECKS,
        call=call,
        zeros=_zeros,
        refuse=_refusal(op, names.constant),
    )
    used = _rungs_of(backward)
    node = Node.of(op, backward.operator, names.fixed, same)
    return Derivative(names.keep(backward.name), run.used_by(run_backward), used, node=node)


_CALLED = "call if compiling() or functorch() or dispatch_modes() or grad_enabled() or {} else run"


def single_input_derivative(
    op: Operator,
    backward: Ladder,
    name: str,
    of: tuple[str, str],
    overload: Callable,
    run: LaunchCache,
) -> Derivative:
    """The gradient of the one argument `name`, computed by the forward operator from the two
    tensors in `of`: an incoming gradient, and the argument that is saved."""
    incoming, kept = of
    watched = f"type({incoming}) not in plain or type({kept}) not in plain"
    gradients = ", ".join("gradient" if a.name == name else "None" for a in op.args)
    keep = f"ctx.save_for_backward({kept}); ctx.kept = {_rung_of(backward.name)}"
    back = f"""
def backward(ctx, {incoming}):
    {kept}, = ctx.saved_tensors
    gradient = ({_CALLED.format(watched)})({incoming}, {kept}, ctx.kept)
    return {gradients}, None
"""

    def call(one: torch.Tensor, other: torch.Tensor, rung: str | None) -> torch.Tensor:
        return overload(one, other, rung=rung)

    run_backward = compiled(back, "backward", **INTERCEPTION_CHECKS, call=call)
    used = _rungs_of(backward)
    node = Node.alone(op, name, kept)
    return Derivative(keep, run.used_by(run_backward), used, node=node)


def _rung_of(backward: str) -> str:
    """Source of the rung that is selected for a backward: for itself, or for its forward."""
    return f"active.get({backward!r}) or (rung if rung in rungs else rung and of_backward(rung))"


def _rungs_of(backward: Ladder) -> dict[str, Any]:
    """The names in the source of `_rung_of`."""
    return {"active": active, "rungs": frozenset(backward.names), "of_backward": _of_backward}


def of_forward(rung: str | None) -> str | None:
    """The operator's rung, where a traced call names that of its backward too: "a/b"."""
    return (rung and rung.partition("/")[0]) or None


def _of_backward(rung: str) -> str | None:
    return rung.partition("/")[2] or None


@dataclass
class _Names:
    """The parts of a backward's source."""

    saved: list[str]
    plain: list[str]
    fixed: list[str]
    needed: list[str]
    optional: bool
    absent: list[str]
    constant: list[tuple[int, str]]
    grads: str
    wanted: str
    results: str
    returned: str

    @staticmethod
    def of(op: Operator, backward: Operator, same: dict[str, str]) -> _Names:
        grads = [f"g{r}" for r in op.results]
        wanted = [a.name for a in backward.args]
        tensors = {*op.results, *(a.name for a in op.args if a.is_tensor)}
        kept = [n for n in wanted if n not in grads]
        unknown = set(kept) - tensors - {a.name for a in op.args}
        assert not unknown, f"{backward.name} needs {unknown}, which {op.name} does not have"
        named = [f"g{same.get(a.name, a.name)}" for a in op.args]
        given = [g in backward.results or a.name in same
                 for a, g in zip(op.args, named, strict=True)]  # fmt: skip
        # the only argument that can have a gradient needs it, else backward would not be called
        ask = " if ctx.needs_input_grad[{}] else None" if sum(given) > 1 else ""
        # If a gradient may be None, or a result has none, ctx.set_materialize_grads(False) is
        # called and the zeros that the backward needs are made here. Otherwise autograd would
        # launch a fill for each missing gradient in every backward.
        fixed = [r for r in op.results if f"g{r}" not in wanted]
        incoming = {a.name: a.kind for a in backward.args if a.name in grads}
        optional = bool(fixed) or "Tensor?" in incoming.values()
        return _Names(
            [n for n in kept if n in tensors],
            [n for n in kept if n not in tensors],
            fixed,
            [n for n, kind in incoming.items() if kind == "Tensor"] if optional else [],
            optional,
            [n for n, kind in incoming.items() if kind == "Tensor?"],
            [(i, a.name) for i, (a, gives) in enumerate(zip(op.args, given, strict=True))
             if a.is_tensor and not gives],
            ", ".join(grads),
            ", ".join(wanted),
            ", ".join(backward.results),
            ", ".join(g + ask.format(i) if gives else "None"
                      for i, (g, gives) in enumerate(zip(named, given, strict=True))),
        )  # fmt: skip

    def keep(self, backward: str) -> str:
        lines = [
            f"ctx.save_for_backward({', '.join(self.saved)})",
            f"ctx.kept = ({''.join(f'{n}, ' for n in self.plain)}{_rung_of(backward)},)",
        ]
        if self.fixed:
            lines.append(f"ctx.mark_non_differentiable({', '.join(self.fixed)})")
        if self.optional:
            facts = "".join(
                f"({n[1:]}.shape, {n[1:]}.dtype, {n[1:]}.device), " for n in self.needed
            )
            lines.append(f"ctx.set_materialize_grads(False); ctx.needed = ({facts})")
        return "\n    ".join(lines)

    @property
    def unpack(self) -> str:
        saved = f"{', '.join(self.saved)}, = ctx.saved_tensors; " if self.saved else ""
        return f"{saved}{''.join(f'{n}, ' for n in self.plain)}rung, = ctx.kept"

    @property
    def refused(self) -> str:
        """A check that none of the arguments without a gradient requires one."""
        wanted = " or ".join(f"ctx.needs_input_grad[{i}]" for i, _ in self.constant)
        return f"if {wanted}: refuse(ctx)" if wanted else ""

    @property
    def zeros(self) -> str:
        """Zeros for missing gradients, and None for those of results that are absent, whose shape
        is (0,): a tracer passes a gradient for each result."""
        needed = [
            f"{n} = zeros(*ctx.needed[{i}]) if {n} is None else {n}"
            for i, n in enumerate(self.needed)
        ]
        absent = [
            f"{n} = None if {n} is not None and {n}.shape == (0,) else {n}" for n in self.absent
        ]
        return "; ".join(needed + absent)


def _refusal(op: Operator, constant: list[tuple[int, str]]) -> Callable:
    def refuse(ctx: Any) -> None:
        name = next(name for i, name in constant if ctx.needs_input_grad[i])
        raise NotImplementedError(
            f"{name}: {op.name} has no gradient with respect to it; pass it detached"
        )

    return refuse


def _zeros(shape, dtype, device):
    return torch.zeros(shape, dtype=dtype, device=device)


def derivative_without_kernel(op: Operator, gradient: Callable, passed: bool) -> Derivative:
    """A gradient that needs no kernel: a function of specs and incoming gradients. `passed` is as
    in `bind`."""
    names = [a.name for a in op.args]
    keep = f"ctx.specs = ({''.join(f'spec({n}), ' for n in names)})"
    specs = ", ".join(f"{n!r}: {n}" for n in names)
    grads = ", ".join(f"g{r}" for r in op.results)
    back = f"""
def backward(ctx, {grads}):
    {listed(op)}, = ctx.specs
    gradients = gradient({{{specs}}}, {grads}).get
    return {", ".join(f"gradients({n!r})" for n in names)}, None
"""
    run_backward = compiled(back, "backward", gradient=gradient)
    node = Node((), (0,) * len(op.args), (False,), alike=True) if passed else None
    return Derivative(keep, run_backward, {"spec": spec_of}, {"spec": _known_spec_of}, node=node)


def _known_spec_of(v: Any) -> Any:
    return _spec(v.shape, v.stride(), v.dtype) if isinstance(v, torch.Tensor) else v


@lru_cache(4096)
def _spec(shape, strides, dtype) -> TensorSpec:
    return TensorSpec(tuple(shape), strides, dtype)
