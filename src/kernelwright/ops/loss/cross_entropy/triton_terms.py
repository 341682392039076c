"""The terms of a row's loss and gradient, and the launches over tokens, for Triton rungs.

Names are those of ops/loss/_terms.py. If there are no class weights, `w_ptr` is None.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, TritonKernel, i64
from kernelwright.contract.arithmetic import next_power_of_2
from kernelwright.ops._triton.math import exp, polynomial
from kernelwright.ops._triton.target import require

# (tanh(u) / u - 1) / u^2 for u^2 up to 0.3, highest power first; error 0.1 of 2^-24
TANH = tl.constexpr((-0.0062794993, 0.0210756678, -0.0538533634, 0.1333259791, -0.3333331943))


@triton.jit
def cap(x, softcap, CAP: tl.constexpr):
    """softcap * tanh(x / softcap), or x."""
    if CAP:
        u = x / softcap
        small = tl.fma(u * u * u, polynomial(u * u, TANH, 4), u)
        large = 1.0 - 2.0 / (exp(2.0 * tl.abs(u)) + 1.0)
        x = softcap * tl.where(tl.abs(u) < 0.55, small, tl.where(u < 0, -large, large))
    return x


@triton.jit
def cap_slope(z, softcap, CAP: tl.constexpr):
    """dz / dx, from z."""
    slope = 1.0
    if CAP:
        slope = 1.0 - (z / softcap) * (z / softcap)
    return slope


@triton.jit
def class_weight(w_ptr, col, inside):
    w = 1.0
    if w_ptr is not None:
        w = tl.load(w_ptr + col, mask=inside, other=0.0)
    return w


@triton.jit
def read_target(target_ptr, n_cols, ignore_index):
    """(target, whether it is ignored, a valid class in any case)."""
    target = tl.load(target_ptr).to(tl.int64)
    ignored = target == ignore_index
    require(ignored | ((target >= 0) & (target < n_cols)))
    return target, ignored, tl.where(ignored, 0, target)


@triton.jit
def read_row(x_ptr, n_cols, softcap, w_ptr, SMOOTH: tl.constexpr, CAP: tl.constexpr,
             BLOCK: tl.constexpr):  # fmt: skip
    """(max z, sum of exp(z - max), sum of w (z - max), sum of w), the last two for label
    smoothing."""
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    spread = tl.zeros([BLOCK], tl.float32)
    every = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_cols, BLOCK):
        col = start + tl.arange(0, BLOCK)
        inside = col < n_cols
        z = cap(tl.load(x_ptr + col, mask=inside, other=0.0).to(tl.float32), softcap, CAP)
        z = tl.where(inside, z, float("-inf"))
        higher = tl.maximum(top, z, propagate_nan=tl.PropagateNan.ALL)
        # a column that has seen only -inf has no reference yet: with 0 its sum remains 0, not NaN
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * exp(top - base) + exp(z - base)
        if SMOOTH:
            w = class_weight(w_ptr, col, inside)
            spread = moved(spread, every, top, base) + tl.where(inside, w * (z - base), 0.0)
            every += tl.where(inside, w, 0.0)
        top = higher
    m = tl.max(top, axis=0)  # NaN is propagated by the sum in any case
    base = tl.where(m == float("-inf"), 0.0, m)
    total = tl.sum(total * exp(top - base), axis=0)
    if SMOOTH:
        spread = moved(spread, every, top, base)
    return m, total, tl.sum(spread, axis=0), tl.sum(every, axis=0)


@triton.jit
def moved(spread, every, top, base):
    """Sums of w (z - top) as sums of w (z - base)."""
    return spread + every * (tl.where(top == float("-inf"), 0.0, top) - base)


@triton.jit
def log_sum(top, total):
    return tl.where(top == float("-inf"), 0.0, top) + tl.log(total)


@triton.jit
def token_loss(
    top, total, z_hit, w, spread, every, n_cols, label_smoothing, z_loss, SMOOTH: tl.constexpr
):
    """lse - z = (top - z) + log(total): the sum of a large maximum and the logarithm would lose the
    latter's digits."""
    lse = log_sum(top, total)
    of_hit = tl.where(top == float("-inf"), 0.0, top) - z_hit + tl.log(total)
    loss = w * ((1.0 - label_smoothing) * of_hit + z_loss * lse * lse)
    if SMOOTH:
        loss += label_smoothing / n_cols * (every * tl.log(total) - spread)
    return loss


