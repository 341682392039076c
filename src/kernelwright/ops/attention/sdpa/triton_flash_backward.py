"""FlashAttention-2's backward, without atomics.

Idea: the weights are recomputed from q, k and lse, so that they need not be saved. One kernel keeps
a block of keys and iterates over the queries that see it, of every head that shares k and v: gk and
gv. Another keeps a block of queries and iterates over the keys: gq. Scores and dP are computed in
both, seven products instead of five, and every gradient is added up by one program in a fixed
order.
Traffic: that of the forward for q, k, v and gy, twice; between the kernels one value per query.
Compared with `native`: deterministic; gradients of masks, dropout, any strides.
Limit: products wait for exponentials, as in the forward.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, f64, i32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._triton.dropout import tile_factors
from kernelwright.ops.attention._tiles import LOG2E, product, store, tile

from .call import Call
from .tiling import backward_shape_of
from .triton_flash import base2, masked


@triton.jit
def attention_bwd_dot(
    gy_ptr, y_ptr, dot_ptr, gy_b, gy_h, gy_row, y_b, y_h, y_row, heads, length,
    GY_COL: tl.constexpr, Y_COL: tl.constexpr, DV: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    """D: sum(gy y) of each query."""
    blocks = tl.cdiv(length, ROWS)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    b, h = head // heads, head % heads
    start = tl.program_id(0) % blocks * ROWS
    row = start + tl.arange(0, ROWS)
    gy = tile(gy_ptr + b * gy_b + h * gy_h, gy_row, start, length, GY_COL, ROWS, DV, DV2, True)
    y = tile(y_ptr + b * y_b + h * y_h, y_row, start, length, Y_COL, ROWS, DV, DV2, True)
    dot = tl.sum(gy.to(tl.float32) * y.to(tl.float32), 1)
    tl.store(dot_ptr + head * length + row, dot, mask=row < length)


@triton.jit
def weights_and_ds(
    q, k, v, gy, lse, total, dot, mask_ptr, seed_ptr, row, first_col, head, length, s, mask_row,
    mask_col, scale, p, TURNED: tl.constexpr, EDGE: tl.constexpr, CAUSAL: tl.constexpr,
    MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """(the weights that multiply v, dS), for queries `row` and COLS keys from `first_col` on.
    TURNED: keys as rows, the order in which gk and gv use them from registers."""
    col = first_col + tl.arange(0, COLS)
    if TURNED:
        z, of_weights = product(k, tl.trans(q)), product(v, tl.trans(gy))
        down, across, least, less = row[None, :], col[:, None], lse[None, :], dot[None, :]
        sums = total[None, :]
    else:
        z, of_weights = product(q, tl.trans(k)), product(gy, tl.trans(v))
        down, across, least, less = row[:, None], col[None, :], lse[:, None], dot[:, None]
        sums = total[:, None]
    factor = scale
    if MASK != 2:
        factor *= LOG2E
    z = masked(z * factor, mask_ptr, down, across, length, s, mask_row, mask_col, EDGE, CAUSAL,
               MASK)  # fmt: skip
    weights = tl.exp2(base2(z - least, MASK))
    if MASK == 2:
        weights /= sums
    kept = weights
    if DROP:
        at = (head * length + row.to(tl.int64))[:, None]
        keep = tile_factors(seed_ptr, seed_ptr, p, at, first_col, s, True, 1, WHOLE, COLS)
        if TURNED:
            keep = tl.trans(keep)
        kept = weights * keep
        of_weights = of_weights * keep
    return kept, weights * (of_weights - less)


@triton.jit
def of_queries(lse_ptr, dot_ptr, head, row, length, MASK: tl.constexpr):
    """(lse to base 2, 1, D) of queries, or with a floating-point mask (largest score, sum of
    exponentials, D); (0, 1, D) if the query sees no key or does not exist."""
    at, there = head * length + row, row < length
    dot = tl.load(dot_ptr + at, mask=there, other=0.0)
    if MASK == 2:
        lse = tl.load(lse_ptr + 2 * at, mask=there, other=0.0)
        total = tl.load(lse_ptr + 2 * at + 1, mask=there, other=1.0)
        total = tl.where(total == 0.0, 1.0, total)
    else:
        lse = tl.load(lse_ptr + at, mask=there, other=0.0) * LOG2E
        total = dot
    return tl.where(lse == float("-inf"), 0.0, lse), total, dot


@triton.jit
def attention_bwd_keys(
    gy_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, seed_ptr, lse_ptr, dot_ptr, gk_ptr, gv_ptr,
    gy_b, gy_h, gy_row, q_b, q_h, q_row, k_b, k_h, k_row,
    v_b, v_h, v_row, mask_b, mask_h, mask_row, mask_col,
    gk_b, gk_h, gk_row, gv_b, gv_h, gv_row,
    heads, group, length, s, scale, p,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    EDGE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    blocks, shared = tl.cdiv(s, COLS), heads // group
    place = (tl.program_id(0) // blocks).to(tl.int64)
    b, hk = place // shared, place % shared
    start = tl.program_id(0) % blocks * COLS
    k = tile(k_ptr + b * k_b + hk * k_h, k_row, start, s, K_COL, COLS, D, D2, True)
    v = tile(v_ptr + b * v_b + hk * v_h, v_row, start, s, V_COL, COLS, DV, DV2, True)
    gk = tl.zeros((COLS, D2), tl.float32)
    gv = tl.zeros((COLS, DV2), tl.float32)
    first = 0
    if CAUSAL:
        first = start // ROWS * ROWS
    for i in range(group):
        h = hk * group + i
        head = b * heads + h
        for top in range(first, length, ROWS):
            row = top + tl.arange(0, ROWS)
            q = tile(q_ptr + b * q_b + h * q_h, q_row, top, length, Q_COL, ROWS, D, D2, EDGE)
            gy = tile(gy_ptr + b * gy_b + h * gy_h, gy_row, top, length, GY_COL, ROWS, DV, DV2,
                      EDGE)  # fmt: skip
            lse, total, dot = of_queries(lse_ptr, dot_ptr, head, row, length, MASK)
            kept, ds = weights_and_ds(
                q, k, v, gy, lse, total, dot, mask_ptr + b * mask_b + h * mask_h, seed_ptr, row,
                start, head, length, s, mask_row, mask_col, scale, p, True, EDGE or CAUSAL,
                CAUSAL, MASK, DROP, WHOLE, COLS,
            )  # fmt: skip
            gv += product(kept.to(gy.dtype), gy)
            gk += product(ds.to(q.dtype), q)
    store(gk * scale, gk_ptr + b * gk_b + hk * gk_h, gk_row, start, s, 1, COLS, D, D2)
    store(gv, gv_ptr + b * gv_b + hk * gv_h, gv_row, start, s, 1, COLS, DV, DV2)


@triton.jit
def attention_bwd_queries(
    gy_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, seed_ptr, lse_ptr, dot_ptr, gq_ptr,
    gy_b, gy_h, gy_row, q_b, q_h, q_row, k_b, k_h, k_row,
    v_b, v_h, v_row, mask_b, mask_h, mask_row, mask_col, gq_b, gq_h, gq_row,
    heads, group, length, s, scale, p,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    EDGE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    blocks = tl.cdiv(length, ROWS)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    b, h = head // heads, head % heads
    start = (blocks - 1 - tl.program_id(0) % blocks) * ROWS
    row = start + tl.arange(0, ROWS)
    q = tile(q_ptr + b * q_b + h * q_h, q_row, start, length, Q_COL, ROWS, D, D2, True)
    gy = tile(gy_ptr + b * gy_b + h * gy_h, gy_row, start, length, GY_COL, ROWS, DV, DV2, True)
    lse, total, dot = of_queries(lse_ptr, dot_ptr, head, row, length, MASK)
    k_ptr += b * k_b + h // group * k_h
    v_ptr += b * v_b + h // group * v_h
    mask_ptr += b * mask_b + h * mask_h
    last = s
    if CAUSAL:
        last = tl.minimum(s, start + ROWS)
    gq = tl.zeros((ROWS, D2), tl.float32)
    for first in range(0, last, COLS):
        k = tile(k_ptr, k_row, first, s, K_COL, COLS, D, D2, EDGE)
        v = tile(v_ptr, v_row, first, s, V_COL, COLS, DV, DV2, EDGE)
        _, ds = weights_and_ds(
            q, k, v, gy, lse, total, dot, mask_ptr, seed_ptr, row, first, head, length, s,
            mask_row, mask_col, scale, p, False, EDGE or CAUSAL, CAUSAL, MASK, DROP, WHOLE, COLS,
        )  # fmt: skip
        gq += product(ds.to(k.dtype), k)
    store(gq * scale, gq_ptr + b * gq_b + h * gq_h, gq_row, start, length, 1, ROWS, D, D2)


@triton.jit
def attention_bwd_mask(
    gy_ptr, q_ptr, k_ptr, v_ptr, mask_ptr, seed_ptr, lse_ptr, dot_ptr, gmask_ptr,
    gy_b, gy_h, gy_row, q_b, q_h, q_row, k_b, k_h, k_row,
    v_b, v_h, v_row, mask_b, mask_h, mask_row, mask_col,
    heads, group, length, s, batches, mask_batches, mask_heads, scale, p,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    CAUSAL: tl.constexpr, MASK: tl.constexpr, DROP: tl.constexpr, WHOLE: tl.constexpr,
    D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """A tile of the mask's gradient: dS, summed over the batches and heads that share the mask."""
    down, across = tl.cdiv(length, ROWS), tl.cdiv(s, COLS)
    z, place = tl.program_id(0) // (down * across), tl.program_id(0) % (down * across)
    b0, b1 = z // mask_heads, z // mask_heads + 1
    h0, h1 = z % mask_heads, z % mask_heads + 1
    if mask_batches == 1:
        b1 = batches
    if mask_heads == 1:
        h1 = heads
    top = place // across * ROWS
    row = top + tl.arange(0, ROWS)
    start = place % across * COLS
    col = start + tl.arange(0, COLS)
    gmask = tl.zeros((ROWS, COLS), tl.float32)
    for b32 in range(b0, b1):
        b = tl.cast(b32, tl.int64)
        for h in range(h0, h1):
            q = tile(q_ptr + b * q_b + h * q_h, q_row, top, length, Q_COL, ROWS, D, D2, True)
            gy = tile(gy_ptr + b * gy_b + h * gy_h, gy_row, top, length, GY_COL, ROWS, DV, DV2,
                      True)  # fmt: skip
            hk = h // group
            k = tile(k_ptr + b * k_b + hk * k_h, k_row, start, s, K_COL, COLS, D, D2, True)
            v = tile(v_ptr + b * v_b + hk * v_h, v_row, start, s, V_COL, COLS, DV, DV2, True)
            head = b * heads + h
            lse, total, dot = of_queries(lse_ptr, dot_ptr, head, row, length, MASK)
            _, ds = weights_and_ds(
                q, k, v, gy, lse, total, dot, mask_ptr + b * mask_b + h * mask_h, seed_ptr, row,
                start, head, length, s, mask_row, mask_col, scale, p, False, True, CAUSAL, MASK,
                DROP, WHOLE, COLS,
            )  # fmt: skip
            gmask += ds
    at = gmask_ptr + (z.to(tl.int64) * length + row[:, None]) * s + col[None, :]
    inside = (row[:, None] < length) & (col[None, :] < s)
    tl.store(at, gmask.to(gmask_ptr.dtype.element_ty), mask=inside)


