"""The one binding of an operator to PyTorch.

From the schema alone, `bind` makes the operator under torch.ops.kernelwright, its fake, its
autograd (autograd.py), its vmap rule (vmap.py), and the function that eager code calls. Besides the
launch, that function costs one lookup; it calls the dispatcher instead if anything intercepts calls
(torch.compile, functorch, a dispatch mode, a tensor subclass). `compose` does the same for a
function that calls other operators.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Protocol

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from kernelwright import toolchain
from kernelwright.contract import Ladder, Operator, TensorSpec
from kernelwright.toolchain import cpp_extension, modes, redzones, versions

from . import autograd, native_calls, vmap
from .dynamic_shapes import OpenCalls
from .generated import INTERCEPTION_CHECKS, compiled, kinds_of, listed, spec_of, special
from .launcher import device_of
from .lowering import lower
from .override import active
from .registry import register
from .selection import tuned_table
from .subclasses import on_values, prepare, prepared

_library = torch.library.Library("kernelwright", "DEF")
toolchain.claim()
versions.warn_of_untested()
_caches: dict[str, LaunchCache] = {}  # by operator
_CACHE_LIMIT = 4096  # bound launchers kept per operator, so that memory is bounded


class Runs(Protocol):
    """What runs an operator's calls that nothing intercepts."""

    def without_versions(self, *given: Any) -> Any:
        """Run a call; the last argument is the rung."""
        ...

    def used_by(self, function: Callable) -> Callable:
        """Set the global `run` of a function, now and whenever it is replaced; return it."""
        ...


def bind(
    forward: Ladder,
    backward: Ladder | None = None,
    *,
    gradient: Callable | str | None = None,
    rule: autograd.Rule | None = None,
    formula: Callable | None = None,
    vmap: str | vmap.Rule = "leading",
    same_gradient: dict[str, str] | None = None,
    alone: dict[str, tuple[str, str]] | None = None,
    passed: bool = False,
    statistics: Callable | None = None,
    differentiable: str | Callable = "manual",
) -> Callable:
    """Bind an operator and return its function, which takes the schema's arguments in order.

    Args:
        forward, backward: ladders; both are registered.
        gradient: instead of `backward`, if the gradient consists of views and needs no kernel:
            `gradient(specs, *grads)` takes the forward's arguments as specs and plain values, and
            returns the gradients by argument name. "formula" differentiates `differentiable`.
        rule: instead of `backward`, if the gradient is composed of other operators.
        formula: plain PyTorch that torch.compile sees in place of an opaque operator, so that it
            can fuse; for elementwise operators.
        vmap: "leading" if the operator can treat a batch dimension in front of every tensor as
            further rows; "loop" if it cannot, and samples are computed one by one; or a rule.
        same_gradient: arguments whose gradient is that of another one, `{"residual": "x"}`, which
            the backward returns once, or of a result, `{"residual": "y"}`.
        alone: for an operator of two tensors. If only one of them needs a gradient and both have
            the same shape and dtype, the forward computes that gradient from the two tensors named
            here, and the other gradient is neither computed nor its operand saved;
            `{"x": ("gy", "other")}` for a product.
        passed: with `gradient`: if all arguments have one shape and dtype, the result's gradient is
            that of each of them.
        statistics: if the backward takes results of the forward that have no gradient but depend
            on its arguments (a mean): `statistics(**arguments of the backward)` returns them by
            name, in plain PyTorch over the others, so that double backward includes the dependence.
        differentiable: what forward mode and double backward differentiate, whichever rung is
            dispatched otherwise: a PyTorch rung of the forward and of the backward (`native` if
            there is no such rung), or plain PyTorch of the forward's arguments, beside `manual` of
            the backward.
    """
    rung = differentiable if isinstance(differentiable, str) else "manual"
    from_formula = gradient == "formula"
    source = forward if from_formula else backward
    twice = autograd.formula_of(source, statistics, rung) if source else None
    views = None if isinstance(gradient, str) else gradient
    how = _How(
        views, rule, formula, vmap, same_gradient or {}, alone or {}, passed, differentiable, twice
    )
    return _bound(forward, backward, how)[0]


