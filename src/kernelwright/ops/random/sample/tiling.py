"""How rungs divide a row among threads."""

from __future__ import annotations

from kernelwright.contract import rows_view
from kernelwright.contract.arithmetic import cdiv, next_power_of_2

IN_REGISTERS = 2  # cuda_cluster.cu's kInRegisters
WITH_HISTOGRAM = 3  # held_row.cuh's
IN_SHARED = 14  # vectors per thread, with up to 1,024 threads per block
MOST_BLOCKS = 8
MOST_THREADS = 1024


def aligned(logits) -> bool:
    """Whether each row begins on a 16-byte boundary."""
    rows, _, stride = rows_view(logits.shape, logits.strides)
    return logits.align == 16 and (rows == 1 or stride * logits.itemsize % 16 == 0)


def vectors_of(logits, blocks: int, threads: int) -> int:
    """Vectors per thread."""
    return max(1, cdiv(logits.shape[-1], blocks * threads * (16 // logits.itemsize)))


def needed(logits, threads: int) -> int:
    """The number of blocks of the smallest cluster that holds a row."""
    return next_power_of_2(cdiv(vectors_of(logits, 1, threads), IN_REGISTERS + IN_SHARED))


def shape_of(logits, config) -> tuple[int, int]:
    """Blocks per cluster and threads per block: the config's, or as many as hold a row."""
    threads = config["threads"]
    while needed(logits, threads) > MOST_BLOCKS:
        threads *= 2
    return max(config["blocks"], needed(logits, threads)), threads
