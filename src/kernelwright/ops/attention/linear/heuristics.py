"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

WIDEST = 256  # largest K and V
MOST = 2**31 - 512  # maximum number of tokens: chunks extend past the last
SQUARE = 2**30  # maximum number of scores of the quadratic rung
STATES = 2**31  # maximum elements of the states that the recurrence saves for its backward
DECODED = 16  # number of tokens up to which the recurrence is faster
# `k`, `v`: columns of a block; `state`: rows and columns of the state block that a program carries
CONFIGS = (
    {"chunk": 64, "k": 64, "v": 64, "state": 64, "warps": 4, "stages": 3},
    {"chunk": 64, "k": 64, "v": 64, "state": 32, "warps": 4, "stages": 3},
    {"chunk": 128, "k": 64, "v": 64, "state": 32, "warps": 8, "stages": 2},
    {"chunk": 64, "k": 64, "v": 128, "state": 64, "warps": 8, "stages": 2},
)


def choose(gpu, q, v, **more):
    """Large blocks of states if every multiprocessor then still gets one."""
    large = CONFIGS[0]["state"]
    blocks = q.shape[0] * q.shape[1] * cdiv(q.shape[3], large) * cdiv(v.shape[3], large)
    return CONFIGS[0] if blocks >= gpu.sms else CONFIGS[1]


def fits_manual(gpu, q, k, v, g, state, want_final, scale, **more):
    kept = q.numel() * v.shape[3]
    return f"{kept} elements of states are more than {STATES}" if kept > STATES else None


def fits_quadratic(gpu, q, k, v, g, state, want_final, scale, **more):
    scores = q.shape[0] * q.shape[1] * q.shape[2] ** 2
    return f"{scores} scores are more than {SQUARE}" if scores > SQUARE else None


def fits_triton(gpu, q, k, v, g, state, want_final, scale, gy=None, gfinal=None):
    for name, t in {"q": q, "k": k, "v": v, "gy": gy}.items():
        if t is None:
            continue
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != q.dtype:
            return f"{name}: {t.dtype} is not q's {q.dtype}"
    for name, t in {"g": g, "state": state, "gfinal": gfinal}.items():
        if t is not None and (why := unsupported_dtype(t.dtype, name)):
            return why
    d, dv = q.shape[3], v.shape[3]
    if not d or not dv:
        return "a head without elements"
    if max(d, dv) > WIDEST:
        return f"a head of {max(d, dv)} elements is wider than {WIDEST}"
    if q.shape[2] > MOST:
        return f"{q.shape[2]} tokens exceed 32-bit indices"
    heads = q.shape[0] * q.shape[1]
    blocks = heads * max(cdiv(q.shape[2], 32), cdiv(d, 16)) * cdiv(dv, 16)
    return f"{blocks} blocks exceed the size of a grid" if blocks > MOST else None


def fits_recurrent(gpu, q, k, v, g, state, want_final, scale):
    if g is not None and str(g.dtype) != "torch.float32":
        return f"g: {g.dtype} is not float32"
    if state is not None and str(state.dtype) != "torch.float32":
        return f"state: {state.dtype} is not float32"
    return fits_triton(gpu, q, k, v, g, state, want_final, scale)


def order(gpu, q, **others):
    few = q.shape[2] <= DECODED
    return ("cuda_recurrent", "triton_chunked") if few else ("triton_chunked", "cuda_recurrent")


def order_backward(gpu, **args):
    return ("triton_chunked",)


def bucket(q, v, g, **more):
    powers = "/".join(
        str(next_power_of_2(max(n, 1))) for n in (q.shape[2], q.shape[0] * q.shape[1])
    )
    return f"{kind(q.dtype)}/{q.shape[3]}x{v.shape[3]}/{powers}{'' if g is None else '/decay'}"