def compose(
    op: Operator,
    function: Callable,
    rule: autograd.Rule,
    formula: Callable,
    *,
    of: str | None = None,
    opaque: bool = False,
) -> Callable:
    """An operator that calls others, and has a derivative that theirs do not yield. Returns its
    function.

    Args:
        op: its name, schema and the specs of its results; nothing else is used.
        function: `function(*args, rung)`.
        rule: its derivative.
        formula: plain PyTorch of the same arguments, which forward mode differentiates.
        of: the operator whose rung is passed to `function`.
        opaque: torch.compile cannot trace `function`, and keeps a call of the operator.
    """
    run = _Composed(function)
    overload = _define(op, run)
    derivative = autograd.by_rule(op, rule)
    eager = {"eager_apply": autograd.eager(op, run, derivative)}
    _differentiate(op, run, overload, derivative, eager["eager_apply"], formula, "loop", not opaque)
    return _entry(op, run, overload, eager, (of or op.name,), (), None, formula, not opaque)


class _Composed:
    """The function of `compose`."""

    def __init__(self, function: Callable):
        self.without_versions = function

    def used_by(self, function: Callable) -> Callable:
        function.__globals__["run"] = self.without_versions
        return function


def invalidate_selection(ladder: Ladder) -> None:
    """Select again for all calls of an operator, because its tuned tables have changed."""
    tuned_table.cache_clear()
    _caches[ladder.name].forget()


@dataclass(frozen=True)
class _How:
    """Arguments of `bind`; `twice` is the formula that the gradient differentiates: that of the
    backward, or of an operator that has none."""

    gradient: Callable | None
    rule: autograd.Rule | None
    formula: Callable | None
    vmap: str | vmap.Rule
    same: dict[str, str]
    alone: dict[str, tuple[str, str]]
    passed: bool
    differentiable: str | Callable
    twice: Callable | None

    @property
    def of_backward(self) -> _How:
        return _How(None, None, None, self.vmap, {}, {}, False, self.differentiable, self.twice)


def _bound(forward: Ladder, backward: Ladder | None, how: _How) -> tuple[Callable, LaunchCache]:
    """The operator's function, and the function that runs it if nothing intercepts calls."""
    op = forward.operator
    register(forward)
    run = _caches[op.name] = LaunchCache(forward)
    overload = _define(op, run)
    if backward is not None:
        call, back = _bound(backward, None, how.of_backward)
        derivative = autograd.derivative_from_backward_op(op, backward, call, back, how.same)
    elif how.gradient is not None:
        derivative = autograd.derivative_without_kernel(op, how.gradient, how.passed)
    elif how.rule is not None:
        derivative = autograd.by_rule(op, how.rule)
    elif how.twice is not None:
        derivative = autograd.derivative_from_reference(op, how.twice)
    else:
        derivative = autograd.none(op)
    eager, nodes = {"eager_apply": autograd.eager(op, run, derivative)}, [derivative.node]
    for name, of in how.alone.items():
        assert backward is not None
        itself = autograd.single_input_derivative(op, backward, name, of, overload, run)
        eager[f"apply_{name}"] = autograd.eager(op, run, itself)
        nodes.insert(-1, itself.node)
    differentiable = how.differentiable
    if isinstance(differentiable, str):
        differentiable = autograd.formula_of(forward, None, differentiable)
    _differentiate(op, run, overload, derivative, eager["eager_apply"], differentiable, how.vmap)
    rungs = (op.name,) if backward is None else (op.name, backward.name)
    entry = _entry(op, run, overload, eager, rungs, tuple(how.alone), how.formula, differentiable)
    native_calls.install_entry(op, entry, run, [n for n in nodes if n is not None])
    return entry, run


def _differentiate(
    op: Operator,
    run: Runs,
    overload: Any,
    derivative: autograd.Derivative,
    apply: Callable,
    differentiable: Callable,
    batched: str | vmap.Rule,
    composed: bool = False,
) -> None:
    """Register the operator's autograd and vmap rule, unless it changes its arguments."""
    if op.mutated:
        return
    kernel = autograd.kernel(op, run, overload, derivative, apply, differentiable, composed)
    _library.impl(op.torch_name, kernel, "Autograd", with_keyset=True)
    rule = vmap.rule_of(op, overload, batched)
    torch.library.register_vmap(f"kernelwright::{op.torch_name}", rule, lib=_library)


def _define(op: Operator, run: Runs) -> Any:
    """torch.ops.kernelwright.<name>, its implementation and its fake."""
    inputs, results = op.schema.rsplit("->", 1)
    name = op.torch_name
    _library.define(f"{name}{inputs.rstrip()[:-1]}, *, str? rung=None) ->{results}")

    def implementation(*args, rung=None):
        given = _named(op, args).values()  # the dispatcher omits arguments equal to their defaults
        return run.without_versions(*given, autograd.of_forward(rung))

    def fake(*args, rung=None):
        lower(overload)
        device = device_of(_named(op, args))
        named = {k: spec_of(v) for k, v in _named(op, args).items()}
        out = tuple(
            torch.empty_strided(s.shape, s.strides, dtype=s.dtype, device=device)
            for s in op.outputs(**op.normalise(named)[0])
        )
        return out[0] if len(out) == 1 else out or None

    _library.impl(name, implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"kernelwright::{name}", fake, lib=_library)
    overload = getattr(torch.ops.kernelwright, name).default
    if op.mutated:

        def bump(keys, *args, **kwargs):
            named = _named(op, args)
            for n in op.mutated:
                increment_version(named[n])
            below = keys & torch._C._after_ADInplaceOrView_keyset
            return overload.redispatch(below, *args, **kwargs)

        _library.impl(name, bump, "ADInplaceOrView", with_keyset=True)
    return overload


