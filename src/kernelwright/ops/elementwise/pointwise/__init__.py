"""Elementwise operators: one template per rung, one line per operator.

`spec.TABLE` lists the operators; each gets the same ladder, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import replaced, written

from . import heuristics, spec, torch_rungs


def _grid2d(f: spec.Formula) -> Rung:
    """A forward rung for an operand that is one row, shared by all rows."""
    return rungs.cuda(
        "grid2d",
        f"_{f.name}",
        "columns along x, rows along y: a row shared by all rows needs no division",
        heuristics.fits_grid2d,
        heuristics.GRID2D_CONFIGS,
        dispatchable=f.binary,
    )


def _broadcast(f: spec.Formula, backward: str) -> Rung:
    """A rung for operators of two arguments, one of which is broadcast."""
    return Rung(
        "cuda_broadcast",
        "cuda",
        f"cuda_broadcast:broadcast_{f.name}{backward}",
        "16-byte vectors of the result; broadcast operands are read from the caches",
        supports=heuristics.fits_broadcast_backward if backward else heuristics.fits_broadcast,
        configs=heuristics.STRIPS_CONFIGS if backward else heuristics.VEC16_CONFIGS,
        heuristic=heuristics.choose_strips if backward else heuristics.choose_vec16,
        sources=("cuda_broadcast.cu",),
    )


def _rungs(f: spec.Formula, backward: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `backward` is the suffix of the backward's
    entries."""
    side = f"_{f.name}{backward}"
    return (
        *rungs.pytorch(side, manual="the formula, one kernel per operator"),
        rungs.cuda(
            "thread",
            side,
            "one element per thread",
            heuristics.fits_flat,
            heuristics.THREAD_CONFIGS,
        ),
        *(() if backward else (_grid2d(f),)),
        rungs.triton(
            "block",
            side,
            "a block of elements per program, vectorized by the compiler",
            heuristics.fits_flat,
            heuristics.BLOCK_CONFIGS,
            heuristic=heuristics.choose_block,
        ),
        rungs.cuda(
            "vec16",
            side,
            "16-byte vectors, several in flight",
            heuristics.fits_vec16,
            heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_vec16,
        ),
        *((_broadcast(f, backward),) if f.binary else ()),
    )


# Each gradient of a product is a product.
_ALONE = {"mul": {"x": ("gy", "other"), "other": ("gy", "x")}}


def _add_gradient(specs, gy) -> dict:
    """`spec.add_gradient`, without host time if nothing was broadcast or promoted."""
    if all(s.shape == gy.shape and s.dtype == gy.dtype for s in specs.values()):
        return dict.fromkeys(specs, gy)
    return spec.add_gradient(specs, gy)


def _bound(name: str) -> Callable:
    """The operator's ladders, bound to PyTorch; torch.compile sees PyTorch's own operator."""
    f, formula = spec.TABLE[name], torch_rungs.NATIVE[name]
    forward = Ladder(spec.FORWARD[name], _rungs(f), __name__, heuristics.order, heuristics.bucket)
    if f.gradient is None:
        return bind(forward, gradient=_add_gradient, formula=formula, passed=True)
    backward = Ladder(
        spec.BACKWARD[name], _rungs(f, "_backward"), __name__, heuristics.order, heuristics.bucket
    )
    # the formula's clamp has another derivative at NaN than PyTorch's relu
    differentiable = torch.relu if name == "relu" else "manual"
    return bind(
        forward, backward, formula=formula, alone=_ALONE.get(name), differentiable=differentiable
    )


_operators = {name: _bound(name) for name in spec.TABLE}
_add, _mul, _relu, _squared_relu, _silu, _sigmoid, _tanh = _operators.values()


def relu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """max(x, 0), elementwise, as torch.nn.functional.relu.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types and
            integers use PyTorch's kernels.
        inplace: write the result to the input (through a temporary of its size).

    Returns:
        A tensor of the input's shape and dtype, and of its strides if it is dense; the input itself
        if inplace is set.

    Raises:
        TypeError: input is not a tensor of real numbers.
    """
    if not _floating("input", input):
        if input.is_complex() or input.dtype == torch.bool:
            raise TypeError(f"input: must be real numbers, is {input.dtype}")
        return torch.nn.functional.relu(input, inplace)
    return replaced(input, _relu) if inplace else _relu(input)


def squared_relu(input: torch.Tensor) -> torch.Tensor:
    """max(x, 0)^2, elementwise.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types use
            PyTorch's kernels.

    Returns:
        A tensor of the input's shape and dtype, and of its strides if it is dense.

    Raises:
        TypeError: input is not a tensor of floating-point numbers.

    Source: So et al., Primer, arXiv:2109.08668.
    """
    arguments.floating("input", input)
    return _squared_relu(input)


