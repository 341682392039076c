"""Derivatives of the products: they are products too, so they can be differentiated any number of
times.

The gradient of an operand that is stored by columns is stored by columns too: an optimizer then
finds weights and gradients in the same order.
"""

from __future__ import annotations

import torch
from torch.autograd import forward_ad

from kernelwright.dispatch import apply_of, vmap_loop
from kernelwright.ops.reduce.sum import sum

from . import ladder

NO_FORWARD_MODE = (
    "matmul, linear: forward-mode derivatives are not supported; use torch.matmul or "
    "torch.nn.functional.linear, or reverse mode"
)


def _allowed() -> bool:
    """Whether PyTorch's setting allows float32 operands to be rounded to tf32. torch.compile treats
    it as a constant, and recompiles if it changes."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


# as torch.compiler.assume_constant_result does, which would import the compiler
vars(_allowed)["_dynamo_marked_constant"] = True


def _tf32(t: torch.Tensor) -> bool:
    return t.dtype == torch.float32 and t.is_cuda and _allowed()


def _wants(*tensors: torch.Tensor | None) -> bool:
    """Whether a call must be visible to autograd or to a transform of torch.func."""
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        return True
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _refuse_forward_mode() -> None:
    if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:
        raise NotImplementedError(NO_FORWARD_MODE)


def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b, for two matrices or two batches of matrices."""
    if not _wants(a, b):
        return ladder.matmul(a, b, _tf32(a))
    _refuse_forward_mode()
    return _product(a, b)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        return ladder.matmul(a, b, _tf32(a))

    @staticmethod
    def setup_context(ctx, inputs, output):
        a, b = inputs
        of_a, of_b = ctx.needs_input_grad
        ctx.save_for_backward(a if of_b else None, b if of_a else None)
        ctx.columns = _by_columns(a), _by_columns(b)

    @staticmethod
    def backward(ctx, gc):
        a, b = ctx.saved_tensors
        a_columns, b_columns = ctx.columns
        ga = None if b is None else _ordered(gc, b.mT, a_columns)
        return ga, None if a is None else _ordered(a.mT, gc, b_columns)

    @staticmethod
    def vmap(info, in_dims, a, b):
        """Adds a batch dimension, merged with an existing one."""
        n = info.batch_size
        a, b = (
            t.expand(n, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip((a, b), in_dims, strict=True)
        )
        if a.ndim == 3:
            return product(a, b), 0
        return product(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, (n, -1)), 0


_product = apply_of(_Product)


def _by_columns(t: torch.Tensor) -> bool:
    return t.stride(-2) == 1 and t.stride(-1) > 1


def _ordered(a: torch.Tensor, b: torch.Tensor, columns: bool) -> torch.Tensor:
    """a b, stored by columns or by rows."""
    return product(b.mT, a.mT).mT if columns else product(a, b)


def linear(x, weight, bias, gate, residual, activation: str) -> torch.Tensor:
    """The product with an epilogue; x, gate and residual are two-dimensional."""
    args = x, weight, bias, gate, residual, activation
    if not _wants(x, weight, bias, gate, residual):
        return ladder.linear(*args, False, _tf32(x))[0]
    _refuse_forward_mode()
    return _linear(*args, _keeps(activation, gate, residual))[0]


def _keeps(activation: str, gate, residual) -> bool:
    """Whether the backward needs z. For y = relu(z), y contains the same information."""
    if activation == "relu":
        return gate is not None or residual is not None
    return activation != "none" or gate is not None


class _Linear(torch.autograd.Function):
    """(y, z). z is returned like y, so that a second derivative knows how it was computed."""

    @staticmethod
    def forward(x, weight, bias, gate, residual, activation, keep):
        return ladder.linear(x, weight, bias, gate, residual, activation, keep, _tf32(x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weight, _, gate, _, activation, keep = inputs
        y, z = output
        of_x, of_weight = ctx.needs_input_grad[:2]
        kept = z if keep else y if activation == "relu" else None
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None, kept, gate)
        ctx.activation, ctx.keep, ctx.columns = activation, keep, _by_columns(weight)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gy, gz):
        x, weight, kept, gate = ctx.saved_tensors
        of_bias, of_gate, of_residual = ctx.needs_input_grad[2:5]
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
            gx = None if weight is None else product(gz, weight)
            gweight = None if x is None else _ordered(gz.mT, x, ctx.columns)
            gbias = sum(gz, 0) if of_bias else None
        return gx, gweight, gbias, ggate, gy if of_residual else None, None, None

    @staticmethod
    def vmap(info, in_dims, *args):
        return vmap_loop(_Linear.apply, info.batch_size, in_dims, args)


_linear = apply_of(_Linear)


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
