"""The one binding of an operator to PyTorch.

`bind` makes, from the schema alone: the operator under torch.ops.kernelwright with its fake, an
autograd.Function with its vmap rule, and the function that eager code calls. That function costs
one dictionary look-up over a launch; it steps aside for the dispatcher whenever something
(torch.compile, functorch, a dispatch mode, a tensor subclass) wants to see the call.

Backward schemas are read by name: argument `gy` is the gradient of result `y`, any other name is
the forward's argument or result of that name (and is saved), result `gx` is the gradient of `x`.
An argument `Tensor? gh` is None where result `h` received no gradient; others are zeros then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from kernelwright import toolchain
from kernelwright.contract import Ladder, Operator, TensorSpec
from kernelwright.contract.layout import normalise

from .launcher import device_of, launcher
from .override import _active
from .registry import register

_library = torch.library.Library("kernelwright", "DEF")
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_WATCHERS = {  # whoever wants to see a call; each test costs some 70 ns
    "plain": _PLAIN,
    "compiling": torch.compiler.is_compiling,
    "dispatch_modes": torch._C._len_torch_dispatch_stack,
    "functorch": torch._C._are_functorch_transforms_active,
}
_describer = cache(toolchain.describer)
_CACHE_LIMIT = 4096  # bound launchers an operator keeps; shapes that never repeat must not leak


def bind(
    forward: Ladder,
    backward: Ladder | None = None,
    *,
    gradient: Callable | None = None,
    formula: Callable | None = None,
    vmap: str = "leading",
    same_gradient: dict[str, str] | None = None,
) -> Callable:
    """Bind an operator and return its function, which takes the schema's arguments in order.

    Args:
        forward, backward: ladders; both are registered.
        gradient: instead of `backward`, where the gradient is views and no kernel:
            `gradient(specs, *grads)` gets the forward's arguments as specs and plain values, and
            returns the gradients by argument name.
        formula: plain PyTorch that torch.compile sees in place of an opaque operator, so that it
            can fuse; for elementwise operators.
        vmap: "leading" where a batch dimension in front of every tensor is just more work,
            "loop" where it is not and samples are computed one by one.
        same_gradient: arguments whose gradient is that of another one, `{"residual": "x"}`, which
            the backward returns once, or of a result, `{"residual": "y"}`.
    """
    op = forward.operator
    register(forward)
    if backward is not None:
        call = bind(backward, vmap=vmap)
        derivative = _derivative_by_operator(op, backward, call, same_gradient or {})
    elif gradient is not None:
        derivative = _derivative_by_views(op, gradient)
    else:
        derivative = _no_derivative(op)
    run, overload = _eager(forward), _define(forward)
    function = _autograd_function(op, run, overload, derivative, vmap)
    return _entry(op, run, overload, function, formula)


def _define(ladder: Ladder) -> Any:
    """torch.ops.kernelwright.<name>, its implementation and its fake."""
    op = ladder.operator
    inputs, results = op.schema.rsplit("->", 1)
    name = op.torch_name
    _library.define(f"{name}{inputs.rstrip()[:-1]}, *, str? rung=None) ->{results}")

    def implementation(*args, rung=None):
        named = _named(op, args)  # the dispatcher leaves out what has its default
        return launcher(ladder, named, rung)(*named.values())

    def fake(*args, rung=None):
        device = device_of(_named(op, args))
        named = {k: _fake_spec(v) for k, v in _named(op, args).items()}
        out = tuple(
            torch.empty_strided(s.shape, s.strides, dtype=s.dtype, device=device)
            for s in op.outputs(**normalise(op.layout, named)[0])
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


def _fake_spec(v: Any) -> Any:
    if isinstance(v, torch.Tensor):
        return TensorSpec(tuple(v.shape), tuple(v.stride()), v.dtype)
    if isinstance(v, (list, tuple)) and v and isinstance(v[0], torch.Tensor):
        return [_fake_spec(t) for t in v]
    return v


def _named(op: Operator, args: tuple) -> dict[str, Any]:
    named = dict(zip((a.name for a in op.args), args, strict=False))
    for a in op.args[len(args) :]:
        named[a.name] = a.default
    return named


def _eager(ladder: Ladder) -> Callable:
    """`run(*args, rung)`: find the bound launcher in the operator's cache, and launch."""
    op = ladder.operator
    names = [a.name for a in op.args]
    cache: dict[tuple, Callable] = {}

    def miss(key, rung, *args):
        bound = launcher(ladder, dict(zip(names, args, strict=True)), rung)
        if len(cache) >= _CACHE_LIMIT:
            cache.clear()
        cache[key] = bound
        return bound

    listed = ", ".join(names)
    bumps = "".join(f"\n    increment_version({name})" for name in op.mutated)
    return _compile(
        f"""
def run({listed}, rung):
    key = ({_key(op)} rung)
    bound = get(key)
    if bound is None:
        bound = miss(key, rung, {listed}){bumps}
    return bound({listed})
""",
        "run",
        get=cache.get,
        miss=miss,
        list_key=_list_key,
        increment_version=increment_version,
    )