def silu(input: torch.Tensor, inplace: bool = False) -> torch.Tensor:
    """x / (1 + exp(-x)), elementwise, as torch.nn.functional.silu.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types use
            PyTorch's kernels.
        inplace: write the result to the input (through a temporary of its size).

    Returns:
        A tensor of the input's shape and dtype, and of its strides if it is dense; the input itself
        if inplace is set.

    Raises:
        TypeError: input is not a tensor of floating-point numbers.
    """
    arguments.floating("input", input)
    return replaced(input, _silu) if inplace else _silu(input)


def sigmoid(input: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """1 / (1 + exp(-x)), elementwise, as torch.sigmoid.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs; other dtypes use PyTorch's
            kernels. Integers and bool give the default floating type.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the input's shape, and of its strides if it is dense; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
    """
    y = _sigmoid(input) if _floating("input", input) else torch.sigmoid(input)
    return y if out is None else written(out, y)


def tanh(input: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """The hyperbolic tangent, elementwise, as torch.tanh.

    Args:
        input, out: as in `sigmoid`.

    Returns:
        A tensor of the input's shape, and of its strides if it is dense; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
    """
    y = _tanh(input) if _floating("input", input) else torch.tanh(input)
    return y if out is None else written(out, y)


def _floating(name: str, value) -> bool:
    """Whether a tensor holds floating-point numbers."""
    if isinstance(value, torch.Tensor):
        return value.is_floating_point()
    arguments.tensor(name, value)
    return False


def add(
    input: torch.Tensor,
    other: torch.Tensor | float,
    *,
    alpha: float = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """input + alpha * other, as torch.add.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs.
        other: a tensor that broadcasts with the input, or a number. PyTorch's kernels are used for
            numbers, for a 0-d tensor with another tensor, for other dtypes and, where no rung is
            faster, for broadcasts.
        alpha: with a value other than 1, PyTorch's kernel is used.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the broadcast shape and the promoted dtype; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
        ValueError: the shapes do not broadcast.
    """
    arguments.tensor("input", input)
    _check_other(other)
    if type(alpha) is not int or alpha != 1 or not _in_ladder(input, other):
        _check_alpha(alpha, input, other)
        return torch.add(input, other, alpha=alpha, out=out)
    if input.shape != other.shape:
        input, other = _aligned(input, other)
    return _add(input, other) if out is None else written(out, _add(input, other))


def mul(
    input: torch.Tensor, other: torch.Tensor | float, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """input * other, as torch.mul.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs.
        other: a tensor that broadcasts with the input, or a number. PyTorch's kernels are used for
            numbers, for a 0-d tensor with another tensor, for other dtypes and, where no rung is
            faster, for broadcasts.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the broadcast shape and the promoted dtype; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
        ValueError: the shapes do not broadcast.
    """
    arguments.tensor("input", input)
    _check_other(other)
    if not _in_ladder(input, other):
        return torch.mul(input, other, out=out)
    if input.shape != other.shape:
        input, other = _aligned(input, other)
    return _mul(input, other) if out is None else written(out, _mul(input, other))


def _check_other(other) -> None:
    """Raise TypeError unless other is a tensor or a number."""
    if not isinstance(other, (torch.Tensor, Number, torch.SymInt, torch.SymFloat)):
        raise TypeError(f"other: must be a tensor or a number, is a {type(other).__name__}")


def _check_alpha(alpha, input, other) -> None:
    """Raise TypeError if alpha is of a wider kind than the result: complex, real or integer."""
    if type(alpha) in (int, float) and alpha == 1:
        return
    to = torch.result_type(input, other)
    wider = isinstance(alpha, complex) and not to.is_complex
    wider |= isinstance(alpha, float) and not (to.is_floating_point or to.is_complex)
    if wider or (isinstance(alpha, bool) and to != torch.bool):
        raise TypeError(f"alpha: is a {type(alpha).__name__}, the result is {to}")


def _in_ladder(input, other) -> bool:
    """Whether both are floating-point tensors, and both or neither are 0-d. With another tensor,
    PyTorch treats a 0-d tensor like a number: it does not promote the other's dtype, and it may be
    on another device."""
    return (
        isinstance(other, torch.Tensor)
        and input.is_floating_point()
        and other.is_floating_point()
        and (input.ndim > 0) == (other.ndim > 0)
    )


def _aligned(input, other):
    """Both with the same number of dimensions, so that a leading batch dimension stays the first
    one."""
    extra = input.ndim - other.ndim
    a = input[(None,) * -extra] if extra < 0 else input
    b = other[(None,) * extra] if extra > 0 else other
    if any(m != n and 1 not in (m, n) for m, n in zip(a.shape, b.shape, strict=True)):
        raise ValueError(
            f"other: shape {tuple(other.shape)} does not broadcast with input's "
            f"{tuple(input.shape)}"
        )
    return a, b
