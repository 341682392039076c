"""A block of elements per program.

Idea: one kernel for all operators, with the formula as a constexpr function; a program loads a
block of each operand, computes it in registers and stores it; Triton compiles this to 16-byte
vectors if pointers and sizes allow.
Traffic: every operand read once, every result written once: the minimum.
Compared with `cuda_grid2d`: an eighth of the addresses and loads.
Limit: a size that is not divisible by 16 is loaded element by element.
"""

from functools import partial

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.activations import sigmoid, silu, silu_and_slope, tanh

from .spec import TABLE


@triton.jit
def add(x, other, dtype: tl.constexpr):
    return x + other


@triton.jit
def mul(x, other, dtype: tl.constexpr):
    return x * other


@triton.jit
def mul_backward(gy, x, other, dtype: tl.constexpr):
    return gy * other, gy * x


@triton.jit
def relu(x, dtype: tl.constexpr):
    return tl.where(x <= 0, 0.0, x)  # NaN remains NaN


@triton.jit
def relu_backward(gy, y, dtype: tl.constexpr):
    return tl.where(y <= 0, 0.0, gy)


@triton.jit
def squared_relu(x, dtype: tl.constexpr):
    return tl.where(x <= 0, 0.0, x * x)


@triton.jit
def squared_relu_backward(gy, x, dtype: tl.constexpr):
    return gy * tl.where(x <= 0, 0.0, x + x)


@triton.jit
def silu_backward(gy, x, dtype: tl.constexpr):
    return gy * silu_and_slope(x, dtype)[1]


@triton.jit
def sigmoid_backward(gy, y, dtype: tl.constexpr):
    return gy * (1.0 - y) * y


@triton.jit
def tanh_backward(gy, y, dtype: tl.constexpr):
    return gy * tl.fma(-y, y, 1.0)


FORMULAS = {
    "add": add,
    "mul": mul,
    "mul_backward": mul_backward,
    "relu": relu,
    "relu_backward": relu_backward,
    "squared_relu": squared_relu,
    "squared_relu_backward": squared_relu_backward,
    "silu": silu,
    "silu_backward": silu_backward,
    "sigmoid": sigmoid,
    "sigmoid_backward": sigmoid_backward,
    "tanh": tanh,
    "tanh_backward": tanh_backward,
}


@triton.jit
def elementwise_block(
    n, a_ptr, y_ptr, b_ptr, c_ptr, z_ptr, FORMULA: tl.constexpr, BLOCK: tl.constexpr
):
    """y = F(a), y = F(a, b), or y, z = F(a, b, c)."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    a = tl.load(a_ptr + i, mask=inside).to(tl.float32)
    if b_ptr is None:
        y = FORMULA(a, dtype)
    else:
        b = tl.load(b_ptr + i, mask=inside).to(tl.float32)
        if c_ptr is None:
            y = FORMULA(a, b, dtype)
        else:
            c = tl.load(c_ptr + i, mask=inside).to(tl.float32)
            y, z = FORMULA(a, b, c, dtype)
            tl.store(z_ptr + i, z.to(dtype), mask=inside)
    tl.store(y_ptr + i, y.to(dtype), mask=inside)


def _plan(formula, results, gpu, config, **tensors):
    n = next(iter(tensors.values())).numel()
    first, *more = tensors
    present = (first, results[0], *more, *results[1:])
    absent = ("b_ptr", "c_ptr", "z_ptr")[len(present) - 2 :]
    constexprs = {"FORMULA": formula, "BLOCK": config["block"], **dict.fromkeys(absent)}
    launch = Launch(
        TritonKernel(elementwise_block, constexprs, num_warps=config["num_warps"]),
        grid=(cdiv(n, config["block"]), 1, 1),
        args=(i64(n), *present),
    )
    return Plan((launch,))


def __getattr__(entry: str):
    """Entries are named after the operator, for example `plan_silu` or `plan_mul_backward`."""
    name = entry.removeprefix("plan_")
    if name == entry or name not in FORMULAS:
        raise AttributeError(f"module {__name__!r} has no attribute {entry!r}")
    operator = name.removesuffix("_backward")
    return partial(_plan, FORMULAS[name], TABLE[operator].results if name != operator else ("y",))
