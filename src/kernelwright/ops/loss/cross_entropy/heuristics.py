"""Which rung handles a call, and its launch parameters. Imports no kernel language.

`fits_*` returns why a call does not fit a rung, or None; `choose_*` selects one of the rung's
configs by shape; `order*` ranks the rungs for calls that are not in a tuned table.
"""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, no_clusters, unsupported_dtype

from .tiling import CLUSTER, rows_of, shape_of

TRITON_CONFIGS = (
    {"block": 8192, "warps": 16},
    {"block": 4096, "warps": 8},
)
# vectors that a thread loads before it uses the first
ONLINE_CONFIGS = (
    {"threads": 512, "vectors": 4},
    {"threads": 256, "vectors": 4},
    {"threads": 512, "vectors": 2},
)
BACKWARD_CONFIGS = (
    {"threads": 256, "vectors": 4},
    {"threads": 256, "vectors": 2},
)
BLOCK_CONFIGS = ({"vectors": 8}, {"vectors": 4})
CLUSTER_CONFIGS = (
    {"vectors": 8, "blocks": 4},
    {"vectors": 4, "blocks": 4},
    {"vectors": 8, "blocks": 2},
    {"vectors": 8, "blocks": 8},
    {"vectors": 16, "blocks": 8},
)


def fits(gpu, x, **others):
    """Requirements of every rung over rows."""
    if why := unsupported_dtype(x.dtype):
        return why
    for name in ("target", "gloss", "max_sum", "g"):
        if name in others and not others[name].is_contiguous():
            return f"{name} has gaps between its elements"
    weight = others["weight"]
    if weight is not None and str(weight.dtype) != "torch.float32":
        return f"weight: {weight.dtype} is not float32"
    r = rows_of(x)
    blocks = r.rows * max(CLUSTER, cdiv(r.cols, 1024))
    return f"{blocks} blocks exceed the size of a grid" if blocks >= 2**31 else None


def fits_block(gpu, x, **others):
    return fits(gpu, x, **others) or _held(x, BLOCK_CONFIGS[0], "a block")


def fits_cluster(gpu, x, **others):
    home = f"a cluster of {CLUSTER} blocks"
    return no_clusters(gpu) or fits(gpu, x, **others) or _held(x, CLUSTER_CONFIGS[0], home)


def _held(x, config, home):
    r = rows_of(x)
    if shape_of(r, x.itemsize, config) is None:
        return f"a row of {r.cols} does not fit the registers of {home}"
    return None


def choose_block(gpu, x, **others):
    """Four vectors per thread up to 256 threads, then eight: with few warps the barrier is
    cheap."""
    return {"vectors": 4 if rows_of(x).vectors <= 1024 else 8}


def choose_cluster(gpu, x, **others):
    """Blocks of 512 threads, with the row lengths that are fastest for softmax with as many
    vectors."""
    vectors = rows_of(x).vectors
    if vectors <= 8192:
        return {"vectors": 4, "blocks": 4}
    return {"vectors": 8, "blocks": 4 if vectors <= 16384 else 8}


def order(gpu, x, **others):
    return (*_first(x), "cuda_online", "triton_online")


def order_with_grad(gpu, x, **others):
    """One multiprocessor per row if the row fits in it: its block does not wait for other
    blocks."""
    return (*_first(x), *order_with_grad_in_place(gpu, x, **others))


def order_with_grad_in_place(gpu, x, **others):
    return ("cuda_block", "cuda_cluster", "triton_online")


def _first(x) -> tuple[str, ...]:
    return ("cuda_superset",) if x.shape[-1] * x.itemsize % 16 else ()


def bucket(x, **others):
    """Key of a call in the tuned table: dtype, classes and tokens by powers of two; vocabularies
    that are not divisible by a 16-byte vector have keys of their own."""
    rows = x.numel() // max(x.shape[-1], 1)
    odd = "/odd" if _first(x) else ""
    return f"{kind(x.dtype)}{odd}/{next_power_of_2(x.shape[-1])}/{next_power_of_2(rows)}"
