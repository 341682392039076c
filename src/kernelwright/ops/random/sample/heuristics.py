"""Which rung handles a call, and its launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, no_clusters, unsupported_dtype

from .tiling import IN_REGISTERS, IN_SHARED, MOST_BLOCKS, MOST_THREADS, WITH_HISTOGRAM, needed

COLUMNS = 2**21 - 1  # capacity of a field of a packed count
ROWS = 2**31 // MOST_BLOCKS - 1

HELD = IN_SHARED * MOST_THREADS * 16  # maximum bytes of a block's vectors
# The same of cuda_histogram, with 2,048 counts twice and 2 KiB for exchanges.
COUNTED = (IN_REGISTERS + IN_SHARED - WITH_HISTOGRAM) * MOST_THREADS * 16 + 2 * 8192 + 2048

ROW = ({"threads": 128}, {"threads": 1024})
CLUSTERS = (
    {"blocks": 2, "threads": 128},
    {"blocks": 2, "threads": 1024},
    {"blocks": 4, "threads": 1024},
    {"blocks": 8, "threads": 1024},
    {"blocks": 1, "threads": 1024},
)


def _rows(logits) -> int:
    return logits.numel() // max(logits.shape[-1], 1)


def fits(gpu, logits, state, each, temperature, top_k, top_p, min_p, filtered):
    if logits.shape[-1] > COLUMNS:
        return f"rows of {logits.shape[-1]} logits: counts have 21 bits"
    if _rows(logits) > ROWS:
        return f"{_rows(logits)} rows are more than a grid has blocks for"
    if each is not None and not each.is_contiguous():
        return "each: not contiguous"
    return unsupported_dtype(logits.dtype, "logits")


def fits_gumbel(gpu, logits, filtered, **rest):
    if filtered:
        return "filtered: a filter may apply"
    return fits(gpu, logits=logits, filtered=filtered, **rest)


def fits_cluster(gpu, logits, **rest):
    if needed(logits, MOST_THREADS) > MOST_BLOCKS:
        return f"rows of {logits.shape[-1]} logits do not fit {MOST_BLOCKS} multiprocessors"
    if gpu.shared_per_block < HELD:
        return f"a block has {gpu.shared_per_block} bytes of shared memory, {HELD} are needed"
    return no_clusters(gpu) or fits(gpu, logits=logits, **rest)


def fits_histogram(gpu, **specs):
    if gpu.shared_per_block < COUNTED:
        return f"a block has {gpu.shared_per_block} bytes of shared memory, {COUNTED} are needed"
    return fits_cluster(gpu, **specs)


def choose_row(gpu, logits, **rest):
    """As many threads as have a few vectors each."""
    return ROW[0] if logits.shape[-1] <= 4096 else ROW[1]


def choose_cluster(gpu, logits, **rest):
    """As many blocks per row as the GPU holds at once, if each thread still has a vector."""
    vectors = logits.shape[-1] * logits.itemsize // 16
    for config in (CLUSTERS[3], CLUSTERS[2], CLUSTERS[1]):
        filled = vectors >= config["threads"] * config["blocks"]
        if filled and _rows(logits) * config["blocks"] <= gpu.sms:
            return config
    return CLUSTERS[0] if vectors <= 2 * CLUSTERS[0]["threads"] else CLUSTERS[4]


def order(gpu, **specs):
    """cuda_histogram depends least on the values of the filters, which the host does not read."""
    return "cuda_histogram", "cuda_shared_best", "cuda_cluster", "cuda_block"


def bucket(logits, filtered, **rest):
    """Key of a call in the tuned table: dtype, then sizes by powers of two."""
    kept = "" if filtered else "/all"
    return f"{kind(logits.dtype)}{kept}/{log2(logits.shape[-1])}/{log2(_rows(logits))}"
