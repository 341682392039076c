"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind
from kernelwright.contract.inputs import FLOATS

from .spec import EVERY
from .tiling import reduction

MAX_GRID_Y = 65535

# One launch over the whole input by a grid that the GPU holds at once: with the register use of the
# kernels, blocks_per_sm of these blocks fit on an SM. The bytes in flight on an SM are block * vecs
# * 16 * blocks_per_sm.
STREAM = (
    {"block": 512, "vecs": 8, "blocks_per_sm": 2},
    {"block": 512, "vecs": 4, "blocks_per_sm": 3},
    {"block": 512, "vecs": 4, "blocks_per_sm": 2},
    {"block": 512, "vecs": 2, "blocks_per_sm": 2},
    {"block": 256, "vecs": 8, "blocks_per_sm": 4},
    {"block": 1024, "vecs": 4, "blocks_per_sm": 1},
)
# Blocks that publish words with flags need not be resident at the same time: with one tile per
# block, the GPU starts a block whenever another ends, so that no partial last wave remains.
FLAGGED = (
    *STREAM,
    {"block": 512, "vecs": 8, "blocks_per_sm": 8},
    {"block": 512, "vecs": 4, "blocks_per_sm": 16},
)
ROWS = (
    {"block": 256, "lanes": 8, "vecs": 4},
    {"block": 256, "lanes": 32, "vecs": 4},
    {"block": 256, "lanes": 32, "vecs": 8},
    {"block": 256, "lanes": 256, "vecs": 4},
    {"block": 256, "lanes": 256, "vecs": 8},
)
COLUMNS = (
    {"block": 256, "x": 32, "vecs": 4, "blocks_per_sm": 4},
    {"block": 256, "x": 32, "vecs": 8, "blocks_per_sm": 2},
    {"block": 256, "x": 64, "vecs": 8, "blocks_per_sm": 2},
    {"block": 256, "x": 128, "vecs": 8, "blocks_per_sm": 2},
)
TRITON = ({"tile": 4096, "num_warps": 8}, {"tile": 8192, "num_warps": 8})


def _fits(kinds: tuple[str, ...], dtypes=EVERY):
    """A `supports` for rungs that take these kinds of Reduction in these dtypes."""

    def supports(gpu, x, dim, to=None):
        if x.dtype not in dtypes:
            served = ", ".join(kind(d) for d in dtypes)
            return f"{x.dtype} is not one of {served}"
        if to not in (None, x.dtype) and not (to == torch.float32 and x.dtype in FLOATS):
            return f"a {to} result of {x.dtype} is not supported"
        r = reduction(x, tuple(dim))
        if r is None:
            return "the summed or the kept dimensions cannot be merged"
        if r.kind not in kinds:
            return f"only sums of {' and '.join(kinds)} are supported, not of {r.kind}"
        return None

    return supports


fits_whole = _fits(("whole",))
fits_rows = _fits(("whole", "rows"))
fits_columns = _fits(("columns",))
fits_numba = _fits(("whole",), (torch.float32, torch.float64))


def fits_split_rows(gpu, x, dim, to=None):
    reason = fits_rows(gpu, x, dim, to)
    if reason is None and reduction(x, tuple(dim)).outer > MAX_GRID_Y:
        return f"more than {MAX_GRID_Y} rows"
    return reason


def choose_stream(gpu, x, dim, to=None):
    """One tile per block if the input fits in one wave: all loads are in flight at once."""
    for vecs in (2, 4):
        config = next(c for c in reversed(STREAM) if (c["block"], c["vecs"]) == (512, vecs))
        if x.nbytes <= 512 * vecs * 16 * gpu.sms * config["blocks_per_sm"]:
            return config
    return STREAM[0]


def choose_rows(gpu, x, dim, to=None):
    """A whole row at once, if 4 or 8 vectors per thread cover it."""
    vectors = cdiv(reduction(x, tuple(dim)).n * x.itemsize, 16)
    for config in ROWS:
        if vectors <= config["lanes"] * config["vecs"]:
            return config
    return ROWS[-1]


def choose_columns(gpu, x, dim, to=None):
    """Eight 16-bit columns per thread need so many registers that fewer threads fit."""
    return COLUMNS[1] if x.itemsize == 2 else COLUMNS[0]


def order(gpu, x, dim, to=None):
    r = reduction(x, tuple(dim))
    if r is None:
        return ()
    if r.kind == "columns":
        return ("cuda_columns",)
    # too few rows for all SMs, and long enough that combining blocks costs less than idle SMs
    if r.outer < gpu.sms and r.n * x.itemsize > 32768:
        return "cuda_flagged", "cuda_rows", "triton_block"
    return "cuda_rows", "triton_block"


def bucket(x, dim, to=None):
    """Key of a call in the tuned table: dtype, kind, and sizes by powers of two."""
    r = reduction(x, tuple(dim))
    if r is None:
        return f"{kind(x.dtype)}/unmerged"
    sizes = "/".join(str(next_power_of_2(s)) for s in (r.outer, r.n, r.inner))
    return f"{kind(x.dtype)}/{r.kind}/{sizes}"
