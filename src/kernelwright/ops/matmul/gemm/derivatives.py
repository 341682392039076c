"""Derivatives of the products: they are products too, so they can be differentiated any number of
times. Forward mode differentiates PyTorch's products.

The gradient of an operand that is stored by columns is stored by columns too: an optimizer then
finds weights and gradients in the same order.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from kernelwright.dispatch import Rule, bind, recorded
from kernelwright.dispatch.native_calls import Call, Node, Source
from kernelwright.ops.reduce.sum import sum

from .ladder import LADDER, LADDER_LINEAR


def _allowed() -> bool:
    """Whether PyTorch's setting allows float32 operands to be rounded to tf32. torch.compile treats
    it as a constant, and recompiles if it changes."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


# as torch.compiler.assume_constant_result does, which would import the compiler
vars(_allowed)["_dynamo_marked_constant"] = True


def _tf32(t: torch.Tensor) -> bool:
    return t.dtype == torch.float32 and t.is_cuda and _allowed()


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b, for two matrices or two batches of matrices."""
    return _matmul(a, b, _tf32(a))


def repeated_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor | None:
    """a b if the product of two such operands has run before (`binding.bind`), otherwise None."""
    return _matmul.repeated(a, b, _tf32(a)) if isinstance(a, torch.Tensor) else None


def repeated_linear(x, weight, bias) -> torch.Tensor | None:
    """As `repeated_product`, for `linear` with a bias alone."""
    found = _linear.repeated(x, weight, bias, None, None, "none", False, _tf32(x))
    return found and found[0]


def _save_product(ctx, inputs, output):
    """Saves in the order of _PRODUCT_NODE: a checkpoint may have run in Python, and is recomputed
    in C++ once that is loaded."""
    a, b, _ = inputs
    of_a, of_b = ctx.needs_input_grad[:2]
    ctx.save_for_backward(b if of_a else None, a if of_b else None)
    ctx.columns = _by_columns(a), _by_columns(b)


def _product_backward(ctx, gc):
    b, a = ctx.saved_tensors
    a_columns, b_columns = ctx.columns
    ga = None if b is None else _ordered(gc, b.mT, a_columns)
    return ga, None if a is None else _ordered(a.mT, gc, b_columns), None


def _vmapped(call, n, in_dims, args):
    """Adds a batch dimension, merged with an existing one."""
    a, b = (
        t.expand(n, *t.shape) if d is None else t.movedim(d, 0)
        for t, d in zip(args[:2], in_dims, strict=False)
    )
    if a.ndim == 3:
        return call(a, b, *args[2:]), 0
    return call(a.flatten(0, 1), b.flatten(0, 1), *args[2:]).unflatten(0, (n, a.shape[1])), 0


def _product_calls(
    argument: int, a: Source, b: Source, matrix: int, columns: tuple[bool, ...] = (False, True)
) -> tuple[Call, ...]:
    """The calls for a gradient a b, stored as the argument `matrix` is (`_ordered`)."""
    plain = Source("c", constant=False)  # tf32
    transposed = replace(b, transposed=not b.transposed), replace(a, transposed=not a.transposed)
    return tuple(
        Call("matmul", (*(transposed if by else (a, b)), plain), ((argument, 0, by),), matrix, by)
        for by in columns
    )


_A, _B, _GRADIENT = Source("a", 0), Source("a", 1), Source("n", 0)
_PRODUCT_NODE = Node(
    (
        *_product_calls(0, _GRADIENT, replace(_B, transposed=True), matrix=0),
        *_product_calls(1, replace(_A, transposed=True), _GRADIENT, matrix=1),
    ),
    passed=(-1, -1, -1),
    fixed=(False,),
    half=True,  # whether float32 is rounded is decided in each backward
)
_matmul = bind(
    LADDER,
    rule=Rule(_save_product, _product_backward, _PRODUCT_NODE),
    vmap=_vmapped,
    differentiable="native",
)


def _by_columns(t: torch.Tensor) -> bool:
    return t.stride(-2) == 1 and t.stride(-1) > 1


def _ordered(a: torch.Tensor, b: torch.Tensor, columns: bool) -> torch.Tensor:
    """a b, stored by columns or by rows."""
    return product(b.mT, a.mT).mT if columns else product(a, b)


def linear(x, weight, bias, gate, residual, activation: str) -> torch.Tensor:
    """The product with an epilogue; x, gate and residual are two-dimensional."""
    args = x, weight, bias, gate, residual, activation
    keep = _keeps(activation, gate, residual) and recorded(*args[:5])
    return _linear(*args, keep, _tf32(x))[0]


def _keeps(activation: str, gate, residual) -> bool:
    """Whether the backward needs z. For y = relu(z), y contains the same information."""
    if activation == "relu":
        return gate is not None or residual is not None
    return activation != "none" or gate is not None


def _save_linear(ctx, inputs, output):
    """z is returned like y, so that a second derivative knows how it was computed. The order is
    that of _LINEAR_NODE."""
    x, weight, bias, gate, residual, activation, keep, _ = inputs
    y, z = output
    of_x, of_weight = ctx.needs_input_grad[:2]
    ctx.recomputed = not keep and _keeps(activation, gate, residual)
    kept = z if keep else y if activation == "relu" and not ctx.recomputed else None
    everything = weight, x, bias
    some = weight if of_x else None, x if of_weight else None, None
    ctx.save_for_backward(*(everything if ctx.recomputed else some), kept, gate)
    ctx.activation, ctx.keep, ctx.columns = activation, keep, _by_columns(weight)
    ctx.set_materialize_grads(False)


def _linear_backward(ctx, gy, gz):
    weight, x, bias, kept, gate = ctx.saved_tensors
    of_x, of_weight, of_bias, of_gate, of_residual = ctx.needs_input_grad[:5]
    if ctx.recomputed and gy is not None:
        kept = linear(x, weight, bias, None, None, "none")
    ggate = None
    if gy is None:
        gz = gz if ctx.keep else None
    else:
        gh = gy if gate is None else gy * gate
        ggate = gy * _ACT[ctx.activation](kept) if of_gate else None
        through = _SLOPED[ctx.activation](gh, kept)
        gz = gz + through if ctx.keep and gz is not None else through
    gx = gweight = gbias = None
    if gz is not None:
        gx = product(gz, weight) if of_x else None
        gweight = _ordered(gz.mT, x, ctx.columns) if of_weight else None
        gbias = sum(gz, 0) if of_bias else None
    return gx, gweight, gbias, ggate, gy if of_residual else None, None, None, None


#: Without gate and activation: products, and the gradient itself.
_LINEAR_NODE = Node(
    (
        *_product_calls(0, _GRADIENT, _B, matrix=-1, columns=(False,)),
        *_product_calls(1, replace(_GRADIENT, transposed=True), _A, matrix=1),
        Call("sum", (_GRADIENT, Source("c", constant=(-2,)), Source("c")), ((2, 0, False),)),
    ),
    passed=(-1, -1, -1, -1, 0, -1, -1, -1),
    fixed=(False, False),
    when=((3, None), (5, "none"), (6, False)),
    half=True,
)
_linear = bind(
    LADDER_LINEAR,
    rule=Rule(_save_linear, _linear_backward, _LINEAR_NODE),
    vmap="loop",
    differentiable="native",
)


def _silu_sloped(g, z):
    if not torch.is_grad_enabled():
        return torch.ops.aten.silu_backward(g, z)
    s = torch.sigmoid(z)  # PyTorch's derivative of it cannot be differentiated
    return g * s * (1 + z * (1 - s))


_ACT = {
    "none": lambda z: z,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "silu": torch.nn.functional.silu,
}
#: the output's gradient times the slope at z
_SLOPED = {
    "none": lambda g, z: g,
    "relu": lambda g, z: torch.ops.aten.threshold_backward(g, z, 0),
    "gelu": lambda g, z: torch.ops.aten.gelu_backward(g, z),
    "gelu_tanh": lambda g, z: torch.ops.aten.gelu_backward(g, z, approximate="tanh"),
    "silu": _silu_sloped,
}
