"""Rows of any length: the log-sum-exp in one read, gradients in a second.

Idea: a program iterates over its row with a running maximum and sum for each of BLOCK columns,
rescaled when the maximum rises (Milakov and Gimelshein 2018). The loss needs only this one read;
another program adds the tokens' losses in order. With maximum and sum saved, the backward is
elementwise; loss and gradient together iterate over the row twice.
Traffic: forward: x read once; backward: x read, gx written; together: x read twice and gx written,
where the second read comes from L2 as far as its capacity reaches.
Compared with `manual`: that rung moves x some twenty times.
Limit: with the gradient, the second read. `cuda_block` and `cuda_cluster` keep the row.
"""

import torch
import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, Scratch, TensorSpec, TritonKernel, f32, i64
from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.ops._triton.math import exp

from . import triton_terms as terms
from .tiling import rows_of
from .triton_terms import (
    cap,
    class_weight,
    coefficients,
    gradient,
    log_sum,
    read_row,
    read_target,
    token_loss,
)

FLOATS = (f32("label_smoothing"), f32("z_loss"), f32("softcap"))


@triton.jit
def cross_entropy_fwd_online(
    x_ptr, target_ptr, loss_ptr, max_sum_ptr, n_cols, x_stride, ignore_index,
    label_smoothing, z_loss, softcap, w_ptr,
    SMOOTH: tl.constexpr, CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    _, ignored, hit = read_target(target_ptr + row, n_cols, ignore_index)
    z_hit = cap(tl.load(x_ptr + hit).to(tl.float32), softcap, CAP)
    w = class_weight(w_ptr, hit, True)
    top, total, spread, every = read_row(x_ptr, n_cols, softcap, w_ptr, SMOOTH, CAP, BLOCK)
    loss = token_loss(top, total, z_hit, w, spread, every, n_cols, label_smoothing, z_loss, SMOOTH)
    tl.store(loss_ptr + row, tl.where(ignored, 0.0, loss).to(loss_ptr.dtype.element_ty))
    # NaN where a row has no probabilities
    tl.store(max_sum_ptr + 2 * row, tl.where(total > 0.0, top, float("nan")))
    tl.store(max_sum_ptr + 2 * row + 1, tl.where(total > 0.0, total, float("nan")))


@triton.jit
def cross_entropy_bwd_online(
    gloss_ptr, x_ptr, target_ptr, max_sum_ptr, totals_ptr, gx_ptr, n_cols, x_stride, gloss_stride,
    ignore_index, label_smoothing, z_loss, softcap, w_ptr,
    SMOOTH: tl.constexpr, CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    chunks = tl.cdiv(n_cols, BLOCK)
    row = tl.program_id(0).to(tl.int64) // chunks
    col = tl.program_id(0).to(tl.int64) % chunks * BLOCK + tl.arange(0, BLOCK)
    inside = col < n_cols
    x = tl.load(x_ptr + row * x_stride + col, mask=inside, other=0.0).to(tl.float32)
    target, ignored, hit = read_target(target_ptr + row, n_cols, ignore_index)
    g = tl.load(gloss_ptr + row * gloss_stride).to(tl.float32) / tl.load(totals_ptr)
    w = class_weight(w_ptr, hit, True)
    every = tl.load(totals_ptr + 1)
    top, total = tl.load(max_sum_ptr + 2 * row), tl.load(max_sum_ptr + 2 * row + 1)
    lse = log_sum(top, total)
    of_p, at_hit, smooth = coefficients(g, lse, w, every, n_cols, label_smoothing, z_loss, SMOOTH)
    z = cap(x, softcap, CAP)
    p = exp(z - top) / total
    gx = gradient(z, p, col, target, inside, of_p, at_hit, smooth, softcap, w_ptr, SMOOTH, CAP)
    gx = tl.where(ignored, 0.0, gx)
    tl.store(gx_ptr + row * n_cols + col, gx.to(gx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def cross_entropy_grad_online(
    x_ptr, target_ptr, g_ptr, loss_ptr, gx_ptr, n_cols, x_stride, gx_stride, g_stride,
    ignore_index, label_smoothing, z_loss, softcap, w_ptr,
    SMOOTH: tl.constexpr, CAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * x_stride
    target, ignored, hit = read_target(target_ptr + row, n_cols, ignore_index)
    z_hit = cap(tl.load(x_ptr + hit).to(tl.float32), softcap, CAP)
    w = class_weight(w_ptr, hit, True)
    top, total, spread, every = read_row(x_ptr, n_cols, softcap, w_ptr, SMOOTH, CAP, BLOCK)
    loss = token_loss(top, total, z_hit, w, spread, every, n_cols, label_smoothing, z_loss, SMOOTH)
    tl.store(loss_ptr + row, tl.where(ignored, 0.0, loss).to(loss_ptr.dtype.element_ty))
    g = tl.load(g_ptr + row * g_stride)
    lse = log_sum(top, total)
    of_p, at_hit, smooth = coefficients(g, lse, w, every, n_cols, label_smoothing, z_loss, SMOOTH)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < n_cols
        x = tl.load(x_ptr + col, mask=inside, other=0.0).to(tl.float32)
        z = cap(x, softcap, CAP)
        p = exp(z - top) / total
        gx = gradient(z, p, col, target, inside, of_p, at_hit, smooth, softcap, w_ptr, SMOOTH, CAP)
        gx = tl.where(ignored, 0.0, gx)
        tl.store(gx_ptr + row * gx_stride + col, gx.to(gx_ptr.dtype.element_ty), mask=inside)


def plan(gpu, config, x, target, weight, ignore_index, reduction, **form):
    r = rows_of(x)
    losses = "loss" if reduction == "none" else "losses"
    args = ("x", "target", losses, "max_sum", i64(r.cols), i64(r.stride), i64(ignore_index))
    walk = _launch(cross_entropy_fwd_online, config, r, weight, form, r.rows, args)
    reduce = terms.reduce(r.rows, r.cols, weight, reduction, ignore_index, totals=True)
    return Plan((walk, reduce), _scratch(r, losses=reduction != "none"))


def plan_backward(gpu, config, gloss, x, target, weight, max_sum, totals, ignore_index, **form):
    r = rows_of(x)
    args = (
        *("gloss", "x", "target", "max_sum", "totals", "gx", i64(r.cols), i64(r.stride)),
        *(i64(int(gloss.numel() > 1)), i64(ignore_index)),
    )
    block = _block(config, r)
    programs = r.rows * cdiv(r.cols, block)
    return Plan((_launch(cross_entropy_bwd_online, config, r, weight, form, programs, args),))


def plan_with_grad(gpu, config, x, target, weight, ignore_index, reduction, **form):
    r = rows_of(x)
    losses = "loss" if reduction == "none" else "losses"
    call = (r.rows, r.cols, weight, reduction, ignore_index)
    walk = _grad(config, r, weight, ignore_index, form, losses, "gx", r.cols, 0)
    steps = (terms.scale(*call), walk)
    if reduction != "none":
        steps = (*steps, terms.reduce(*call, totals=False))
    return Plan(steps, _scratch(r, losses=reduction != "none", g=True))


def plan_with_grad_(gpu, config, x, target, weight, g, ignore_index, **form):
    r = rows_of(x)
    walk = _grad(config, r, weight, ignore_index, form, "loss", "x", r.stride, int(g.numel() > 1))
    return Plan((walk,))


def _grad(config, r, weight, ignore_index, form, loss, gx, gx_stride, g_stride):
    args = (
        *("x", "target", "g", loss, gx, i64(r.cols), i64(r.stride), i64(gx_stride)),
        *(i64(g_stride), i64(ignore_index)),
    )
    return _launch(cross_entropy_grad_online, config, r, weight, form, r.rows, args)


def _launch(fn, config, r, weight, form, programs, args):
    block = _block(config, r)
    constexprs = {"SMOOTH": form["smooth"], "CAP": form["cap"], "BLOCK": block}
    if not weight:
        constexprs["w_ptr"] = None
    warps = max(1, min(config["warps"], block // 256))  # eight elements per thread: 16-byte loads
    args = (*args, *FLOATS, *(("weight",) if weight else ()))
    return Launch(TritonKernel(fn, constexprs, num_warps=warps), (programs, 1, 1), args)


def _block(config, r):
    return min(config["block"], next_power_of_2(r.cols))


def _scratch(r, losses=False, g=False):
    """Losses of the tokens, if they are added up; the factor of their gradients."""
    sizes = {"losses": r.rows} if losses else {}
    sizes |= {"g": 1} if g else {}
    return {n: Scratch(TensorSpec.contiguous((s,), torch.float32)) for n, s in sizes.items()}
