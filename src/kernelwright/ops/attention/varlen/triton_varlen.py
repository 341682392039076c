"""FlashAttention-2's forward over packed sequences.

Idea: as `triton_flash` of scaled_dot_product_attention, with the first row of each sequence read on
the device. A program is a block of queries of a head and a sequence; each sequence has as many
blocks as the longest needs, and those past its end do nothing. A window limits the keys on both
sides: tiles outside are skipped, tiles that contain a limit are masked, tiles between are not. Soft
cap, distances and sinks are arithmetic on scores in registers.
Traffic: as there, for the keys within the window.
Compared with `native`: no scores in memory, one launch, and the host does not wait for the GPU.
Limit: exponentials and products alternate; a soft cap adds a second exponential per score.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f32, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.activations import tanh
from kernelwright.ops.attention._tiles import LN2, LOG2E, product, store, tile

from .call import Call


@triton.jit
def scored(
    raw, position, col, keys, slope, scale, softcap, dtype: tl.constexpr, EDGE: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr,
):  # fmt: skip
    """(scores to base 2 from products of queries at `position` and keys `col`, which broadcast;
    their derivative with respect to the scaled product). EDGE: some keys may be outside or
    hidden."""
    z = raw * scale
    derivative = 1.0
    if CAPPED:
        t = tanh(z / softcap, dtype)
        z = t * softcap
        derivative = 1.0 - t * t
    away = col - position
    if SLOPES:
        z -= slope * tl.abs(away).to(tl.float32)
    z *= LOG2E
    if EDGE:
        z = tl.where(col < keys, z, float("-inf"))
        if LEFT >= 0:
            z = tl.where(away >= -LEFT, z, float("-inf"))
        if RIGHT >= 0:
            z = tl.where(away <= RIGHT, z, float("-inf"))
    return z, derivative


@triton.jit
def bounds(
    start, shift, keys, ROWS: tl.constexpr, COLS: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr,
):  # fmt: skip
    """The range of keys that any of the ROWS queries from `start` on sees, and the multiples of
    COLS between which every query sees all keys."""
    first, inner, outer, last = 0, 0, keys // COLS * COLS, keys
    if LEFT >= 0:
        first = tl.maximum(start + shift - LEFT, 0) // COLS * COLS
        inner = tl.cdiv(tl.maximum(start + ROWS - 1 + shift - LEFT, 0), COLS) * COLS
    if RIGHT >= 0:
        last = tl.minimum(keys, tl.maximum(start + ROWS + shift + RIGHT, 0))
        outer = tl.minimum(outer, tl.maximum(start + shift + RIGHT + 1, 0) // COLS * COLS)
    first = tl.minimum(first, last)
    inner = tl.minimum(tl.maximum(inner, first), tl.cdiv(last, COLS) * COLS)
    outer = tl.maximum(outer, inner)
    return first, inner, outer, last


@triton.jit
def walk(
    acc, top, total, q, k_ptr, v_ptr, k_row, v_row, position, first, last, keys, slope, scale,
    softcap, EDGE: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    for start in range(first, last, COLS):
        k = tile(k_ptr, k_row, start, keys, K_COL, COLS, D, D2, EDGE)
        col = start + tl.arange(0, COLS)
        z, _ = scored(product(q, tl.trans(k)), position[:, None], col[None, :], keys, slope, scale,
                      softcap, q.dtype, EDGE, LEFT, RIGHT, CAPPED, SLOPES)  # fmt: skip
        higher = tl.maximum(top, tl.max(z, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        e = tl.exp2(z - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(e, 1)
        acc = acc * fade[:, None]
        v = tile(v_ptr, v_row, start, keys, V_COL, COLS, DV, DV2, EDGE)
        acc += product(e.to(v.dtype), v)
        top = higher
    return acc, top, total


@triton.jit
def varlen_fwd(
    q_ptr, k_ptr, v_ptr, cu_q_ptr, cu_k_ptr, sinks_ptr, slopes_ptr, y_ptr, lse_ptr,
    q_row, q_h, k_row, k_h, v_row, v_h, y_row, y_h,
    heads, group, blocks, tokens, scale, softcap,
    Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr, SINKS: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) // blocks
    b, h = place // heads, place % heads
    first_q = tl.load(cu_q_ptr + b).to(tl.int64)
    first_k = tl.load(cu_k_ptr + b).to(tl.int64)
    length = (tl.load(cu_q_ptr + b + 1) - first_q).to(tl.int32)
    keys = (tl.load(cu_k_ptr + b + 1) - first_k).to(tl.int32)
    start = (blocks - 1 - tl.program_id(0) % blocks) * ROWS
    if start < length:
        shift = keys - length
        row = start + tl.arange(0, ROWS)
        position = row + shift
        at = q_ptr + first_q * q_row + h * q_h
        q = tile(at, q_row, start, length, Q_COL, ROWS, D, D2, True)
        k_ptr += first_k * k_row + h // group * k_h
        v_ptr += first_k * v_row + h // group * v_h
        slope = 0.0
        if SLOPES:
            slope = tl.load(slopes_ptr + h).to(tl.float32)
        acc = tl.zeros((ROWS, DV2), tl.float32)
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        total = tl.zeros((ROWS,), tl.float32)
        if SINKS:
            top = tl.zeros((ROWS,), tl.float32) + tl.load(sinks_ptr + h).to(tl.float32) * LOG2E
            total += tl.where(top == float("-inf"), 0.0, 1.0)
        first, inner, outer, last = bounds(start, shift, keys, ROWS, COLS, LEFT, RIGHT)
        if LEFT >= 0:
            acc, top, total = walk(
                acc, top, total, q, k_ptr, v_ptr, k_row, v_row, position, first,
                tl.minimum(inner, last), keys, slope, scale, softcap, True, K_COL, V_COL, LEFT,
                RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
            )  # fmt: skip
        acc, top, total = walk(
            acc, top, total, q, k_ptr, v_ptr, k_row, v_row, position, inner, outer, keys, slope,
            scale, softcap, False, K_COL, V_COL, LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
        )  # fmt: skip
        acc, top, total = walk(
            acc, top, total, q, k_ptr, v_ptr, k_row, v_row, position, outer, last, keys, slope,
            scale, softcap, True, K_COL, V_COL, LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
        )  # fmt: skip
        y = acc / tl.where(total == 0.0, 1.0, total)[:, None]
        store(y, y_ptr + first_q * y_row + h * y_h, y_row, start, length, 1, ROWS, DV, DV2)
        lse = (top + tl.log2(total)) * LN2
        at = lse_ptr + tl.cast(h, tl.int64) * tokens + first_q + row
        tl.store(at, lse, mask=row < length)


def plan(gpu, config, **args):
    c = Call(args)
    shape = c.forward_shape(gpu, config)
    blocks = cdiv(c.max_q, shape["rows"])
    kernel = TritonKernel(
        varlen_fwd,
        {**c.columns("q", "k", "v"), **c.options, "SINKS": c.has("sinks"),
         "ROWS": shape["rows"], "COLS": shape["cols"]},
        num_warps=shape["warps"],
        num_stages=shape["stages"],
    )  # fmt: skip
    pointers = ("q", "k", "v", "cu_q", "cu_k", c.pointer("sinks"), c.pointer("slopes"), "y", "lse")
    numbers = map(i32, (c.h, c.group, blocks, c.tokens))
    given = (*pointers, *c.strides("q", "k", "v", "y"), *numbers, f32("scale"), f32("softcap"))
    return Plan((Launch(kernel, (blocks * c.h * c.sequences, 1, 1), given),))
