"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

import torch

from kernelwright.contract.arithmetic import cdiv, next_power_of_2
from kernelwright.contract.eligibility import kind, no_clusters, unsupported_dtype

from .tiling import (
    CLUSTER,
    CLUSTER_COLS,
    HELD,
    THREADS,
    BackwardCall,
    Call,
    block_forward,
    block_walk,
    cluster_forward,
    cluster_forward_walk,
    cluster_walk,
    warp_forward,
    warp_walk,
)

COLS = 32768  # elements that fit in a Triton program's registers with 32 warps
COLS_BACKWARD = 8192  # four arrays of this size fit
WARP_ROW, BLOCK_ROW = 1024, 65536  # longest rows, in bytes, for a warp and a block
STREAM = 2**26  # bytes of all rows from which on they do not fit in L2
WARP_COLS_BACKWARD, BLOCK_COLS_BACKWARD = 1024, 8192

# tile: minimum number of elements of a program's tile; items: of them, per thread
TRITON_CONFIGS = (
    {"tile": 2048, "items": 16},
    {"tile": 2048, "items": 32},
    {"tile": 1024, "items": 32},
    {"tile": 1024, "items": 8},
)
# block: elements that a program holds
LOOP_CONFIGS = ({"block": 4096}, {"block": 2048}, {"block": 8192}, {"block": 16384})
# programs: per multiprocessor; stages: tiles that are in flight or being processed
TRITON_CONFIGS_BACKWARD = (
    {"tile": 1024, "items": 8, "programs": 4, "stages": 1},
    {"tile": 2048, "items": 16, "programs": 2, "stages": 3},
)
# vectors, items (columns): per thread; blocks: per cluster; rows: at once, fewer if they do not fit
WARP_CONFIGS = ({"rows": 1}, {"rows": 4}, {"rows": 2})
BLOCK_CONFIGS = ({"vectors": 4}, {"vectors": 8}, {"vectors": 2})
CLUSTER_CONFIGS = (
    {"vectors": 8, "blocks": 2, "rows": 1},
    {"vectors": 8, "blocks": 8, "rows": 1},
    {"vectors": 8, "blocks": 8, "rows": 2},
    # clusters that iterate over the rows; rows: those in shared memory
    {"items": 32, "blocks": 2, "rows": 3},
    {"items": 32, "blocks": 2, "rows": 6},
    {"items": 64, "blocks": 2, "rows": 3},
    {"items": 16, "blocks": 2, "rows": 6},
)
WARP_CONFIGS_BACKWARD = (  # threads: per block; resident: per multiprocessor, for short rows
    {"rows": 2, "threads": 256, "resident": 768},
    {"rows": 4, "threads": 256, "resident": 768},
    {"rows": 1, "threads": 512, "resident": 1024},
    {"rows": 4, "threads": 512, "resident": 1024},
    {"rows": 2, "threads": 1024, "resident": 1024},
)
BLOCK_CONFIGS_BACKWARD = (  # the first config has the most bytes in flight
    {"items": 16, "rows": 4},
    {"items": 16, "rows": 1},
    {"items": 32, "rows": 4},
)
# the rows of a cluster pass through shared memory one after another
CLUSTER_CONFIGS_BACKWARD = tuple({"items": 16, "rows": 6, "blocks": n} for n in (2, 4, 8, 16))


def fits_compiled(gpu, **args):
    x = _normalised(args)
    return "an empty row has no mean" if x.shape and x.shape[-1] == 0 else None


def _rows_of(args) -> Call:
    return (BackwardCall if "gy" in args else Call)(args)


def _normalised(args):
    return args["h"] if "h" in args else args["x"]


def _fits_rows(c: Call):
    """Requirements of every GPU rung."""
    if why := unsupported_dtype(c.dtype):
        return why
    for name in ("residual", "gy", "gh"):
        t = c.args.get(name)
        if t is not None and t.dtype != c.dtype:
            return f"{name} is {t.dtype}, the normalized tensor is {c.dtype}"
    return None


def fits_triton(gpu, **args):
    c = _rows_of(args)
    limit = COLS_BACKWARD if "gy" in args else COLS
    if c.cols > limit:
        return f"a row of {c.cols} does not fit a program's registers ({limit})"
    return _fits_rows(c)


def fits_loop(gpu, **args):
    return _fits_rows(Call(args))


def _fits_cuda(shape_of, home):
    """Requirements of a rung whose rows `shape_of` distributes."""

    def fits(gpu, **args):
        c = _rows_of(args)
        reason = _fits_rows(c)
        if reason:
            return reason
        if c.parameter_dtype not in (c.dtype, torch.float32):
            return f"a parameter is {c.parameter_dtype}, neither float32 nor {c.dtype}"
        if c.weight and c.bias and args["bias"].dtype != args["weight"].dtype:
            return f"bias is {args['bias'].dtype}, weight is {args['weight'].dtype}"
        if c.rows * CLUSTER >= 2**31:
            return f"{c.rows} rows are more than the blocks of a grid"
        if shape_of(gpu, c) is None:
            return f"a row of {c.cols} does not fit {home}"
        return None

    return fits


