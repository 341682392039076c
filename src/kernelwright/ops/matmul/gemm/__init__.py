"""matmul and linear: the ladder from the triple loop to tensor cores.

There are two operators: `matmul`, the product of two matrices, or of a batch of pairs given by
their strides, which also computes the gradients (derivatives.py); and `linear`, the product with a
weight followed by an epilogue. Their rungs are listed in ladder.py.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import arguments, autocast

from .derivatives import linear as _linear
from .derivatives import product as _product
from .derivatives import repeated_linear, repeated_product
from .ladder import LADDER, LADDER_LINEAR
from .spec import ACTIVATIONS

__all__ = ["LADDER", "LADDER_LINEAR", "linear", "matmul"]


def matmul(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The matrix product, as torch.matmul.

    Args:
        input: shape (K,), (M, K) or (*, M, K).
        other: shape (K,), (K, N) or (*, K, N), of the input's dtype. Dimensions before the last two
            broadcast. float32, float16 and bfloat16 have GPU rungs; float64 uses PyTorch's kernels.

    Returns:
        Shape (*, M, N), without M or N if that operand has only one dimension. Under autocast the
        product runs in its dtype; float32 is rounded to tf32 where PyTorch's setting allows it.

    Raises:
        TypeError: an argument is not floating point, or their dtypes differ.
        ValueError: an argument has no dimensions, or their shapes do not fit.
    """
    y = repeated_product(input, other)
    if y is not None:
        return y
    arguments.floating("input", input)
    arguments.floating("other", other)
    input, other = autocast.cast(input, input, other)
    if other.dtype != input.dtype:
        raise _other_dtype("other", other, input)
    if input.ndim == 0 or other.ndim == 0:
        name = "other" if input.ndim else "input"
        raise ValueError(f"{name}: must have one dimension or more, has none")
    if other.shape[-2 if other.ndim > 1 else 0] != input.shape[-1]:
        raise ValueError(
            f"other: has shape {tuple(other.shape)}, which does not fit the input's "
            f"{tuple(input.shape)}"
        )
    return _times(input, other)


