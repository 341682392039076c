"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, unsupported_dtype

from .tiling import CTYPE, network_of, rows_of

LONGEST_BITONIC = 2048  # longest row that a block sorts in shared memory
LONGEST = 2**32 - 1  # longest row whose positions fit in 32 bits
SHORT_ROWS, LONG_ROWS = 256, 32768  # our rungs are dispatched for rows up to and from these lengths
MAX_GRID = 2**31 - 1

BITONIC = ({"block": 256}, {"block": 128}, {"block": 512})
# items: elements per thread; resident: blocks per multiprocessor; match: one instruction for the
# lanes with the same digit instead of eight votes; prefetch: positions are loaded to L2 in advance
TILES = (
    {"block": 384, "items": 20, "resident": 2, "match": False, "prefetch": True},
    {"block": 384, "items": 20, "resident": 2, "match": True, "prefetch": False},
)
RADIX = ({"block": 384, "items": 20, "resident": 2, "match": False},)
THREADS = ({"block": 256},)


def _unsupported(x):
    return None if x.dtype in CTYPE else f"{x.dtype} is not one of {', '.join(map(kind, CTYPE))}"


def fits_bitonic(gpu, x, descending=False):
    if why := _unsupported(x):
        return why
    r = rows_of(x)
    if r.n > LONGEST_BITONIC:
        return f"rows of {r.n} elements do not fit a block's shared memory ({LONGEST_BITONIC})"
    if cdiv(r.rows, network_of(x, BITONIC[0]["block"]).rows) > MAX_GRID:
        return f"{r.rows} rows need more blocks than a grid has"
    return None


def choose_bitonic(gpu, x, descending=False):
    """Small blocks: more of them fit, and they wait at different barriers."""
    return BITONIC[1]


def fits_tiles(gpu, x, descending=False):
    if why := _unsupported(x):
        return why
    r = rows_of(x)
    if r.n > LONGEST:
        return f"rows of {r.n} elements exceed 32-bit indices"
    if r.rows * cdiv(r.n, min(c["block"] * c["items"] for c in TILES)) > MAX_GRID:
        return f"{x.numel()} elements in {r.rows} rows need more blocks than a grid has"
    return None


def fits_backward(gpu, gvalues, indices):
    if not indices.is_contiguous():
        return "indices: not contiguous"
    if cdiv(gvalues.numel(), THREADS[0]["block"]) > MAX_GRID:
        return f"{gvalues.numel()} elements need more threads than a grid has"
    return unsupported_dtype(gvalues.dtype)


def order(gpu, x, descending=False):
    """Rows of lengths in between use PyTorch's sort: a network has too many steps, a tile too few
    elements."""
    n = rows_of(x).n
    if n <= SHORT_ROWS:
        return ("cuda_bitonic",)
    return ("cuda_onesweep",) if n >= LONG_ROWS else ()


def order_backward(gpu, gvalues, indices):
    return ("cuda_scatter",)


def bucket(x, descending=False):
    """Key of a call in the tuned table: dtype, row length and number of rows by powers of two."""
    r = rows_of(x)
    return f"{kind(x.dtype)}/{next_power_of_2(r.n)}/{next_power_of_2(r.rows)}"


def bucket_backward(gvalues, indices):
    return bucket(gvalues)
