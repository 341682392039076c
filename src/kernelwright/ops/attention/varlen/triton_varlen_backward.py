"""FlashAttention-2's backward over packed sequences, without atomics.

Idea: as `triton_flash` of scaled_dot_product_attention.backward: gk and gv in a kernel that keeps
keys, gq in one that keeps queries, each added up in a fixed order. Queries outside the window of a
block of keys are skipped, and so are keys outside that of a block of queries. A sink belongs to no
key: its gradient depends only on lse and D, and is added up by a separate kernel, one program per
head.
Traffic: as there, within the window.
Compared with `native`: no scores in memory, one launch of each kernel for all sequences.
Limit: products wait for exponentials.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.attention._tiles import LOG2E, product, store, tile

from .call import Call
from .triton_varlen import bounds, scored


@triton.jit
def varlen_bwd_dot(
    gy_ptr, y_ptr, dot_ptr, gy_row, gy_h, y_row, y_h, heads, tokens, GY_COL: tl.constexpr,
    Y_COL: tl.constexpr, DV: tl.constexpr, DV2: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """D: sum(gy y) of each query."""
    blocks = tl.cdiv(tokens, ROWS)
    h = tl.program_id(0) // blocks
    start = tl.program_id(0) % blocks * ROWS
    row = start + tl.arange(0, ROWS)
    gy = tile(gy_ptr + h * gy_h, gy_row, start, tokens, GY_COL, ROWS, DV, DV2, True)
    y = tile(y_ptr + h * y_h, y_row, start, tokens, Y_COL, ROWS, DV, DV2, True)
    dot = tl.sum(gy.to(tl.float32) * y.to(tl.float32), 1)
    tl.store(dot_ptr + tl.cast(h, tl.int64) * tokens + row, dot, mask=row < tokens)


@triton.jit
def of_queries(lse_ptr, dot_ptr, row, length):
    """(lse to base 2, D) of queries; lse is 0 if it is -inf or the query does not exist."""
    lse = tl.load(lse_ptr + row, mask=row < length, other=0.0) * LOG2E
    dot = tl.load(dot_ptr + row, mask=row < length, other=0.0)
    return tl.where(lse == float("-inf"), 0.0, lse), dot


@triton.jit
def sequence(cu_q_ptr, cu_k_ptr, b):
    """(first query, first key, queries, keys) of a sequence."""
    first_q = tl.load(cu_q_ptr + b).to(tl.int64)
    first_k = tl.load(cu_k_ptr + b).to(tl.int64)
    length = (tl.load(cu_q_ptr + b + 1) - first_q).to(tl.int32)
    keys = (tl.load(cu_k_ptr + b + 1) - first_k).to(tl.int32)
    return first_q, first_k, length, keys


@triton.jit
def varlen_bwd_keys(
    gy_ptr, q_ptr, k_ptr, v_ptr, cu_q_ptr, cu_k_ptr, slopes_ptr, lse_ptr, dot_ptr, gk_ptr, gv_ptr,
    gy_row, gy_h, q_row, q_h, k_row, k_h, v_row, v_h, gk_row, gk_h, gv_row, gv_h,
    heads, group, blocks, tokens, scale, softcap,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    place, shared = tl.program_id(0) // blocks, heads // group
    b, hk = place // shared, place % shared
    first_q, first_k, length, keys = sequence(cu_q_ptr, cu_k_ptr, b)
    start = tl.program_id(0) % blocks * COLS
    if start < keys:
        shift = keys - length
        col = start + tl.arange(0, COLS)
        at = k_ptr + first_k * k_row + hk * k_h
        k = tile(at, k_row, start, keys, K_COL, COLS, D, D2, True)
        at = v_ptr + first_k * v_row + hk * v_h
        v = tile(at, v_row, start, keys, V_COL, COLS, DV, DV2, True)
        first, last = 0, length
        if RIGHT >= 0:  # a query at p sees keys up to p + RIGHT
            first = tl.minimum(tl.maximum(start - RIGHT - shift, 0), length) // ROWS * ROWS
        if LEFT >= 0:
            last = tl.minimum(length, tl.maximum(start + COLS + LEFT - shift, 0))
        gk = tl.zeros((COLS, D2), tl.float32)
        gv = tl.zeros((COLS, DV2), tl.float32)
        for i in range(group):
            h = hk * group + i
            slope = 0.0
            if SLOPES:
                slope = tl.load(slopes_ptr + h).to(tl.float32)
            lse_at = lse_ptr + tl.cast(h, tl.int64) * tokens + first_q
            dot_at = dot_ptr + tl.cast(h, tl.int64) * tokens + first_q
            q_at = q_ptr + first_q * q_row + h * q_h
            gy_at = gy_ptr + first_q * gy_row + h * gy_h
            for top in range(first, last, ROWS):
                row = top + tl.arange(0, ROWS)
                q = tile(q_at, q_row, top, length, Q_COL, ROWS, D, D2, True)
                gy = tile(gy_at, gy_row, top, length, GY_COL, ROWS, DV, DV2, True)
                lse, dot = of_queries(lse_at, dot_at, row, length)
                z, slope_of = scored(
                    product(k, tl.trans(q)), (row + shift)[None, :], col[:, None], keys, slope,
                    scale, softcap, q.dtype, True, LEFT, RIGHT, CAPPED, SLOPES,
                )  # fmt: skip
                weights = tl.exp2(z - lse[None, :])
                ds = weights * (product(v, tl.trans(gy)) - dot[None, :]) * slope_of
                gv += product(weights.to(gy.dtype), gy)
                gk += product(ds.to(q.dtype), q)
        at = gk_ptr + first_k * gk_row + hk * gk_h
        store(gk * scale, at, gk_row, start, keys, 1, COLS, D, D2)
        store(gv, gv_ptr + first_k * gv_row + hk * gv_h, gv_row, start, keys, 1, COLS, DV, DV2)


@triton.jit
def varlen_bwd_queries(
    gy_ptr, q_ptr, k_ptr, v_ptr, cu_q_ptr, cu_k_ptr, slopes_ptr, lse_ptr, dot_ptr, gq_ptr,
    gy_row, gy_h, q_row, q_h, k_row, k_h, v_row, v_h, gq_row, gq_h,
    heads, group, blocks, tokens, scale, softcap,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    LEFT: tl.constexpr, RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) // blocks
    b, h = place // heads, place % heads
    first_q, first_k, length, keys = sequence(cu_q_ptr, cu_k_ptr, b)
    start = (blocks - 1 - tl.program_id(0) % blocks) * ROWS
    if start < length:
        shift = keys - length
        row = start + tl.arange(0, ROWS)
        at = q_ptr + first_q * q_row + h * q_h
        q = tile(at, q_row, start, length, Q_COL, ROWS, D, D2, True)
        at = gy_ptr + first_q * gy_row + h * gy_h
        gy = tile(at, gy_row, start, length, GY_COL, ROWS, DV, DV2, True)
        place_of = tl.cast(h, tl.int64) * tokens + first_q
        lse, dot = of_queries(lse_ptr + place_of, dot_ptr + place_of, row, length)
        k_at = k_ptr + first_k * k_row + h // group * k_h
        v_at = v_ptr + first_k * v_row + h // group * v_h
        slope = 0.0
        if SLOPES:
            slope = tl.load(slopes_ptr + h).to(tl.float32)
        first, _, _, last = bounds(start, shift, keys, ROWS, COLS, LEFT, RIGHT)
        gq = tl.zeros((ROWS, D2), tl.float32)
        for begin in range(first, last, COLS):
            col = begin + tl.arange(0, COLS)
            k = tile(k_at, k_row, begin, keys, K_COL, COLS, D, D2, True)
            v = tile(v_at, v_row, begin, keys, V_COL, COLS, DV, DV2, True)
            z, slope_of = scored(
                product(q, tl.trans(k)), (row + shift)[:, None], col[None, :], keys, slope, scale,
                softcap, q.dtype, True, LEFT, RIGHT, CAPPED, SLOPES,
            )  # fmt: skip
            weights = tl.exp2(z - lse[:, None])
            ds = weights * (product(gy, tl.trans(v)) - dot[:, None]) * slope_of
            gq += product(ds.to(k.dtype), k)
        at = gq_ptr + first_q * gq_row + h * gq_h
        store(gq * scale, at, gq_row, start, length, 1, ROWS, D, D2)


@triton.jit
def varlen_bwd_sinks(sinks_ptr, lse_ptr, dot_ptr, gsinks_ptr, tokens, BLOCK: tl.constexpr):
    h = tl.program_id(0).to(tl.int64)
    sink = tl.load(sinks_ptr + h).to(tl.float32) * LOG2E
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, tokens, BLOCK):
        i = start + tl.arange(0, BLOCK)
        lse = tl.load(lse_ptr + h * tokens + i, mask=i < tokens, other=float("inf")) * LOG2E
        dot = tl.load(dot_ptr + h * tokens + i, mask=i < tokens, other=0.0)
        lse = tl.where(lse == float("-inf"), float("inf"), lse)
        total -= tl.exp2(sink - lse) * dot
    tl.store(gsinks_ptr + h, tl.sum(total, 0).to(gsinks_ptr.dtype.element_ty))


def plan(gpu, config, **args):
    c = Call(args)
    shape = c.backward_shape(gpu, config)
    few, many = shape["few"], shape["many"]
    pointers = ("gy", "q", "k", "v", "cu_q", "cu_k", c.pointer("slopes"), "lse", "dot")
    floats = (f32("scale"), f32("softcap"))

    def launch(fn, rows, cols, blocks, places, results):
        constexprs = {**c.columns("gy", "q", "k", "v"), **c.options, "ROWS": rows, "COLS": cols}
        kernel = TritonKernel(fn, constexprs, num_warps=shape["warps"], num_stages=shape["stages"])
        numbers = map(i32, (c.h, c.group, blocks, c.tokens))
        strides = c.strides("gy", "q", "k", "v", *results)
        given = (*pointers, *results, *strides, *numbers, *floats)
        return Launch(kernel, (blocks * places, 1, 1), given)

    widths = {"DV": c.dv, "DV2": c.options["DV2"], "ROWS": 64}
    dot = Launch(
        TritonKernel(varlen_bwd_dot, {**c.columns("gy", "y"), **widths}),
        (cdiv(c.tokens, 64) * c.h, 1, 1),
        ("gy", "y", "dot", *c.strides("gy", "y"), i32(c.h), i32(c.tokens)),
    )
    of_keys, of_queries_ = cdiv(c.max_k, many), cdiv(c.max_q, many)
    launches = [
        dot,
        launch(varlen_bwd_keys, few, many, of_keys, c.hk * c.sequences, ("gk", "gv")),
        launch(varlen_bwd_queries, many, few, of_queries_, c.h * c.sequences, ("gq",)),
    ]
    if c.has("sinks"):
        given = ("sinks", "lse", "dot", "gsinks", i32(c.tokens))
        launches.append(Launch(TritonKernel(varlen_bwd_sinks, {"BLOCK": 1024}), (c.h, 1, 1), given))
    scratch = Scratch(TensorSpec.contiguous((c.h, c.tokens), torch.float32))
    return Plan(tuple(launches), {"dot": scratch})
