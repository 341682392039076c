"""FlashAttention-2 over pages, for any mixture of single queries and pieces of prompts.

Idea: the rows of a tile are queries of a sequence times the heads that share a head of the cache.
Sequence b owns the tiles from cu_q[b] // TOKENS + b on: a program finds b by bisection, the host
knows the grid from the shapes alone, and a decoding sequence costs one tile. If there are few
tiles, keys are divided into parts, which programs compute alone and a second kernel merges.
Traffic: the cache once per tile of queries; a float32 result for each part.
Compared with `native`: no gathered pages, no scores in memory, and the host reads no lengths.
Limit: a sequence with few queries leaves rows of its tile empty.
With `split`, parts are merged in their order by the same fused multiply-adds in registers as by the
second kernel, and every tile of keys is masked: one sequence of operations, whatever the grid.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops.attention._tiles import LN2, LOG2E, product
from kernelwright.ops.attention.paged.triton_split import tile
from kernelwright.ops.attention.varlen.triton_varlen import bounds, scored

from .tiling import Call

MERGED = 4  # pairs of a query and a head in a program that merges


@triton.jit
def owner(at, cu_q_ptr, sequences, TOKENS: tl.constexpr, ONE: tl.constexpr):
    """The last b of 0 to `sequences` with cu_q[b] // TOKENS + ONE b <= at."""
    found = at * 0
    more = sequences
    while more > 0:
        half = (more + 1) // 2
        before = tl.load(cu_q_ptr + found + half) // TOKENS + ONE * (found + half) <= at
        found = tl.where(before, found + half, found)
        more -= half
    return found


@triton.jit
def size_of(keys, shares, COLS: tl.constexpr, SPLIT: tl.constexpr):
    """Keys of a part."""
    size = SPLIT
    if SPLIT == 0:
        size = tl.maximum(tl.cdiv(tl.cdiv(keys, shares), COLS) * COLS, COLS)
    return size


@triton.jit
def merged(acc, top, total, acc2, top2, total2):
    """Sums up to now and those of the next part. The additions are fused explicitly, so that no
    compiler decides which are."""
    higher = tl.maximum(top, top2)
    base = tl.where(higher == float("-inf"), 0.0, higher)
    old, new = tl.exp2(top - base), tl.exp2(top2 - base)
    return tl.fma(acc2, new[:, None], acc * old[:, None]), higher, tl.fma(total2, new, total * old)


@triton.jit
def begin(sinks_ptr, head, mine, SINKS: tl.constexpr, ROWS: tl.constexpr, DV2: tl.constexpr):
    """(acc, top, total) of the sinks."""
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    if SINKS:
        sink = tl.load(sinks_ptr + head, mask=mine, other=float("-inf"))
        top = sink.to(tl.float32) * LOG2E
    total = tl.where(top == float("-inf"), 0.0, 1.0)
    return tl.zeros((ROWS, DV2), tl.float32), top, total


