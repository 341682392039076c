"""Sums of log decay, and states of chunks: kernels that the forward and the backward share."""

import triton
import triton.language as tl

from kernelwright.contract import Launch, TritonKernel, f32, i32
from kernelwright.contract.arithmetic import cdiv

from ._blocks import LOG2E, apart, block, product, state_block
from .call import Call
from .chunks import LEAST


@triton.jit
def decay_sums(
    g_ptr, high_ptr, low_ptr, g_b, g_h, g_row, heads, length, LEAST: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Sums of log decay, to base 2, from the start of a chunk to each token, each as two floats."""
    chunks = tl.cdiv(length, CHUNK)
    head = (tl.program_id(0) // chunks).to(tl.int64)
    row = tl.program_id(0) % chunks * CHUNK + tl.arange(0, CHUNK)
    at = g_ptr + head // heads * g_b + head % heads * g_h + row.to(tl.int64) * g_row
    g = tl.load(at, mask=row < length, other=0.0).to(tl.float64)
    total = tl.cumsum(tl.where(g < LEAST, LEAST, g), 0) * LOG2E
    high = total.to(tl.float32)
    to = head * chunks * CHUNK + row
    tl.store(high_ptr + to, high)
    tl.store(low_ptr + to, (total - high.to(tl.float64)).to(tl.float32))


@triton.jit
def chunk_states(
    a_ptr, b_ptr, high_ptr, low_ptr, first_ptr, states_ptr, end_ptr,
    a_b, a_h, a_row, b_b, b_h, b_row, first_b, first_h, first_k, first_v, heads, length, scale,
    A_COL: tl.constexpr, B_COL: tl.constexpr, FIRST: tl.constexpr, END: tl.constexpr,
    BACKWARDS: tl.constexpr, DECAY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CHUNK: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The state before each chunk, from rows a, decayed to the end of the chunk, and rows b.
    BACKWARDS: from the last chunk to the first, with rows decayed from the start of the chunk."""
    across: tl.constexpr = (K + BK - 1) // BK * ((V + BV - 1) // BV)
    head, part = (tl.program_id(0) // across).to(tl.int64), tl.program_id(0) % across
    col_k, col_v = part // ((V + BV - 1) // BV) * BK, part % ((V + BV - 1) // BV) * BV
    b, h = head // heads, head % heads
    a_ptr += b * a_b + h * a_h
    b_ptr += b * b_b + h * b_h
    chunks = tl.cdiv(length, CHUNK)
    state = tl.zeros((BK, BV), tl.float32)
    k, v = col_k + tl.arange(0, BK), col_v + tl.arange(0, BV)
    if FIRST:
        first = (first_ptr + b * first_b + h * first_h + (k * first_k)[:, None]
                 + (v * first_v)[None, :])  # fmt: skip
        state = tl.load(first, mask=(k < K)[:, None] & (v < V)[None, :], other=0.0).to(tl.float32)
    for step in range(chunks):
        chunk = step
        if BACKWARDS:
            chunk = chunks - 1 - step
        at, inside = state_block(
            states_ptr + (head * chunks + chunk) * K * V, col_k, col_v, K, V, BK, BV
        )
        tl.store(at, state.to(states_ptr.dtype.element_ty), mask=inside)
        row = chunk * CHUNK + tl.arange(0, CHUNK)
        x = block(a_ptr, a_row, row, length, col_k, A_COL, K, BK, states_ptr)
        y = block(b_ptr, b_row, row, length, col_v, B_COL, V, BV, states_ptr)
        if DECAY:
            sums = head * chunks * CHUNK + row
            high, low = tl.load(high_ptr + sums), tl.load(low_ptr + sums)
            last = head * chunks * CHUNK + chunk * CHUNK + CHUNK - 1
            last_high, last_low = tl.load(high_ptr + last), tl.load(low_ptr + last)
            if BACKWARDS:
                log = high + low
            else:
                log = apart(last_high, last_low, high, low)
            x = (x.to(tl.float32) * tl.exp2(log)[:, None]).to(x.dtype)
            state *= tl.exp2(last_high + last_low)
        state += product(tl.trans(x), y, PRECISION) * scale
    if END:
        at, inside = state_block(end_ptr + head * K * V, col_k, col_v, K, V, BK, BV)
        tl.store(at, state.to(end_ptr.dtype.element_ty), mask=inside)


def kernel(c: Call, fn, constexprs, warps: int | None = None) -> TritonKernel:
    return TritonKernel(fn, {**c.blocks, **constexprs}, warps or c.warps, c.stages)


def sums_of(c: Call) -> tuple[Launch, ...]:
    if not c.decays:
        return ()
    args = ("g", "high", "low", *c.strides("g"), i32(c.args["q"].shape[1]), i32(c.length))
    summing = TritonKernel(decay_sums, {"LEAST": LEAST, "CHUNK": c.chunk}, 1, 1)
    return (Launch(summing, (c.chunks * c.heads, 1, 1), args),)


def states_of(c: Call, a, b, first, states, end_name, *, end, backwards=False) -> Launch:
    constexprs = {**c.columns(A=a, B=b), "FIRST": c.args[first] is not None, "END": end,
                  "BACKWARDS": backwards, "BK": c.carried[0], "BV": c.carried[1]}  # fmt: skip
    grid = (cdiv(c.d, c.carried[0]) * cdiv(c.dv, c.carried[1]) * c.heads, 1, 1)
    args = (a, b, *c.sums, c.pointer(first), states, end_name, *c.strides(a, b),
            *c.state_strides(first), i32(c.args["q"].shape[1]), i32(c.length),
            f32("scale" if backwards else 1.0))  # fmt: skip
    return Launch(kernel(c, chunk_states, constexprs), grid, args)
