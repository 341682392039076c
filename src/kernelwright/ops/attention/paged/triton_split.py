"""Keys divided among programs, results merged (Flash-Decoding).

Idea: one query per sequence cannot share keys with others, and few sequences give too few blocks.
Therefore the heads of q that share a head of the cache are the rows of a tile (at least 16, for
tensor cores), and the keys of each sequence are divided among several programs. Each writes its
result, relative to its own maximum, and its log-sum-exp; a second kernel merges them. A tile of
keys reads its pages from the table, in one look-up if pages hold whole tiles.
Traffic: the cache once, and a float32 result per program, about a hundredth of it.
Compared with `native`: that rung gathers pages to a tensor and stores scores and weights.
Limit: the bytes of the cache; in 8 bits, their conversion.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, i32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

from .heuristics import splits_of

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def tile(
    cache_ptr, table_ptr, first, length, page_stride, row_stride, PAGE: tl.constexpr,
    COLS: tl.constexpr, D: tl.constexpr, D2: tl.constexpr,
):  # fmt: skip
    """(COLS, D2) of tokens from `first` on, with zeros past the sequence and the head."""
    token, d = first + tl.arange(0, COLS), tl.arange(0, D2)[None, :]
    inside = token < length
    if PAGE % COLS == 0:
        page = tl.load(table_ptr + first // PAGE).to(tl.int64)
        at = cache_ptr + page * page_stride + tl.cast(first % PAGE, tl.int64) * row_stride
        at = at + (tl.arange(0, COLS)[:, None] * row_stride + d)
    else:
        page = tl.load(table_ptr + token // PAGE, mask=inside, other=0).to(tl.int64)
        at = cache_ptr + (page * page_stride + (token % PAGE) * row_stride)[:, None] + d
    if D == D2:
        x = tl.load(at, mask=inside[:, None], other=0.0)
    else:
        x = tl.load(at, mask=inside[:, None] & (d < D), other=0.0)
    return x


@triton.jit
def paged_split(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, part_ptr, part_lse_ptr,
    q_b, q_h, k_page, k_row, k_h, v_page, v_row, v_h, table_b,
    heads, group, splits, scale, k_scale,
    PAGE: tl.constexpr, D: tl.constexpr, DV: tl.constexpr, D2: tl.constexpr, DV2: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    shared = heads // group
    split = tl.program_id(0) % splits
    b, hk = tl.program_id(0) // splits // shared, tl.program_id(0) // splits % shared
    length = tl.load(lengths_ptr + b)
    share = tl.cdiv(tl.cdiv(length, splits), COLS) * COLS
    begin = split * share
    end = tl.minimum(begin + share, length)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    d, dv = tl.arange(0, D2)[None, :], tl.arange(0, DV2)[None, :]
    h = (hk * group + row)[:, None]
    mine = row[:, None] < group
    at = q_ptr + tl.cast(b, tl.int64) * q_b + h.to(tl.int64) * q_h + d
    q = tl.load(at, mask=mine & (d < D), other=0.0)
    k_ptr += hk * k_h
    v_ptr += hk * v_h
    table_ptr += tl.cast(b, tl.int64) * table_b
    factor = scale * k_scale * LOG2E

    acc = tl.zeros((ROWS, DV2), tl.float32)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    for first in range(begin, end, COLS):
        k = tile(k_ptr, table_ptr, first, length, k_page, k_row, PAGE, COLS, D, D2)
        z = tl.dot(q, tl.trans(k.to(q.dtype)), input_precision="ieee") * factor
        z = tl.where((first + tl.arange(0, COLS) < length)[None, :], z, float("-inf"))
        higher = tl.maximum(top, tl.max(z, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        e = tl.exp2(z - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(e, 1)
        v = tile(v_ptr, table_ptr, first, length, v_page, v_row, PAGE, COLS, DV, DV2)
        acc = acc * fade[:, None]
        acc += tl.dot(e.to(q.dtype), v.to(q.dtype), input_precision="ieee")
        top = higher

    place = (tl.cast(b, tl.int64) * heads + h) * splits + split
    y = acc / tl.where(total == 0.0, 1.0, total)[:, None]
    tl.store(part_ptr + place * DV + dv, y, mask=mine & (dv < DV))
    lse = (top + tl.log2(total))[:, None]
    tl.store(part_lse_ptr + place, lse, mask=mine)


@triton.jit
def paged_merge(
    part_ptr, part_lse_ptr, y_ptr, lse_ptr, splits, v_scale,
    DV: tl.constexpr, DV2: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Sums the partial results of one head, weighted by exp(lse of the part - lse of all)."""
    head = tl.program_id(0).to(tl.int64)
    split, dv = tl.arange(0, SPLITS), tl.arange(0, DV2)
    part = tl.load(part_lse_ptr + head * splits + split, mask=split < splits, other=float("-inf"))
    top = tl.max(part, 0)
    base = tl.where(top == float("-inf"), 0.0, top)
    weight = tl.exp2(part - base)
    total = tl.sum(weight, 0)
    at = part_ptr + (head * splits + split[:, None]) * DV + dv[None, :]
    inside = (split[:, None] < splits) & (dv[None, :] < DV)
    x = tl.load(at, mask=inside, other=0.0)
    y = tl.sum(x * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total) * v_scale
    tl.store(y_ptr + head * DV + dv, y.to(y_ptr.dtype.element_ty), mask=dv < DV)
    tl.store(lse_ptr + head, (top + tl.log2(total)) * LN2)


def plan(gpu, config, q, k, v, table, lengths, scale, k_scale, v_scale):
    b, h, d = q.shape
    page, hk, dv = k.shape[1], k.shape[2], v.shape[3]
    group, cols = h // hk, config["cols"]
    rows = max(16, min(64, next_power_of_2(group)))
    down = cdiv(group, rows)
    splits = splits_of(gpu, config, b * hk * down, table.shape[1] * page)
    widths = {"DV": dv, "DV2": max(16, next_power_of_2(dv))}
    kernel = TritonKernel(
        paged_split,
        {"PAGE": page, "D": d, "D2": max(16, next_power_of_2(d)), **widths, "ROWS": rows,
         "COLS": cols},
        num_warps=4,
        num_stages=config["stages"],
    )  # fmt: skip
    strides = (*q.stride()[:2], *_strides(k), *_strides(v), table.stride(0))
    numbers = (i32(h), i32(group), i32(splits), f32("scale"), f32("k_scale"))
    split = Launch(
        kernel,
        (b * hk * splits, down, 1),
        ("q", "k", "v", "table", "lengths", "part", "part_lse", *map(i64, strides), *numbers),
    )
    merge = Launch(
        TritonKernel(paged_merge, {**widths, "SPLITS": next_power_of_2(splits)}),
        (b * h, 1, 1),
        ("part", "part_lse", "y", "lse", i32(splits), f32("v_scale")),
    )
    part = TensorSpec.contiguous((b, h, splits, dv), torch.float32)
    lse = TensorSpec.contiguous((b, h, splits), torch.float32)
    return Plan((split, merge), {"part": Scratch(part), "part_lse": Scratch(lse)})


def _strides(cache) -> tuple[int, ...]:
    return cache.stride(0), cache.stride(1), cache.stride(2)