@triton.jit
def coefficients(g, lse, w, every, n_cols, label_smoothing, z_loss, SMOOTH: tl.constexpr):
    """gx_j = of_p p_j - hit [j = target] - smooth w_j: (of_p, hit, smooth)."""
    hit = g * (1.0 - label_smoothing) * w
    of_p = hit + 2.0 * g * z_loss * w * lse
    smooth = g * label_smoothing / n_cols
    if SMOOTH:
        of_p += smooth * every
    return of_p, hit, smooth


@triton.jit
def gradient(z, p, col, target, inside, of_p, hit, smooth, softcap, w_ptr,
             SMOOTH: tl.constexpr, CAP: tl.constexpr):  # fmt: skip
    gx = of_p * p - tl.where(col == target, hit, 0.0)
    if SMOOTH:
        gx -= smooth * class_weight(w_ptr, col, inside)
    return gx * cap_slope(z, softcap, CAP)


@triton.jit
def _weight_of_targets(target_ptr, n_rows, n_cols, ignore_index, w_ptr, BLOCK: tl.constexpr):
    """The divisor of a mean. Targets out of range are reported by the kernel over their rows."""
    weight = tl.zeros([BLOCK], tl.float32)
    for start in range(0, n_rows, BLOCK):
        row = start + tl.arange(0, BLOCK)
        target = tl.load(target_ptr + row, mask=row < n_rows, other=0).to(tl.int64)
        counts = (row < n_rows) & (target != ignore_index) & (target >= 0) & (target < n_cols)
        weight += tl.where(counts, class_weight(w_ptr, target, counts), 0.0)
    return tl.sum(weight, axis=0)


@triton.jit
def cross_entropy_scale(
    target_ptr, g_ptr, n_rows, n_cols, ignore_index, w_ptr, MEAN: tl.constexpr, BLOCK: tl.constexpr
):
    """The factor of each token's gradient, which is known before the first row is read."""
    weight = 1.0
    if MEAN:
        weight = _weight_of_targets(target_ptr, n_rows, n_cols, ignore_index, w_ptr, BLOCK)
    tl.store(g_ptr, 1.0 / weight)


@triton.jit
def cross_entropy_reduce(
    losses_ptr, target_ptr, loss_ptr, n_rows, n_cols, ignore_index, totals_ptr, w_ptr,
    SUM: tl.constexpr, MEAN: tl.constexpr, TOTALS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The scalar loss, and the totals over tokens and classes that the backward needs."""
    divisor = 1.0
    if MEAN:
        divisor = _weight_of_targets(target_ptr, n_rows, n_cols, ignore_index, w_ptr, BLOCK)
    if SUM:
        total = tl.zeros([BLOCK], tl.float32)
        for start in range(0, n_rows, BLOCK):
            row = start + tl.arange(0, BLOCK)
            total += tl.load(losses_ptr + row, mask=row < n_rows, other=0.0)
        loss = tl.sum(total, axis=0) / divisor
        tl.store(loss_ptr, loss.to(loss_ptr.dtype.element_ty))
    if TOTALS:
        every = n_cols.to(tl.float32)
        if w_ptr is not None:
            sums = tl.zeros([BLOCK], tl.float32)
            for start in range(0, n_cols, BLOCK):
                col = start + tl.arange(0, BLOCK)
                sums += class_weight(w_ptr, col, col < n_cols)
            every = tl.sum(sums, axis=0)
        tl.store(totals_ptr, divisor)
        tl.store(totals_ptr + 1, every)


def scale(rows, cols, weight, reduction, ignore_index) -> Launch:
    """Writes scratch `g`."""
    args = ("target", "g", i64(rows), i64(cols), i64(ignore_index))
    return _one_program(cross_entropy_scale, args, rows, weight, MEAN=reduction == "mean")


def reduce(rows, cols, weight, reduction, ignore_index, totals: bool) -> Launch:
    """Writes `loss` from the scratch tensor `losses`, and `totals` if they are a result."""
    losses = "loss" if reduction == "none" else "losses"
    args = (losses, "target", "loss", i64(rows), i64(cols), i64(ignore_index))
    args = (*args, "totals" if totals else "loss")
    flags = {"SUM": reduction != "none", "MEAN": reduction == "mean", "TOTALS": totals}
    return _one_program(cross_entropy_reduce, args, rows, weight, **flags)


def _one_program(fn, args, rows, weight, **constexprs) -> Launch:
    block = min(4096, max(128, next_power_of_2(rows)))
    constexprs = {**constexprs, "BLOCK": block, **({} if weight else {"w_ptr": None})}
    kernel = TritonKernel(fn, constexprs, num_warps=max(4, block // 256))
    return Launch(kernel, (1, 1, 1), (*args, "weight") if weight else args)
