"""How many tokens a chunk has, and which rung handles a call. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

# The logits of a chunk are the workspace. The product that computes gw reads and writes all of it,
# 4 V H bytes for 6 T H V flops: it is more efficient with more tokens T, but a caller whose weight
# is small has no room for a large workspace. Therefore the workspace is half the size of the weight
# (T = H / 2), or WORKSPACE if that is more.
TOKENS = 4096
WORKSPACE = 288 << 20  # bytes
TILE = 256  # number of tokens that the tiles of matrix products divide evenly

SCALE_CONFIGS = ({"block": 2048, "warps": 8}, {"block": 1024, "warps": 4})


def chunk(tokens: int, hidden: int, classes: int, itemsize: int) -> int:
    """Tokens per chunk: equal chunks of whole tiles, within the workspace if a tile fits in it."""
    fit = max(WORKSPACE // (classes * itemsize), hidden // 2) // TILE * TILE
    most = max(TILE, min(TOKENS, fit))
    each = cdiv(tokens, max(1, cdiv(tokens, most)))
    return max(1, min(tokens, cdiv(each, TILE) * TILE))


def order(gpu, **args):
    return ("chunked",)


def bucket(x, w, **others):
    sizes = (x.shape[0], x.shape[1], w.shape[0])
    return "/".join([kind(x.dtype), *(str(next_power_of_2(s)) for s in sizes)])


def fits_scale(gpu, x, g):
    if why := unsupported_dtype(x.dtype):
        return why
    return None if x.is_contiguous() else "x has gaps between its elements"


def order_scale(gpu, **args):
    return ("triton_unless_one",)


def bucket_scale(x, g):
    return f"{str(x.dtype).removeprefix('torch.')}/{next_power_of_2(x.numel())}"