@triton.jit
def walk(
    acc, top, total, q, k_ptr, v_ptr, table_ptr, k_page, k_row, v_page, v_row, position, first,
    last, keys, slope, scale, softcap, EDGE: tl.constexpr, PAGE: tl.constexpr, LEFT: tl.constexpr,
    RIGHT: tl.constexpr, CAPPED: tl.constexpr, SLOPES: tl.constexpr, D: tl.constexpr,
    DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    for start in range(first, last, COLS):
        k = tile(k_ptr, table_ptr, start, keys, k_page, k_row, PAGE, COLS, D, D2)
        col = start + tl.arange(0, COLS)
        raw = product(q, tl.trans(k.to(q.dtype)))
        z, _ = scored(raw, position[:, None], col[None, :], keys, slope[:, None], scale, softcap,
                      q.dtype, EDGE, LEFT, RIGHT, CAPPED, SLOPES)  # fmt: skip
        higher = tl.maximum(top, tl.max(z, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        e = tl.exp2(z - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(e, 1)
        v = tile(v_ptr, table_ptr, start, keys, v_page, v_row, PAGE, COLS, DV, DV2)
        acc = acc * fade[:, None]
        acc += product(e.to(q.dtype), v.to(q.dtype))
        top = higher
    return acc, top, total


@triton.jit
def pages_fwd(
    q_ptr, k_ptr, v_ptr, cu_q_ptr, table_ptr, lengths_ptr, sinks_ptr, slopes_ptr, y_ptr, lse_ptr,
    part_ptr, part_top_ptr, part_total_ptr,
    q_row, q_h, k_page, k_row, k_h, v_page, v_row, v_h, table_b,
    tokens, heads, sequences, shares, each, scale, softcap, k_scale, v_scale,
    GROUP: tl.constexpr, TOKENS: tl.constexpr, EACH: tl.constexpr, SPLIT: tl.constexpr,
    PAGE: tl.constexpr, LEFT: tl.constexpr, RIGHT: tl.constexpr, CAPPED: tl.constexpr,
    SLOPES: tl.constexpr, SINKS: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
    D2: tl.constexpr, DV2: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """TOKENS queries and EACH of the GROUP heads of a head of the cache; `each` parts of SPLIT
    keys, or one part of any number."""
    chunks = (GROUP + EACH - 1) // EACH
    place = tl.program_id(0)
    at = place // (heads // GROUP * chunks)
    hk, chunk = place // chunks % (heads // GROUP), place % chunks
    share = tl.program_id(1)
    b = owner(at, cu_q_ptr, sequences, TOKENS, 1)
    first_q = tl.load(cu_q_ptr + b)
    length = tl.load(cu_q_ptr + b + 1, mask=b < sequences, other=tokens) - first_q
    start = (at - first_q // TOKENS - b) * TOKENS
    if start < length:
        keys = tl.load(lengths_ptr + b, mask=b < sequences, other=0)
        shift = keys - length
        row = tl.arange(0, ROWS)
        token, group = start + row // EACH, chunk * EACH + row % EACH
        mine = (row // EACH < TOKENS) & (token < length) & (group < GROUP)
        position, head = token + shift, hk * GROUP + group
        d, dv = tl.arange(0, D2)[None, :], tl.arange(0, DV2)[None, :]
        of_q = (first_q + token).to(tl.int64)
        at_q = q_ptr + (of_q * q_row + head.to(tl.int64) * q_h)[:, None]
        q = tl.load(at_q + d, mask=mine[:, None] & (d < D), other=0.0)
        k_ptr += hk * k_h
        v_ptr += hk * v_h
        table_ptr += tl.cast(b, tl.int64) * table_b
        slope = tl.zeros((ROWS,), tl.float32)
        if SLOPES:
            slope = tl.load(slopes_ptr + head, mask=mine, other=0.0).to(tl.float32)
        factor = scale * k_scale

        alone = tl.full((ROWS,), shares, tl.int32) == 1  # the merge adds the sinks otherwise
        acc, top, total = begin(sinks_ptr, head, mine & alone, SINKS, ROWS, DV2)
        size = size_of(keys, shares, COLS, SPLIT)
        first, inner, outer, last = bounds(start, shift, keys, TOKENS, COLS, LEFT, RIGHT)
        if SPLIT:
            for part in range(
                tl.maximum(share * each, first // SPLIT),
                tl.minimum((share + 1) * each, tl.cdiv(last, SPLIT)),
            ):
                acc2, top2, total2 = begin(sinks_ptr, head, mine, False, ROWS, DV2)
                end = tl.minimum((part + 1) * SPLIT, keys)
                acc2, top2, total2 = walk(
                    acc2, top2, total2, q, k_ptr, v_ptr, table_ptr, k_page, k_row, v_page, v_row,
                    position, part * SPLIT, tl.minimum(end, last), end, slope, factor, softcap,
                    True, PAGE, LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
                )  # fmt: skip
                acc, top, total = merged(acc, top, total, acc2, top2, total2)
        else:
            low, high = share * size, tl.minimum(share * size + size, last)
            if LEFT >= 0:
                acc, top, total = walk(
                    acc, top, total, q, k_ptr, v_ptr, table_ptr, k_page, k_row, v_page, v_row,
                    position, tl.maximum(first, low), tl.minimum(inner, high), keys, slope, factor,
                    softcap, True, PAGE, LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
                )  # fmt: skip
            acc, top, total = walk(
                acc, top, total, q, k_ptr, v_ptr, table_ptr, k_page, k_row, v_page, v_row,
                position, tl.maximum(inner, low), tl.minimum(outer, high), keys, slope, factor,
                softcap, False, PAGE, LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
            )  # fmt: skip
            acc, top, total = walk(
                acc, top, total, q, k_ptr, v_ptr, table_ptr, k_page, k_row, v_page, v_row,
                position, tl.maximum(outer, low), high, keys, slope, factor, softcap, True, PAGE,
                LEFT, RIGHT, CAPPED, SLOPES, D, DV, D2, DV2, COLS,
            )  # fmt: skip

        result = of_q * heads + head
        if shares == 1:
            y = acc / tl.where(total == 0.0, 1.0, total)[:, None] * v_scale
            inside = mine[:, None] & (dv < DV)
            tl.store(y_ptr + result[:, None] * DV + dv, y.to(y_ptr.dtype.element_ty), mask=inside)
            lse = (top + tl.log2(total)) * LN2
            tl.store(lse_ptr + head.to(tl.int64) * tokens + of_q, lse, mask=mine)
        else:
            of_part = result * shares + share
            inside = (mine & (total > 0.0))[:, None] & (dv < DV)
            tl.store(part_ptr + of_part[:, None] * DV + dv, acc, mask=inside)
            tl.store(part_top_ptr + of_part, top, mask=mine)
            tl.store(part_total_ptr + of_part, total, mask=mine)


@triton.jit
def pages_merge(
    cu_q_ptr, lengths_ptr, sinks_ptr, y_ptr, lse_ptr, part_ptr, part_top_ptr, part_total_ptr,
    tokens, heads, sequences, shares, v_scale,
    SPLIT: tl.constexpr, SINKS: tl.constexpr, DV: tl.constexpr, DV2: tl.constexpr,
    COLS: tl.constexpr, ROWS: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    """Merges the parts of ROWS pairs of a query and a head, in their order; AHEAD parts are loaded
    at a time."""
    place = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    token, head = place // heads, place % heads
    mine = token < tokens
    token = tl.where(mine, token, 0)
    b = owner(token, cu_q_ptr, sequences, 1, 0)
    keys = tl.load(lengths_ptr + b, mask=b < sequences, other=0)
    used = tl.minimum(tl.cdiv(keys, size_of(keys, shares, COLS, SPLIT)), shares)
    acc, top, total = begin(sinks_ptr, head, mine, SINKS, ROWS, DV2)
    dv = tl.arange(0, DV2)[None, :]
    for first in range(0, tl.max(used, 0), AHEAD):
        for i in tl.static_range(AHEAD):
            at = place * shares + first + i
            there = mine & (first + i < used)
            top2 = tl.load(part_top_ptr + at, mask=there, other=float("-inf"))
            total2 = tl.load(part_total_ptr + at, mask=there, other=0.0)
            inside = (total2 > 0.0)[:, None] & (dv < DV)
            acc2 = tl.load(part_ptr + at[:, None] * DV + dv, mask=inside, other=0.0)
            acc, top, total = merged(acc, top, total, acc2, top2, total2)
    y = acc / tl.where(total == 0.0, 1.0, total)[:, None] * v_scale
    inside = mine[:, None] & (dv < DV)
    tl.store(y_ptr + place[:, None] * DV + dv, y.to(y_ptr.dtype.element_ty), mask=inside)
    tl.store(lse_ptr + head * tokens + token, (top + tl.log2(total)) * LN2, mask=mine)


def plan(gpu, config, **args):
    c = Call(gpu, config, args)
    fwd = TritonKernel(
        pages_fwd,
        {"GROUP": c.group, "TOKENS": c.tokens, "EACH": c.each, "PAGE": c.page, **c.options,
         **c.common, "D": c.d, "D2": c.d2, "ROWS": c.shape["rows"]},
        num_warps=c.shape["warps"],
        num_stages=c.shape["stages"],
    )  # fmt: skip
    q, k, v = args["q"], args["k"], args["v"]
    strides = (*q.stride()[:2], *k.stride()[:3], *v.stride()[:3], args["table"].stride(0))
    sizes = (i32(q.shape[0]), i32(q.shape[1]), i32(c.sequences), i32(c.shares))
    parts = ("part", "part_top", "part_total")
    sinks, slopes = (n if args[n] is not None else "lengths" for n in ("sinks", "slopes"))
    launches = [
        Launch(
            fwd,
            (c.tiles, c.shares, 1),
            ("q", "k", "v", "cu_q", "table", "lengths", sinks, slopes, "y", "lse", *parts,
             *map(i64, strides), *sizes, i32(c.parts_each), f32("scale"), f32("softcap"),
             f32("k_scale"), f32("v_scale")),
        )
    ]  # fmt: skip
    if c.shares > 1:
        merge = TritonKernel(pages_merge, {**c.common, "ROWS": MERGED, "AHEAD": 4})
        pointers = ("cu_q", "lengths", sinks, "y", "lse", *parts)
        grid = (cdiv(q.shape[0] * q.shape[1], MERGED), 1, 1)
        launches.append(Launch(merge, grid, (*pointers, *sizes, f32("v_scale"))))
    rows = q.shape[0] * q.shape[1] * c.shares if c.shares > 1 else 1
    scratch = {
        name: Scratch(TensorSpec.contiguous(shape, torch.float32))
        for name, shape in zip(parts, ((rows, c.dv), (rows,), (rows,)), strict=True)
    }
    return Plan(tuple(launches), scratch)
