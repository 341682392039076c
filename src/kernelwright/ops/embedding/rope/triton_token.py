"""One token per program: all of its heads are rotated by angles that are loaded once.

Idea: a program holds the two members of each pair of every head of a token as two tiles, heads by
pairs, first of q, then of k. Any strides are supported; adjacent pairs are loaded as one tile and
split in registers, so that loads stay contiguous.
Traffic: q and k read and written once, in one launch.
Compared with `compiled`: one kernel for q and k, and no padding or masks in memory. `manual` moves
fourteen times as many bytes in 22 launches.
Limit: tiles have powers of two of rows and columns: 28 heads or 96 dimensions leave lanes idle.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, TritonKernel, f64, i32, i64
from kernelwright.contract.arithmetic import next_power_of_2

from .heuristics import heads
from .spec import same_order


@triton.jit
def _angles(
    cos_ptr, sin_ptr, batch, t, pair, half, table_batch, table_token, base,
    TABLE_STEP: tl.constexpr, COMPUTED: tl.constexpr,
):  # fmt: skip
    """cos and sin (1, pairs) of a token; for computed angles, cos_ptr points to positions."""
    row = batch * table_batch + t * table_token
    if COMPUTED:
        # in double, and without whole turns before the conversion to float32
        position = tl.load(cos_ptr + row).to(tl.float64)
        octave = pair.to(tl.float64) * (-tl.log2(base) / half)
        turns = position * (tl.exp2(octave) * 0.15915494309189535)
        angle = ((turns - tl.floor(turns + 0.5)) * 6.283185307179586).to(tl.float32)
        cos, sin = tl.cos(angle), tl.sin(angle)
    else:
        at = row + pair * TABLE_STEP
        cos = tl.load(cos_ptr + at, mask=pair < half, other=0.0).to(tl.float32)
        sin = tl.load(sin_ptr + at, mask=pair < half, other=0.0).to(tl.float32)
    return cos, sin


@triton.jit
def _turn(
    x_ptr, y_ptr, cos, sin, n_heads, half, n_dims, x_head, y_head, DIM: tl.constexpr,
    HEADS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr, INTERLEAVED: tl.constexpr,
):  # fmt: skip
    """Rotates the heads of one token, to which the pointers point."""
    head = tl.arange(0, HEADS)[:, None].to(tl.int64)
    if INTERLEAVED:
        dim = tl.arange(0, 2 * PAIRS)[None, :]
        inside = (head < n_heads) & (dim < 2 * half)
        x = tl.load(x_ptr + head * x_head + dim * DIM, mask=inside, other=0.0).to(tl.float32)
        a, b = tl.split(tl.reshape(x, (HEADS, PAIRS, 2)))
        y = tl.reshape(tl.join(a * cos - b * sin, b * cos + a * sin), (HEADS, 2 * PAIRS))
        tl.store(y_ptr + head * y_head + dim, y.to(y_ptr.dtype.element_ty), mask=inside)
    else:
        pair = tl.arange(0, PAIRS)[None, :]
        inside = (head < n_heads) & (pair < half)
        from_ptr, to_ptr = x_ptr + head * x_head + pair * DIM, y_ptr + head * y_head + pair
        a = tl.load(from_ptr, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(from_ptr + half * DIM, mask=inside, other=0.0).to(tl.float32)
        tl.store(to_ptr, (a * cos - b * sin).to(y_ptr.dtype.element_ty), mask=inside)
        tl.store(to_ptr + half, (b * cos + a * sin).to(y_ptr.dtype.element_ty), mask=inside)
    if REST > 0:
        dim = 2 * half + tl.arange(0, REST)[None, :]
        inside = (head < n_heads) & (dim < n_dims)
        x = tl.load(x_ptr + head * x_head + dim * DIM, mask=inside, other=0.0)
        tl.store(y_ptr + head * y_head + dim, x, mask=inside)


@triton.jit
def rope_token(
    q_ptr, k_ptr, cos_ptr, sin_ptr, yq_ptr, yk_ptr, heads_q, heads_k, half, n_dims, tokens,
    q_batch, q_head, q_token, k_batch, k_head, k_token,
    yq_batch, yq_head, yq_token, yk_batch, yk_head, yk_token,
    table_batch, table_token, base,
    Q_DIM: tl.constexpr, K_DIM: tl.constexpr, TABLE_STEP: tl.constexpr,
    HEADS_Q: tl.constexpr, HEADS_K: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
    COMPUTED: tl.constexpr, INTERLEAVED: tl.constexpr, BACKWARD: tl.constexpr,
):  # fmt: skip
    batch = tl.program_id(0).to(tl.int64) // tokens
    t = tl.program_id(0).to(tl.int64) % tokens
    pair = tl.arange(0, PAIRS)[None, :]
    cos, sin = _angles(
        cos_ptr, sin_ptr, batch, t, pair, half, table_batch, table_token, base, TABLE_STEP, COMPUTED
    )
    if BACKWARD:
        sin = -sin
    q_ptr += batch * q_batch + t * q_token
    k_ptr += batch * k_batch + t * k_token
    yq_ptr += batch * yq_batch + t * yq_token
    yk_ptr += batch * yk_batch + t * yk_token
    _turn(q_ptr, yq_ptr, cos, sin, heads_q, half, n_dims, q_head, yq_head, Q_DIM,
          HEADS_Q, PAIRS, REST, INTERLEAVED)  # fmt: skip
    _turn(k_ptr, yk_ptr, cos, sin, heads_k, half, n_dims, k_head, yk_head, K_DIM,
          HEADS_K, PAIRS, REST, INTERLEAVED)  # fmt: skip


def plan(gpu, config, **args):
    return _plan(config, ("q", "k"), ("yq", "yk"), args)


def plan_backward(gpu, config, **args):
    return _plan(config, ("gyq", "gyk"), ("gq", "gk"), args)


def _plan(config, given, results, args):
    x, y = heads(args)
    batch, heads_q, tokens, dims = x.shape
    half = args["rotary_dim"] // 2
    computed = args["positions"] is not None
    table = args["positions" if computed else "cos"]
    constexprs = {
        # as constants: where they are 1, loads are vectors
        "Q_DIM": x.stride(-1),
        "K_DIM": y.stride(-1),
        "TABLE_STEP": table.stride()[-1],
        "HEADS_Q": next_power_of_2(heads_q),
        "HEADS_K": next_power_of_2(y.shape[1]),
        "PAIRS": next_power_of_2(half),
        "REST": next_power_of_2(dims - 2 * half) if dims > 2 * half else 0,
        "COMPUTED": computed,
        "INTERLEAVED": args["interleaved"],
        "BACKWARD": "gyq" in args,
    }
    strides = [s for t in (x, y, same_order(x), same_order(y)) for s in _strides(t)]
    launch = Launch(
        TritonKernel(rope_token, constexprs, num_warps=config["num_warps"]),
        grid=(batch * tokens, 1, 1),
        args=(
            *given,
            *(("positions", "positions") if computed else ("cos", "sin")),
            *results,
            *map(i32, (heads_q, y.shape[1], half, dims, tokens)),
            *map(i64, (*strides, *table.stride()[:2])),
            f64("base"),
        ),
    )
    return Plan((launch,))


def _strides(t) -> tuple[int, int, int]:
    batch, head, token, _ = t.stride()
    return batch, head, token
