"""Chunks on tensor cores: states in one kernel, outputs of all chunks in another.

Idea: a first kernel sums log decay in each chunk. In the second a program holds a block of a head's
state in float32 registers and iterates over the chunks: it writes the state and adds the chunk's
k^T v, with each row decayed to the end of the chunk. In the third every chunk is a program: q times
the state, decayed from the start of the chunk, plus masked scores times v.
Traffic: q and y once, k and v twice, and one state per chunk written once and read once.
Compared with `native`: scores and decays are not in memory, and states are not read to be updated.
Limit: the second kernel has few programs, each of which waits for one product after another.
"""

import triton
import triton.language as tl

from kernelwright.contract import Launch, Plan, f32, i32
from kernelwright.contract.arithmetic import cdiv

from ._blocks import block, product, ratios, state_block, store, triangle
from ._states import kernel, states_of, sums_of
from .call import Call


@triton.jit
def chunk_outputs(
    q_ptr, k_ptr, v_ptr, high_ptr, low_ptr, states_ptr, y_ptr,
    q_b, q_h, q_row, k_b, k_h, k_row, v_b, v_h, v_row, y_b, y_h, y_row, heads, length, scale,
    Q_COL: tl.constexpr, K_COL: tl.constexpr, V_COL: tl.constexpr,
    DECAY: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    CHUNK: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    across: tl.constexpr = (V + BV - 1) // BV
    chunks = tl.cdiv(length, CHUNK)
    col_v, place = tl.program_id(0) % across * BV, tl.program_id(0) // across
    head, chunk = (place // chunks).to(tl.int64), place % chunks
    b, h = head // heads, head % heads
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + h * k_h
    i = tl.arange(0, CHUNK)
    row = chunk * CHUNK + i
    scores = tl.zeros((CHUNK, CHUNK), tl.float32)
    y = tl.zeros((CHUNK, BV), tl.float32)
    for col in range(0, K, BK):
        q = block(q_ptr, q_row, row, length, col, Q_COL, K, BK, states_ptr)
        k = block(k_ptr, k_row, row, length, col, K_COL, K, BK, states_ptr)
        at, inside = state_block(
            states_ptr + (head * chunks + chunk) * K * V, col, col_v, K, V, BK, BV
        )
        scores += product(q, tl.trans(k), PRECISION)
        y += product(q, tl.load(at, mask=inside, other=0.0), PRECISION)
    high, low = tl.zeros((CHUNK,), tl.float32), tl.zeros((CHUNK,), tl.float32)
    if DECAY:
        sums = head * chunks * CHUNK + row
        high, low = tl.load(high_ptr + sums), tl.load(low_ptr + sums)
        y *= tl.exp2(high + low)[:, None]
    weights = tl.where(i[None, :] <= i[:, None], scores * ratios(high, low, i, i, DECAY), 0.0)
    v = block(v_ptr + b * v_b + h * v_h, v_row, row, length, col_v, V_COL, V, BV, states_ptr)
    y += triangle(weights.to(v.dtype), v, False, CHUNK, PRECISION)
    store(y * scale, y_ptr + b * y_b + h * y_h, y_row, row, length, col_v, V, BV)


def plan(gpu, config, **args):
    c = Call(gpu, config, args)
    launches = (
        *sums_of(c),
        states_of(c, "k", "v", "state", "states", "final", end=args["want_final"]),
        Launch(
            kernel(c, chunk_outputs, c.columns(Q="q", K="k", V="v")),
            (cdiv(c.dv, c.wide_v) * c.chunks * c.heads, 1, 1),
            ("q", "k", "v", *c.sums, "states", "y", *c.strides("q", "k", "v", "y"),
             i32(args["q"].shape[1]), i32(c.length), f32("scale")),
        ),
    )  # fmt: skip
    return Plan(launches, c.workspace("states"))
