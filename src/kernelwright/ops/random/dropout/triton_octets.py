"""Eight adjacent elements per row of the tile share their words, their mask byte and one index.

Idea: dropout(x + bias) + residual and every part of it is one kernel with flags. Words are
generated where they are used, eight per Philox call; a stored mask has one byte per eight elements.
With a bias the backward iterates over tiles of rows and accumulates the gradient in registers; it
writes one partial row per program, and a second kernel adds those in a fixed order.
Traffic: x and residual read once, y written once, and an eighth of a byte per element for a stored
mask; backward: gy read once, gx written once, and partial rows of about a hundredth of that.
Compared with `native`: one kernel instead of one per operator, and no words in memory.
Limit: rows whose length is not divisible by 8 need one index per element.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f64, i64
from kernelwright.contract.arithmetic import cdiv, shares
from kernelwright.ops._triton.dropout import keeps, mask_bits, octet_words, scaled, tile_factors
from kernelwright.ops._triton.parts import add_parts

from .call import OCTET, Call


@triton.jit
def dropout_octets(
    x_ptr, bias_ptr, residual_ptr, seed_ptr, mask_ptr, y_ptr, kept_ptr,
    n, n_cols, x_stride, residual_stride, p,
    DRAW: tl.constexpr, BIAS: tl.constexpr, ADD: tl.constexpr, KEEP: tl.constexpr,
    FLAT: tl.constexpr, WHOLE: tl.constexpr, OCTETS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * OCTETS
    octet = first + tl.arange(0, OCTETS)[:, None]
    i = octet * 8 + tl.arange(0, 8)[None, :]
    inside = i < n
    if FLAT:
        row, col = octet * 0, i
    elif WHOLE:
        row = octet // (n_cols // 8)
        col = i - row * n_cols
    else:
        row, col = i // n_cols, i % n_cols
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        x += tl.load(bias_ptr + col, mask=inside, other=0.0).to(tl.float32)
    if DRAW == 1:
        keep = keeps(octet_words(tl.load(seed_ptr), octet), p)
        x *= scaled(keep, p)
        if KEEP:
            byte = tl.sum((keep & inside).to(tl.int32) << tl.arange(0, 8)[None, :], axis=1)
            at = kept_ptr.to(tl.pointer_type(tl.uint8)) + first + tl.arange(0, OCTETS)
            words = (n + 31) // 32
            wanted = first + tl.arange(0, OCTETS) < words * 4
            tl.store(at, byte.to(tl.uint8), mask=wanted)
    if DRAW == 2:
        x *= scaled(mask_bits(mask_ptr, i, inside) != 0, p)
    if ADD:
        at = row * residual_stride + col
        x += tl.load(residual_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, x.to(y_ptr.dtype.element_ty), mask=inside)


@triton.jit
def dropout_bwd_rows(
    gy_ptr, seed_ptr, mask_ptr, gx_ptr, part_ptr, n_rows, n_cols, stride, share, p,
    DRAW: tl.constexpr, WHOLE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * COLS
    col = first + tl.arange(0, COLS)[None, :]
    begin = tl.program_id(1).to(tl.int64) * share
    end = tl.minimum(begin + share, n_rows)
    total = tl.zeros((ROWS, COLS), tl.float32)
    for top in range(begin, end, ROWS):
        row = top + tl.arange(0, ROWS)[:, None]
        inside = (row < end) & (col < n_cols)
        g = tl.load(gy_ptr + row * stride + col, mask=inside, other=0.0).to(tl.float32)
        if DRAW != 0:
            g *= tile_factors(seed_ptr, mask_ptr, p, row, first, n_cols, inside, DRAW, WHOLE, COLS)
        tl.store(gx_ptr + row * n_cols + col, g.to(gx_ptr.dtype.element_ty), mask=inside)
        total += tl.where(inside, g, 0.0)
    part = tl.sum(total, axis=0, keep_dims=True)
    tl.store(part_ptr + tl.program_id(1).to(tl.int64) * n_cols + col, part, mask=col < n_cols)


def plan(gpu, config, **args):
    return _map(config, Call(args), "y")


def plan_with_mask(gpu, config, **args):
    return _map(config, Call(args), "y", keep=True)


def plan_backward(gpu, config, **args):
    c = Call(args)
    return _sums(gpu, config, c) if c.bias else _map(config, c, "gx")


def _map(config, c, out, keep=False):
    flags = {"DRAW": c.draw, "BIAS": c.bias, "ADD": c.add, "KEEP": keep}
    kernel = TritonKernel(
        dropout_octets,
        {**flags, "FLAT": c.flat, "WHOLE": c.cols % OCTET == 0, "OCTETS": config["octets"]},
        num_warps=config["num_warps"],
    )
    pointers = [c.main, *map(c.pointer, ("bias", "residual", "seed", "mask"))]
    sizes = map(i64, (c.n, c.cols, c.strides[0], c.residual_stride))
    args = (*pointers, out, "mask" if keep else out, *sizes, f64("p"))
    return Plan((Launch(kernel, (cdiv(c.n, OCTET * config["octets"]), 1, 1), args),))


def _sums(gpu, config, c):
    tile = {"ROWS": config["rows"], "COLS": config["cols"]}
    strips = cdiv(c.cols, config["cols"])
    parts, share = shares(c.rows, strips, config["programs"] * gpu.sms)
    flags = {"DRAW": c.draw, "WHOLE": c.cols % OCTET == 0}
    sizes = map(i64, (c.rows, c.cols, c.strides[0], share))
    walk = Launch(
        TritonKernel(dropout_bwd_rows, {**flags, **tile}, num_warps=config["num_warps"]),
        grid=(strips, parts, 1),
        args=("gy", c.pointer("seed"), c.pointer("mask"), "gx", "part", *sizes, f64("p")),
    )
    add = Launch(
        TritonKernel(add_parts, {"PARTS": 16, "COLS": 64}),
        grid=(cdiv(c.cols, 64), 1, 1),
        args=("part", "gbias", i64(parts), i64(c.cols)),
    )
    part = TensorSpec.contiguous((parts, c.cols), torch.float32)
    return Plan((walk, add), {"part": Scratch(part)})