def _times(input: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The product of operands that fit."""
    if input.ndim == other.ndim == 2:
        return _product(input, other)
    a = input if input.ndim > 1 else input.unsqueeze(0)
    b = other if other.ndim > 1 else other.unsqueeze(1)
    c = _broadcast(a, b)
    if other.ndim == 1:
        c = c.squeeze(-1)
    return c if input.ndim > 1 else c.squeeze(-1 if other.ndim == 1 else -2)


def _broadcast(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a b for operands with two or more dimensions each."""
    if a.ndim == b.ndim == 2:
        return _product(a, b)
    if b.ndim == 2 and _rows_of(a):
        rows = math.prod(a.shape[:-1])
        return _product(a.reshape(rows, a.shape[-1]), b).view(*a.shape[:-1], b.shape[-1])
    try:
        batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except RuntimeError:
        raise ValueError(
            f"other: has shape {tuple(b.shape)}, which does not broadcast with the input's "
            f"{tuple(a.shape)}"
        ) from None
    count = math.prod(batch)
    a, b = (t.expand(*batch, *t.shape[-2:]).reshape(count, *t.shape[-2:]) for t in (a, b))
    return _product(a, b).view(*batch, a.shape[-2], b.shape[-1])


def _rows_of(t: torch.Tensor) -> bool:
    """Whether all dimensions except the last can be merged, so that a batch times one matrix is one
    product. If they cannot, the matrix is expanded instead of copying the batch."""
    return t.ndim > 3 or t.shape[0] == 1 or t.stride(0) == t.shape[1] * t.stride(1)


def linear(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    *,
    activation: str | None = None,
    gate: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """activation(input weight^T + bias) * gate + residual in one pass over the result.

    With no argument other than `bias`, as torch.nn.functional.linear. A gated layer is two
    calls: `linear(x, w_gate, activation="silu", gate=linear(x, w_up))`.

    Args:
        input: shape (*, K).
        weight: shape (N, K), or (K,) for one output without a dimension; of the input's dtype.
        bias: shape (N,), or () with a one-dimensional weight.
        activation: "relu", "gelu", "gelu_tanh", "silu", or None.
        gate: multiplied by the activation's result; has the shape of the result.
        residual: added at the end; has the shape of the result.

    Returns:
        Shape (*, N). All operations after the product are computed in float32, and the result is
        rounded once. Under autocast all arguments are cast to its dtype.

    Raises:
        TypeError: an argument is not floating point, or has a dtype other than the input's.
        ValueError: a shape does not fit, or the activation is unknown.
    """
    if activation is None and gate is None and residual is None:
        y = _repeated_linear(input, weight, bias)
        if y is not None:
            return y
    arguments.floating("input", input)
    arguments.floating("weight", weight)
    if bias is not None:
        arguments.floating("bias", bias)
    if gate is not None:
        arguments.floating("gate", gate)
    if residual is not None:
        arguments.floating("residual", residual)
    input, weight, bias, gate, residual = autocast.cast(input, input, weight, bias, gate, residual)
    if activation is not None and activation not in ACTIVATIONS[1:]:
        known = ", ".join(ACTIVATIONS[1:])
        raise ValueError(f"activation: {activation!r} is none of {known}")
    _fits(input, weight, bias, gate, residual)
    if weight.ndim == 1:
        weight = weight.unsqueeze(0)
        bias, gate, residual = (
            None if t is None else t.unsqueeze(-1) for t in (bias, gate, residual)
        )
        return linear(
            input, weight, bias, activation=activation, gate=gate, residual=residual
        ).squeeze(-1)
    if bias is None and activation is None and gate is None and residual is None:
        return _times(input, weight.t())
    if input.ndim == 2:
        return _linear(input, weight, bias, gate, residual, activation or "none")
    shape = (*input.shape[:-1], weight.shape[0])
    rows = math.prod(shape[:-1])
    x, gate, residual = (
        None if t is None else t.reshape(rows, t.shape[-1]) for t in (input, gate, residual)
    )
    return _linear(x, weight, bias, gate, residual, activation or "none").view(shape)


def _repeated_linear(input, weight, bias) -> torch.Tensor | None:
    """The result of `linear` without an epilogue if a call like this one has run before."""
    if not isinstance(input, torch.Tensor) or not isinstance(weight, torch.Tensor):
        return None
    if weight.ndim != 2 or input.ndim < 2:
        return None
    x = input
    if input.ndim > 2:
        if not input.is_contiguous() or not input.numel():
            return None
        # not -1, which is ambiguous in a vmap over no samples
        x = input.view(math.prod(input.shape[:-1]), input.shape[-1])
    y = repeated_product(x, weight.t()) if bias is None else repeated_linear(x, weight, bias)
    return y if y is None or x is input else y.view(*input.shape[:-1], weight.shape[0])


def _fits(input, weight, bias, gate, residual) -> None:
    """Raise TypeError or ValueError, naming the argument, unless dtypes and shapes fit."""
    if weight.dtype != input.dtype:
        raise _other_dtype("weight", weight, input)
    if input.ndim == 0 or weight.ndim not in (1, 2) or weight.shape[-1] != input.shape[-1]:
        wanted = f"(N, {input.shape[-1]})" if input.ndim else "(N, K) beside an input (*, K)"
        raise ValueError(f"weight: has shape {tuple(weight.shape)}, should be {wanted}")
    if bias is not None:
        _has("bias", bias, input, weight.shape[:-1])
    if gate is not None:
        _has("gate", gate, input, input.shape[:-1] + weight.shape[:-1])
    if residual is not None:
        _has("residual", residual, input, input.shape[:-1] + weight.shape[:-1])


def _has(name: str, t: torch.Tensor, input: torch.Tensor, shape: torch.Size) -> None:
    """Raise TypeError or ValueError unless a tensor has the input's dtype and this shape."""
    if t.dtype != input.dtype:
        raise _other_dtype(name, t, input)
    if t.shape != shape:
        raise ValueError(f"{name}: has shape {tuple(t.shape)}, should be {tuple(shape)}")


def _other_dtype(name: str, t: torch.Tensor, input: torch.Tensor) -> TypeError:
    return TypeError(f"{name}: is {t.dtype}, should be {input.dtype} as the input")
