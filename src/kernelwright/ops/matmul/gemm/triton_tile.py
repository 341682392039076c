"""Shared by the Triton rungs: the order of tiles, the sums of products, the epilogue, and the
arguments of both kernels."""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.activations import silu
from kernelwright.ops._triton.math import gelu_erf, gelu_tanh

from .tiling import order_of

GROUP = tl.constexpr(8)  # rows of tiles that are processed column by column, for reuse in L2


@triton.jit
def tile_of(tile, m, n, ROWS: tl.constexpr, COLS: tl.constexpr):
    """(row, column, batch index) of tile number `tile`, in units of tiles."""
    down, across = tl.cdiv(m, ROWS), tl.cdiv(n, COLS)
    nth, tile = tile // (down * across), tile % (down * across)
    top = tile // (GROUP * across) * GROUP
    high = tl.minimum(down - top, GROUP)
    within = tile - top * across
    return top + within % high, within // high, nth


@triton.jit
def sums_of(
    a_ptr, b_ptr, row, col, m, n, k, a_line, b_line,
    A_ALONG_K: tl.constexpr, B_ALONG_K: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr, DEPTH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The products of a tile of rows and columns, summed in float32. The lines of memory of an
    operand are along k or across it."""
    i = tl.arange(0, DEPTH)
    if A_ALONG_K:
        a_ptr += row[:, None].to(tl.int64) * a_line + i[None, :]
        a_step = tl.full([], DEPTH, tl.int64)
    else:
        a_ptr += row[:, None] + i[None, :].to(tl.int64) * a_line
        a_step = a_line * DEPTH
    if B_ALONG_K:
        b_ptr += i[:, None] + col[None, :].to(tl.int64) * b_line
        b_step = tl.full([], DEPTH, tl.int64)
    else:
        b_ptr += i[:, None].to(tl.int64) * b_line + col[None, :]
        b_step = b_line * DEPTH
    sums = tl.zeros([ROWS, COLS], tl.float32)
    for first in range(0, k, DEPTH):
        left = k - first
        a = tl.load(a_ptr, mask=(row[:, None] < m) & (i[None, :] < left), other=0.0)
        b = tl.load(b_ptr, mask=(i[:, None] < left) & (col[None, :] < n), other=0.0)
        sums = tl.dot(a, b, sums, input_precision=PRECISION)
        a_ptr += a_step
        b_ptr += b_step
    return sums


@triton.jit
def finished(
    z, row, col, n, inside, y_ptr, bias_ptr, gate_ptr, residual_ptr, z_ptr,
    ACTIVATION: tl.constexpr, BIAS: tl.constexpr, GATE: tl.constexpr, RESIDUAL: tl.constexpr,
    KEEP: tl.constexpr,
):  # fmt: skip
    """activation(z + bias) * gate + residual, without absent operands. KEEP: also store z +
    bias."""
    dtype = y_ptr.dtype.element_ty
    at = row[:, None].to(tl.int64) * n + col[None, :]
    if BIAS:
        z += tl.load(bias_ptr + col, mask=col < n, other=0.0).to(tl.float32)[None, :]
    if KEEP:
        tl.store(z_ptr + at, z.to(dtype), mask=inside)
    if ACTIVATION == "relu":
        z = tl.where(z < 0, 0.0, z)  # NaN remains NaN
    elif ACTIVATION == "gelu":
        z = gelu_erf(z, dtype)
    elif ACTIVATION == "gelu_tanh":
        z = gelu_tanh(z)
    elif ACTIVATION == "silu":
        z = silu(z, dtype)
    if GATE:
        z *= tl.load(gate_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if RESIDUAL:
        z += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + at, z.to(dtype), mask=inside)


#: The epilogue of a plain product.
NOTHING = {"ACTIVATION": "none", "BIAS": False, "GATE": False, "RESIDUAL": False, "KEEP": False}


def planned(kernel, config, tf32, a, b, programs=None) -> Plan:
    """The plan of a product: one program per tile of c, or `programs` for all."""
    return _planned(kernel, config, tf32, a, b, -2, ("a", "b", "c", *"aaaa"), NOTHING, programs)


def planned_linear(
    kernel, config, x, weight, bias, gate, residual, activation, keep, tf32, programs=None
) -> Plan:
    """The same for a linear layer. For an absent operand x is passed, which is not read."""
    given = {"bias": bias, "gate": gate, "residual": residual, "z": keep or None}
    tensors = ("x", "weight", "y", *("x" if t is None else name for name, t in given.items()))
    constexprs = {
        "ACTIVATION": activation,
        "BIAS": bias is not None,
        "GATE": gate is not None,
        "RESIDUAL": residual is not None,
        "KEEP": keep,
    }
    return _planned(kernel, config, tf32, x, weight, -1, tensors, constexprs, programs)


def _planned(kernel, config, tf32, a, b, k_of_b, tensors, constexprs, programs) -> Plan:
    of_a, of_b = order_of(a, -1), order_of(b, k_of_b)
    m, k = a.shape[-2:]
    n, batch = b.shape[-3 - k_of_b], a.shape[0] if a.ndim == 3 else 1
    tiles = batch * cdiv(m, config["rows"]) * cdiv(n, config["cols"])
    sizes = (i32(m), i32(n), i32(k), i32(tiles))
    strides = (i64(of_a.line), i64(of_b.line), i64(of_a.batch), i64(of_b.batch))
    constants = {
        **constexprs,
        "A_ALONG_K": of_a.name == "kAlongK",
        "B_ALONG_K": of_b.name == "kAlongK",
        "ROWS": config["rows"],
        "COLS": config["cols"],
        "DEPTH": config["depth"] // a.itemsize,
        "PRECISION": "tf32" if tf32 else "ieee",
    }
    launch = Launch(
        TritonKernel(kernel, constants, num_warps=config["warps"], num_stages=config["stages"]),
        grid=(min(tiles, programs or tiles), 1, 1),
        args=(*tensors, *sizes, *strides),
    )
    return Plan((launch,))