def _named(op: Operator, args: tuple) -> dict[str, Any]:
    named = dict(zip((a.name for a in op.args), args, strict=False))
    for a in op.args[len(args) :]:
        named[a.name] = a.default
    return named


class LaunchCache:
    """`run(*args, rung)` of an operator: finds the bound launcher for calls like this one, and
    launches. It is written in Python; on a GPU, where host time matters, one in C++ replaces it as
    soon as it is loaded, where it is proven (native_calls.py).

    Attributes:
        now: the function.
        in_cpp: the same in C++, once it is there.
    """

    def __init__(self, ladder: Ladder):
        op = ladder.operator
        self._ladder, self._names = ladder, [a.name for a in op.args]
        self._known: dict[tuple, Callable] = {}
        self._open = OpenCalls(ladder)
        self._users: list[dict[str, Any]] = []
        given = f"{listed(op)}, rung"
        source = f"""
def {{}}({given}):
    key = ({_key(op)} rung)
    bound = get(key)
    if bound is None:
        bound = miss(key, {given}){{}}
"""
        bumps = "".join(f"\n    increment_version({name})" for name in op.mutated)
        call = f"\n    return bound({listed(op)})"
        used: dict[str, Any] = {
            "get": self._known.get,
            "miss": self._miss,
            "list_key": _list_key,
            "increment_version": increment_version,
        }
        self.now = self._plain = compiled(source.format("run", bumps + call), "run", **used)
        self._bound = compiled(source.format("bound", "\n    return bound"), "bound", **used)
        self.in_cpp: Any = None
        if not native_calls.stays_in_python(op):
            cpp_extension.when_loaded(self._switch_to_cpp)

    def without_versions(self, *given: Any) -> Any:
        """Like `run`, without incrementing the versions of changed arguments, which the dispatcher
        has already done."""
        if not self._ladder.operator.mutated:
            return self.now(*given)
        return self._bound(*given)(*given[:-1])

    def used_by(self, function: Callable) -> Callable:
        """Set the global `run` of a function, now and whenever `now` is replaced; return it."""
        function.__globals__["run"] = self.now
        self._users.append(function.__globals__)
        return function

    def _miss(self, key: tuple, *args: Any) -> Callable:
        *given, rung = args
        with redzones.unguarded():  # the first call may come from a guarded rung
            bound = self._open.launcher(dict(zip(self._names, given, strict=True)), rung)
        while len(self._known) >= _CACHE_LIMIT:
            self._known.pop(next(iter(self._known)), None)
        self._known[key] = bound
        if modes.has_gpu():
            native_calls.start()
        return bound

    def _bound_for_cpp(self, *args: Any) -> Callable:
        """Like `_bound`; calls that an open plan serves need no key here, because C++ keeps one."""
        *given, rung = args
        bound = self._open.bound(tuple(given), rung)
        bound = bound or self._bound(*args)
        again = getattr(bound, "again", None) if cpp_extension.loaded else None
        return again() if again else bound

    def forget(self) -> None:
        """Select, plan and bind again at the next call of each kind."""
        self._known.clear()
        self._open = OpenCalls(self._ladder)
        if self.in_cpp is not None:
            self.in_cpp.clear()

    def _switch_to_cpp(self, module: ModuleType) -> None:
        if self._ladder.name not in native_calls.proven():
            return
        kinds = kinds_of(self._ladder.operator)
        self.now = self.in_cpp = module.Caller(kinds, self._bound_for_cpp, self._plain)
        for names in self._users:
            names["run"] = self.now


def _key(op: Operator) -> str:
    """Source of the cache key's items: everything that `specs_of` sees, without floats."""
    items = []
    for a in op.args:
        n = a.name
        facts = f"{n}.dtype, {n}.shape, {n}.stride(), {n}.get_device(), {n}.data_ptr() & 15, "
        if a.kind == "Tensor":
            items.append(facts)
        elif a.kind == "Tensor?":
            items.append(f"None if {n} is None else ({facts}), ")
        elif a.kind == "Tensor[]":
            items.append(f"list_key({n}), ")
        elif a.kind.startswith("int["):
            items.append(f"None if {n} is None else tuple({n}), ")
        elif not a.kind.startswith("float"):
            items.append(f"{n}, ")
    return "".join(items)


