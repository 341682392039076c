"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

WIDEST, MOST = 256, 2**31 - 512
CONFIGS = ({"rows": 128, "cols": 64, "warps": 8, "stages": 3},)
BACKWARD_CONFIGS = ({"many": 128, "few": 64, "warps": 8, "stages": 2},)


def fits(gpu, q, k, v, cu_q, cu_k, max_q, max_k, **more):
    for name, t in {"q": q, "k": k, "v": v, "gy": more.get("gy", q)}.items():
        if why := unsupported_dtype(t.dtype, name):
            return why
        if t.dtype != q.dtype:
            return f"{name}: {t.dtype} is not q's {q.dtype}"
    if max(q.shape[2], v.shape[2]) > WIDEST:
        return f"a head of {max(q.shape[2], v.shape[2])} elements is wider than {WIDEST}"
    if max(q.shape[0], k.shape[0]) > MOST:
        return f"{max(q.shape[0], k.shape[0])} tokens exceed 32-bit indices"
    for name, t in (("cu_q", cu_q), ("cu_k", cu_k)):
        if t.shape[0] > 1 and t.stride(0) != 1:
            return f"{name}: not contiguous"
    blocks = (cu_q.shape[0] - 1) * q.shape[1] * cdiv(max(max_q, max_k), 16)
    return f"{blocks} blocks exceed the size of a grid" if blocks > MOST else None


def order(gpu, **args):
    return ("triton_varlen",)


def bucket(q, v, max_q, left, right, capped, **more):
    window = f"{next_power_of_2(left + 1)}.{next_power_of_2(right + 1)}"
    sizes = f"{next_power_of_2(max(max_q, 1))}/{next_power_of_2(max(q.shape[0], 1))}"
    return f"{kind(q.dtype)}/{q.shape[2]}x{v.shape[2]}/{sizes}/{window}{'/cap' if capped else ''}"