def _key(op: Operator) -> str:
    """Source of the cache key's items: everything that `specs_of` sees, floats left out."""
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


def _entry(op: Operator, run, overload, function, formula) -> Callable:
    """The function that public code calls; `rung` is for a backward, whose forward decided it."""
    names = [a.name for a in op.args]
    tensors = [a.name for a in op.args if a.kind == "Tensor"]
    wants_grad = " or ".join(
        [f"{n}.requires_grad" for n in tensors]
        + [f"({a.name} is not None and {a.name}.requires_grad)" for a in op.args
           if a.kind == "Tensor?"]
    ) or "False"  # fmt: skip
    listed = ", ".join(names)
    traced = transformed = f"apply({listed}, rung)"
    if formula:
        traced = f"formula({listed})"
    elif op.mutated:
        traced, transformed = f"overload({listed}, rung=rung)", "refuse()"
        wants_grad = "False"

    def refuse():
        raise NotImplementedError(
            f"{op.name}: changes its arguments, which torch.func and forward mode cannot follow"
        )

    return _compile(
        f"""
def call({listed}, rung=False):
    if rung is False:
        rung = active.get({op.name!r})
    if compiling():
        return {traced}
    if functorch() or forward_ad._current_level >= 0:
        return {transformed}
    if grad_enabled() and ({wants_grad}):
        return eager_apply({listed}, rung)
    if dispatch_modes() or {_special(op)}:
        return overload({listed}, rung=rung)
    return run({listed}, rung)
""",
        "call",
        **_WATCHERS,
        grad_enabled=torch.is_grad_enabled,
        forward_ad=forward_ad,
        apply=function.apply,
        # Function.apply binds defaults through inspect and looks for functorch, which costs more
        # than a launch; neither concerns a call that got here
        eager_apply=super(torch.autograd.Function, function).apply,  # pyright: ignore[reportAttributeAccessIssue]
        active=_active,
        overload=overload,
        refuse=refuse,
        run=run,
        formula=formula,
    )


def _special(op: Operator) -> str:
    """Source of a test for tensor subclasses, which the dispatcher must see."""
    one = [f"type({a.name}) not in plain" for a in op.args if a.kind == "Tensor"]
    maybe = [
        f"({a.name} is not None and type({a.name}) not in plain)"
        for a in op.args
        if a.kind == "Tensor?"
    ]
    many = [f"not plain.issuperset(map(type, {a.name}))" for a in op.args if a.kind == "Tensor[]"]
    return " or ".join((*one, *maybe, *many))


def _autograd_function(op: Operator, run, overload, derivative, vmap) -> Any:
    listed = ", ".join(a.name for a in op.args)
    # not *args: torch.compile tells a forward with ctx from one without by counting parameters
    forward = f"""
def forward({listed}, rung):
    if compiling() or dispatch_modes() or {_special(op)}:
        return overload({listed}, rung=rung)
    return run({listed}, rung)
"""
    setup, backward = derivative

    # No jvp: torch says that it is missing, and torch.compile refuses a Function that has one.
    class Function(torch.autograd.Function):
        @staticmethod
        def vmap(info, in_dims, *args):
            batch_rule = _vmap_leading if vmap == "leading" else _vmap_loop
            return batch_rule(Function.apply, info.batch_size, in_dims, args)

    Function.forward = staticmethod(
        _compile(forward, "forward", **_WATCHERS, overload=overload, run=run)
    )
    Function.setup_context = staticmethod(setup)
    Function.backward = staticmethod(backward)
    Function.__name__ = Function.__qualname__ = f"{op.torch_name}_function"
    return Function


# The three kinds of derivative, each a (setup_context, backward) pair. They are generated as
# plain code over plain values: torch.compile traces them.


def _no_derivative(op: Operator) -> tuple[Callable, Callable]:
    again = "again: double backward is not implemented" if "." in op.name else ""

    def setup(ctx, inputs, output):
        pass

    def backward(ctx, *grads):
        raise NotImplementedError(f"{op.name} cannot be differentiated {again}".rstrip())

    return setup, backward