def _list_key(tensors) -> Hashable:
    return _describer()(tensors)


@cache
def _describer() -> Callable[[list[torch.Tensor]], Hashable]:
    from kernelwright.toolchain import pointer_arrays

    return pointer_arrays.describer()


def _entry(
    op: Operator,
    run: Runs,
    overload: Any,
    eager: dict[str, Callable],
    rungs: tuple[str, ...],
    alone: tuple[str, ...],
    formula: Callable | None,
    differentiable: Callable,
    composed: bool = False,
) -> Callable:
    """The function that public code calls. `rung` is passed to a backward by its forward.

    Its attribute `repeated` is a function of the same arguments, without a rung. It returns the
    result of a call in C++ if one of the same dtypes, shapes, strides and values (except floats)
    has run before, so that checks of these need not be repeated; otherwise None.

    Args:
        rungs: the operators whose rung `use` may choose: this one, and its backward.
        composed: see `autograd.kernel`.
    """
    given = listed(op)
    tensors = [a.name for a in op.args if a.kind == "Tensor"]
    wants_grad = autograd.wants_gradient(op)
    nested = " or ".join(
        [f"{n}.is_nested" for n in tensors]
        + [f"({a.name} is not None and {a.name}.is_nested)" for a in op.args
           if a.kind == "Tensor?"]
    ) or "False"  # fmt: skip
    traced, transformed = f"overload({given}, rung=rung)", f"overload({given}, rung=rung)"
    dual = f"differentiable({given})"
    if formula:
        traced = f"formula({given})"
    elif op.mutated:
        transformed, dual = "refuse()", "refuse()"
        wants_grad = "False"
    single = "".join(
        f"""
        if not ({" or ".join(f"{m}.requires_grad" for m in tensors if m != n)}) and (
            {" == ".join(f"{m}.shape" for m in tensors)}
            and {" == ".join(f"{m}.dtype" for m in tensors)}
        ):
            return apply_{n}({given}, rung)"""
        for n in alone
    )
    # In the graph, so that a function is compiled again if `use` chooses another rung for its
    # backward, and that caches on disk, which do not see `active`, tell the graphs apart.
    with_backward = "".join(
        f"""
        if {name!r} in active:
            rung = (rung or '') + '/' + active[{name!r}]"""
        for name in rungs[1:]
    )

    def refuse():
        raise NotImplementedError(
            f"{op.name}: changes its arguments, which torch.func and forward mode cannot handle; "
            "call it outside of them"
        )

    call = run.used_by(
        compiled(
            f"""
def repeated({given}):
    if compiling() or in_cpp is None:
        return None
    found = in_cpp({given}, True)
    return None if found is NotImplemented else found

def call({given}, rung=False):
    tracing = compiling()
    if not tracing and in_cpp is not None:
        found = in_cpp({given}, rung)
        if found is not NotImplemented:
            return found
    if rung is False:
        rung = active.get({rungs[0]!r})
    if forward_ad._current_level >= 0:
        return {dual}
    if tracing:
        if {nested}:
            return on_values(op, call, ({given},), rung)
        {"" if formula else "prepared()"}
        {with_backward}
        return {traced}
    if functorch():
        return {transformed}
    if {"False" if composed else f"dispatch_modes() or {special(op)}"}:
        if {nested}:
            return on_values(op, call, ({given},), rung)
        prepare(op, overload, ({given},))
        return overload({given}, rung=rung)
    if grad_enabled() and ({wants_grad}):{single}
        return eager_apply({given}, rung)
    return run({given}, rung)
""",
            "call",
            **INTERCEPTION_CHECKS,
            forward_ad=forward_ad,
            **eager,
            active=active,
            overload=overload,
            refuse=refuse,
            op=op,
            on_values=on_values,
            prepare=prepare,
            prepared=prepared(op, overload),
            formula=formula,
            differentiable=differentiable,
            in_cpp=None,
        )
    )
    call.repeated = call.__globals__["repeated"]  # pyright: ignore[reportFunctionMemberAccess]
    return call


def operator(name: str, schema: str, outputs: Callable[..., tuple[TensorSpec, ...]]) -> Operator:
    """The operator of `compose`."""

    def none(*args: Any, **named: Any) -> Any:
        raise AssertionError(f"{name} has no ladder")

    return Operator(name, schema, none, none, (), none, outputs, layout="any")