fits_warp = _fits_cuda(lambda gpu, c: warp_forward(c, WARP_CONFIGS[0]), "a warp's registers")
fits_warp_backward = _fits_cuda(
    lambda gpu, c: warp_walk(gpu, c, WARP_CONFIGS_BACKWARD[0]), "a warp's registers"
)
fits_block = _fits_cuda(lambda gpu, c: block_forward(c, BLOCK_CONFIGS[0]), "a block's registers")
fits_block_backward = _fits_cuda(
    lambda gpu, c: block_walk(gpu, c, BLOCK_CONFIGS_BACKWARD[0]), "a block's shared memory"
)
_fits_cluster = _fits_cuda(
    lambda gpu, c: (
        cluster_forward(c, CLUSTER_CONFIGS[0]) and cluster_forward_walk(gpu, c, CLUSTER_CONFIGS[3])
    ),
    "a cluster's registers and shared memory",
)
_fits_cluster_backward = _fits_cuda(
    lambda gpu, c: cluster_walk(gpu, c, CLUSTER_CONFIGS_BACKWARD[0]), "a cluster's shared memory"
)


def fits_cluster(gpu, **args):
    return _no_clusters(gpu, args) or _fits_cluster(gpu, **args)


def fits_cluster_backward(gpu, **args):
    return _no_clusters(gpu, args) or _fits_cluster_backward(gpu, **args)


def _no_clusters(gpu, args):
    cols = _rows_of(args).cols
    if cols < 2 * CLUSTER_COLS:
        return f"a row of {cols} is too short for a cluster (minimum {2 * CLUSTER_COLS})"
    return no_clusters(gpu)


def choose_loop(gpu, **args):
    """Half a row, so that there are two iterations; in 32 bits at least 16 KiB, to fill the
    warps."""
    c = Call(args)
    block = max(next_power_of_2(c.cols) // 2, 2048 if c.itemsize == 2 else 4096)
    return {"block": min(block, 16384)}


def choose_warp(gpu, **args):
    """Several rows if a lane holds few vectors and every multiprocessor still gets 16 warps."""
    c = Call(args)
    shape, rows = warp_forward(c, WARP_CONFIGS[1])
    warps = c.rows * shape.threads // (32 * rows)
    return WARP_CONFIGS[1 if shape.vectors <= 2 and warps >= 16 * gpu.sms else 0]


def choose_block(gpu, **args):
    """Four vectors per thread up to 256 threads, then eight: with few warps the barrier is
    cheap."""
    return BLOCK_CONFIGS[0 if Call(args).vectors <= 1024 else 1]


def choose_cluster(gpu, **args):
    """Two blocks of 512 threads. Clusters iterate over longer rows, so that the next rows are
    loaded in the meantime: in 32 bits with half as many elements per thread, since these have twice
    the bytes."""
    c = Call(args)
    if c.vectors <= 4096:
        return CLUSTER_CONFIGS[0]
    return CLUSTER_CONFIGS[6 if c.itemsize == 4 else 3]


def choose_warp_backward(gpu, **args):
    """Four rows per warp at once, if the warps of every multiprocessor then make two iterations."""
    c = BackwardCall(args)
    walk = warp_walk(gpu, c, WARP_CONFIGS_BACKWARD[1])
    at_once = gpu.sms * walk.blocks * walk.threads // walk.shape.threads
    return WARP_CONFIGS_BACKWARD[1 if c.rows >= 2 * walk.rows * at_once else 0]


def choose_cluster_backward(gpu, **args):
    """8,192 columns per block, so that their weights stay in registers."""
    blocks = next_power_of_2(cdiv(BackwardCall(args).cols, THREADS * HELD))
    return CLUSTER_CONFIGS_BACKWARD[min(3, max(0, blocks.bit_length() - 2))]


def order(gpu, **args):
    c = _rows_of(args)
    row = c.cols * c.itemsize
    first = ("cuda_superset",) if row % 16 else ()
    if row <= WARP_ROW:
        return (*first, "cuda_warp", "cuda_block", "triton_row")
    if row > BLOCK_ROW:
        return (*first, "cuda_cluster", "cuda_block")
    # reading twice pays if DRAM is the limit and not arithmetic, as it is with a mean and a
    # variance
    light = c.add or not c.center or (c.itemsize == 4 and c.cols <= 8192)
    if not first and c.rows * row >= STREAM and c.cols > 1024 and light:
        return ("triton_loop", "cuda_block", "cuda_cluster")
    return (*first, "cuda_block", "cuda_cluster", "triton_row")


def order_backward(gpu, **args):
    c = _rows_of(args)
    first = ("cuda_superset",) if c.cols * c.itemsize % 16 else ()
    if c.cols <= WARP_COLS_BACKWARD:
        # in 32 bits, an access of one element is wide enough for short rows
        first = first if c.itemsize == 2 else ()
        return (*first, "cuda_warp", "cuda_block", "triton_row")
    if c.cols <= BLOCK_COLS_BACKWARD:
        return (*first, "cuda_block", "cuda_cluster", "triton_row")
    return (*first, "cuda_cluster", "cuda_block")


def bucket(**args):
    """Key of a call in the tuned table: dtypes, row length and number of rows by powers of two.
    Rows whose length is not divisible by a 16-byte vector have keys of their own, and so have
    16-bit rows with a length between powers of two if a mean is subtracted."""
    x = _normalised(args)
    cols = x.shape[-1]
    rows = x.numel() // max(cols, 1)
    weight = args["weight"]
    side = "none" if weight is None else kind(weight.dtype)
    odd = "/odd" if cols * x.itemsize % 16 else ""
    if not odd and "bias" in args and "gy" not in args and x.itemsize == 2 and cols > 1024:
        # a Triton program pads rows to a power of two, a block does not
        odd = "" if cols & (cols - 1) == 0 else "/between"
    return f"{kind(x.dtype)}/{side}{odd}/{next_power_of_2(cols)}/{next_power_of_2(rows)}"
