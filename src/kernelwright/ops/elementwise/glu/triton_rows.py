"""One tile of a row per program.

Idea: a program loads its tile of gate and up at any row stride, computes it in registers and stores
it. Tensors without gaps are one long row, so that only the last tile is partial.
Traffic: gate and up read once, y written once; backward: gy, gate and up read, two gradients
written. `manual` writes the activation and reads it again, and more of them in the backward.
Compared with `compiled`: halves of one tensor are not copied.
Limit: rows that are not multiples of 16 bytes are loaded element by element.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.activations import silu, silu_and_slope
from kernelwright.ops._triton.math import gelu_erf, gelu_erf_slope, gelu_tanh, gelu_tanh_slope

from .tiling import rows_of


@triton.jit
def gelu_tanh_value(x, dtype: tl.constexpr):
    return gelu_tanh(x)


@triton.jit
def gelu_tanh_and_slope(x, dtype: tl.constexpr):
    return gelu_tanh(x), gelu_tanh_slope(x, dtype)


@triton.jit
def gelu_erf_and_slope(x, dtype: tl.constexpr):
    return gelu_erf(x, dtype), gelu_erf_slope(x, dtype)


#: By `approximate`, which swiglu does not have: the activation, and the activation with its slope.
ACTIVATION = {
    None: (silu, silu_and_slope),
    "none": (gelu_erf, gelu_erf_and_slope),
    "tanh": (gelu_tanh_value, gelu_tanh_and_slope),
}


@triton.jit
def glu_fwd_rows(
    gate_ptr, up_ptr, y_ptr, n_cols, tiles, gate_stride, up_stride,
    ACTIVATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row = (program // tiles).to(tl.int64)
    col = (program % tiles).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < n_cols
    dtype: tl.constexpr = y_ptr.dtype.element_ty
    gate = tl.load(gate_ptr + row * gate_stride + col, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + col, mask=inside).to(tl.float32)
    y = ACTIVATION(gate, dtype) * up
    tl.store(y_ptr + row * n_cols + col, y.to(dtype), mask=inside)


@triton.jit
def glu_bwd_rows(
    gy_ptr, gate_ptr, up_ptr, ggate_ptr, gup_ptr, n_cols, tiles, gy_stride, gate_stride, up_stride,
    ACTIVATION: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    row = (program // tiles).to(tl.int64)
    col = (program % tiles).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = col < n_cols
    dtype: tl.constexpr = ggate_ptr.dtype.element_ty
    gy = tl.load(gy_ptr + row * gy_stride + col, mask=inside).to(tl.float32)
    gate = tl.load(gate_ptr + row * gate_stride + col, mask=inside).to(tl.float32)
    up = tl.load(up_ptr + row * up_stride + col, mask=inside).to(tl.float32)
    value, slope = ACTIVATION(gate, dtype)
    tl.store(ggate_ptr + row * n_cols + col, (gy * up * slope).to(dtype), mask=inside)
    tl.store(gup_ptr + row * n_cols + col, (gy * value).to(dtype), mask=inside)


def plan(gpu, config, gate, up, approximate=None):
    inputs = {"gate": gate, "up": up}
    return _plan(glu_fwd_rows, ACTIVATION[approximate][0], inputs, ("y",), config)


def plan_backward(gpu, config, gy, gate, up, approximate=None):
    inputs = {"gy": gy, "gate": gate, "up": up}
    return _plan(glu_bwd_rows, ACTIVATION[approximate][1], inputs, ("ggate", "gup"), config)


def _plan(kernel, activation, inputs, results, config):
    rows, cols, strides = rows_of(inputs.values())
    tiles = cdiv(cols, config["block"])
    constexprs = {"ACTIVATION": activation, "BLOCK": config["block"]}
    launch = Launch(
        TritonKernel(kernel, constexprs, num_warps=config["num_warps"]),
        grid=(rows * tiles, 1, 1),
        args=(*inputs, *results, i64(cols), i32(tiles), *map(i64, strides)),
    )
    return Plan((launch,))