def plan(gpu, config, **args):
    c = Call(args)
    heads = c.b * c.h
    inputs = ("gy", "q", "k", "v", c.pointer("mask"), c.pointer("seed"), "lse", "dot")
    strides = (*c.strides("gy", "q", "k", "v"), *c.mask_strides)
    sizes = tuple(map(i32, (c.h, c.group, c.length, c.s)))
    floats = (f32("scale"), f64("p"))

    shape = backward_shape_of(gpu, config, c)
    few, many = shape["few"], shape["many"]

    constexprs = {**c.columns("gy", "q", "k", "v"), **c.options}

    def kernel(fn, rows, cols, **more):
        sizes = {**constexprs, "ROWS": rows, "COLS": cols, **more}
        return TritonKernel(fn, sizes, num_warps=shape["warps"], num_stages=shape["stages"])

    def launch(fn, rows, cols, blocks, results):
        given = (*inputs, *results, *strides, *c.strides(*results), *sizes, *floats)
        edge = c.length % rows != 0 or c.s % cols != 0
        return Launch(kernel(fn, rows, cols, EDGE=edge), (blocks, 1, 1), given)

    dot = Launch(
        TritonKernel(
            attention_bwd_dot,
            {**c.columns("gy", "y"), "DV": c.dv, "DV2": c.options["DV2"], "ROWS": 64},
        ),
        (cdiv(c.length, 64) * heads, 1, 1),
        ("gy", "y", "dot", *c.strides("gy", "y"), i32(c.h), i32(c.length)),
    )
    down, across = cdiv(c.length, many), cdiv(c.s, many)
    launches = [
        dot,
        launch(attention_bwd_keys, few, many, across * c.b * c.hk, ("gk", "gv")),
        launch(attention_bwd_queries, many, few, down * heads, ("gq",)),
    ]
    if c.mask_grad:
        batches, mask_heads = c.mask.shape[:2]
        more = tuple(map(i32, (c.b, batches, mask_heads)))
        given = (*inputs, "gmask", *strides, *sizes, *more, *floats)
        tiles = cdiv(c.length, few) * cdiv(c.s, few) * batches * mask_heads
        launches.append(Launch(kernel(attention_bwd_mask, few, few), (tiles, 1, 1), given))
    scratch = Scratch(TensorSpec.contiguous((heads, c.length), torch.float32))
    return Plan(tuple(launches), {"dot": scratch})