def _derivative_by_operator(op: Operator, backward: Ladder, call: Callable, same: dict[str, str]):
    """Save what the backward's schema names and call the backward with it."""
    inputs = [a.name for a in op.args]
    grads = [f"g{r}" for r in op.results]
    wanted = [a.name for a in backward.operator.args]
    tensors = {*op.results, *(a.name for a in op.args if a.is_tensor)}
    kept = [n for n in wanted if n not in grads]
    saved = [n for n in kept if n in tensors]
    plain = [n for n in kept if n not in tensors]
    fixed = [r for r in op.results if f"g{r}" not in wanted]
    unknown = set(kept) - tensors - set(inputs)
    assert not unknown, f"{backward.name} wants {unknown}, which {op.name} does not have"
    results = backward.operator.results
    named = [f"g{same.get(a.name, a.name)}" for a in op.args]
    returned = [
        f"{g} if ctx.needs_input_grad[{i}] else None" if g in results or a.name in same else "None"
        for i, (a, g) in enumerate(zip(op.args, named, strict=True))
    ]
    # Where a gradient may be None, autograd is told to make zeros for none that did not arrive, and
    # those that the backward needs are made here. So it is where results have no gradient: autograd
    # would launch a fill for each of them in every backward.
    optional = bool(fixed) or any(
        a.kind == "Tensor?" and a.name in grads for a in backward.operator.args
    )
    needed = [a.name for a in backward.operator.args if a.kind == "Tensor" and a.name in grads]
    needed = needed if optional else []
    facts = "".join(f"({n[1:]}.shape, {n[1:]}.dtype, {n[1:]}.device), " for n in needed)
    zeros = [f"{n} = zeros(*ctx.needed[{i}]) if {n} is None else {n}" for i, n in enumerate(needed)]
    setup = f"""
def setup_context(ctx, inputs, output):
    {"".join(f"{n}, " for n in inputs)}rung = inputs
    {", ".join(op.results)} = output
    ctx.save_for_backward({", ".join(saved)})
    ctx.plain = ({"".join(f"{n}, " for n in plain)})
    ctx.rung = active.get({backward.name!r}) or (rung if rung in rungs else None)
    {f"ctx.mark_non_differentiable({', '.join(fixed)})" if fixed else ""}
    {f"ctx.set_materialize_grads(False); ctx.needed = ({facts})" if optional else ""}
"""
    back = f"""
def backward(ctx, {", ".join(grads)}):
    {"".join(f"{n}, " for n in saved)} = ctx.saved_tensors
    {"".join(f"{n}, " for n in plain) + "= ctx.plain" if plain else ""}
    {"; ".join(zeros)}
    {", ".join(results)} = call({", ".join(wanted)}, ctx.rung)
    return {", ".join(returned)}, None
"""
    return (
        _compile(setup, "setup_context", active=_active, rungs=backward.names),
        _compile(back, "backward", call=call, zeros=_zeros),
    )


def _zeros(shape, dtype, device):
    return torch.zeros(shape, dtype=dtype, device=device)


def _derivative_by_views(op: Operator, gradient: Callable):
    """A gradient that no kernel computes: a function of specs and incoming gradients."""
    names = [a.name for a in op.args]

    def setup(ctx, inputs, output):
        ctx.specs = tuple(_fake_spec(v) for v in inputs[: len(names)])

    def backward(ctx, *grads):
        by_name = gradient(dict(zip(names, ctx.specs, strict=True)), *grads)
        return (*(by_name.get(n) for n in names), None)

    return setup, backward


def _vmap_leading(apply, batch: int, in_dims, args):
    moved = [
        a
        if not isinstance(a, torch.Tensor)
        else (a.expand(batch, *a.shape) if d is None else a.movedim(d, 0))
        for a, d in zip(args, in_dims, strict=True)
    ]
    out = apply(*moved)
    return out, (0,) * len(out) if isinstance(out, tuple) else 0


def _vmap_loop(apply, batch: int, in_dims, args):
    samples = [
        apply(*(a if d is None else a.select(d, i) for a, d in zip(args, in_dims, strict=True)))
        for i in range(batch)
    ]
    if isinstance(samples[0], tuple):
        return tuple(torch.stack(s) for s in zip(*samples, strict=True)), (0,) * len(samples[0])
    return torch.stack(samples), 0


def _compile(source: str, function: str, **names: Any) -> Callable:
    """The function that `source` defines. Generated, because a loop over a schema's arguments
    would cost each call more than the launch it leads to."""
    exec(compile(source, f"<kernelwright {function}>", "exec"), names)
    return names[function]
