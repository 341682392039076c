"""The backward in chunks: states recomputed, gradients of states from the last chunk to the first.

Idea: the forward's kernel recomputes the state before each chunk; in the opposite direction it
computes from q and gy the gradient of the state after each. A third kernel has one program per
chunk: its scores q k^T and pairs gy v^T are computed once; with both states they give gq, gk, gv
and the gradient of decay, a sum over all pairs j < t <= i that is computed without differences.
Traffic: q, k, v, gy twice and the results once, two states per chunk written and read.
Compared with `native`: no square of scores in memory; a fixed order of additions per gradient.
Limit: seven products per block of columns in the third kernel, with operands from L2.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, f32, i32

from ._blocks import apart, block, product, ratios, state_block, store, triangle
from ._states import kernel, states_of, sums_of
from .call import Call


@triton.jit
def chunk_gradients(
    gy_ptr, q_ptr, k_ptr, v_ptr, high_ptr, low_ptr, states_ptr, gstates_ptr,
    gq_ptr, gk_ptr, gv_ptr, gg_ptr,
    gy_b, gy_h, gy_row, q_b, q_h, q_row, k_b, k_h, k_row, v_b, v_h, v_row,
    gq_b, gq_h, gq_row, gk_b, gk_h, gk_row, gv_b, gv_h, gv_row, heads, length, scale,
    GY_COL: tl.constexpr, Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    DECAY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CHUNK: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    chunks = tl.cdiv(length, CHUNK)
    head, chunk = (tl.program_id(0) // chunks).to(tl.int64), tl.program_id(0) % chunks
    b, h = head // heads, head % heads
    gy_ptr += b * gy_b + h * gy_h
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + h * k_h
    v_ptr += b * v_b + h * v_h
    states = states_ptr + (head * chunks + chunk) * K * V
    gstates = gstates_ptr + (head * chunks + chunk) * K * V
    t = tl.arange(0, CHUNK)
    row = chunk * CHUNK + t
    i, j = t[:, None], t[None, :]

    scores, pairs = tl.zeros((CHUNK, CHUNK), tl.float32), tl.zeros((CHUNK, CHUNK), tl.float32)
    for col in range(0, K, BK):
        q = block(q_ptr, q_row, row, length, col, Q_COL, K, BK, states_ptr)
        k = block(k_ptr, k_row, row, length, col, K_COL, K, BK, states_ptr)
        scores += product(q, tl.trans(k), PRECISION)
    for col in range(0, V, BV):
        gy = block(gy_ptr, gy_row, row, length, col, GY_COL, V, BV, states_ptr)
        v = block(v_ptr, v_row, row, length, col, V_COL, V, BV, states_ptr)
        pairs += product(gy, tl.trans(v), PRECISION)
    high, low = tl.zeros((CHUNK,), tl.float32), tl.zeros((CHUNK,), tl.float32)
    since, until, through = high + 1.0, high + 1.0, 1.0
    if DECAY:
        sums = head * chunks * CHUNK + row
        high, low = tl.load(high_ptr + sums), tl.load(low_ptr + sums)
        last = head * chunks * CHUNK + chunk * CHUNK + CHUNK - 1
        last_high, last_low = tl.load(high_ptr + last), tl.load(low_ptr + last)
        since = tl.exp2(high + low)
        until = tl.exp2(apart(last_high, last_low, high, low))
        through = tl.exp2(last_high + last_low)
    since *= scale
    decay = ratios(high, low, t, t, DECAY) * scale
    later = tl.zeros((CHUNK,), tl.float32)
    if DECAY:
        # for pairs of j <= t and i > t, that is, for the decay of token t + 1
        upto = tl.cumsum(tl.where(j < i, scores * pairs * decay, 0.0), 1)
        later += tl.sum(tl.where(j < i, upto, 0.0), 0)
    scores = tl.where(j <= i, scores * decay, 0.0).to(states_ptr.dtype.element_ty)
    pairs = tl.where(j <= i, pairs * decay, 0.0).to(states_ptr.dtype.element_ty)

    from_start, to_last = tl.zeros((CHUNK,), tl.float32), tl.zeros((CHUNK,), tl.float32)
    crossing = 0.0
    for col in range(0, K, BK):
        gq, gk = tl.zeros((CHUNK, BK), tl.float32), tl.zeros((CHUNK, BK), tl.float32)
        for col_v in range(0, V, BV):
            gy = block(gy_ptr, gy_row, row, length, col_v, GY_COL, V, BV, states_ptr)
            v = block(v_ptr, v_row, row, length, col_v, V_COL, V, BV, states_ptr)
            at, inside = state_block(states, col, col_v, K, V, BK, BV)
            state = tl.load(at, mask=inside, other=0.0)
            at, inside = state_block(gstates, col, col_v, K, V, BK, BV)
            gstate = tl.load(at, mask=inside, other=0.0)
            gq += product(gy, tl.trans(state), PRECISION)
            gk += product(v, tl.trans(gstate), PRECISION)
            if DECAY:
                crossing += tl.sum(tl.sum(state.to(tl.float32) * gstate.to(tl.float32), 1), 0)
        q = block(q_ptr, q_row, row, length, col, Q_COL, K, BK, states_ptr)
        k = block(k_ptr, k_row, row, length, col, K_COL, K, BK, states_ptr)
        gq *= since[:, None]
        gk *= until[:, None]
        if DECAY:
            from_start += tl.sum(gq * q.to(tl.float32), 1)
            to_last += tl.sum(gk * k.to(tl.float32), 1)
        gq += triangle(pairs, k, False, CHUNK, PRECISION)
        gk += triangle(tl.trans(pairs), q, True, CHUNK, PRECISION)
        store(gq, gq_ptr + b * gq_b + h * gq_h, gq_row, row, length, col, K, BK)
        store(gk, gk_ptr + b * gk_b + h * gk_h, gk_row, row, length, col, K, BK)
    for col_v in range(0, V, BV):
        gv = tl.zeros((CHUNK, BV), tl.float32)
        for col in range(0, K, BK):
            k = block(k_ptr, k_row, row, length, col, K_COL, K, BK, states_ptr)
            at, inside = state_block(gstates, col, col_v, K, V, BK, BV)
            gv += product(k, tl.load(at, mask=inside, other=0.0), PRECISION)
        gy = block(gy_ptr, gy_row, row, length, col_v, GY_COL, V, BV, states_ptr)
        gv = gv * until[:, None] + triangle(tl.trans(scores), gy, True, CHUNK, PRECISION)
        store(gv, gv_ptr + b * gv_b + h * gv_h, gv_row, row, length, col_v, V, BV)

    if DECAY:
        later += tl.cumsum(to_last, 0)
        gg = tl.sum(tl.where(i + 1 == j, later[:, None], 0.0), 0)
        gg += tl.cumsum(from_start, 0, reverse=True) + crossing * through
        to = gg_ptr + head * length + row
        tl.store(to, gg.to(gg_ptr.dtype.element_ty), mask=row < length)


def plan_backward(gpu, config, **args):
    c = Call(gpu, config, args)
    wanted = args["state"] is not None
    launches = (
        *sums_of(c),
        states_of(c, "k", "v", "state", "states", "gstate", end=False),
        states_of(c, "q", "gy", "gfinal", "gstates", "gstate", end=wanted, backwards=True),
        Launch(
            kernel(c, chunk_gradients, c.columns(GY="gy", Q="q", K="k", V="v"), warps=8),
            (c.chunks * c.heads, 1, 1),
            ("gy", "q", "k", "v", *c.sums, "states", "gstates", "gq", "gk", "gv", "gg",
             *c.strides("gy", "q", "k", "v", "gq", "gk", "gv"),
             i32(args["q"].shape[1]), i32(c.length), f32("scale")),
        ),
    )  # fmt: skip
    return Plan(launches, c.workspace("states", "gstates"))
