"""The grid with which PyTorch's CUDA generator fills a tensor; it determines each element's
word."""

from __future__ import annotations

import torch

from kernelwright.contract import H200
from kernelwright.contract.arithmetic import cdiv

H200_THREADS = 2048  # of a multiprocessor
BLOCK = 256  # threads of a block of PyTorch's kernels
WORDS = 4  # words per call of Philox, a grid's width apart


def threads_of(n: int, device: torch.device) -> int:
    """Threads of the grid for n elements: one per element, limited to the number that fits on the
    device at once; without a GPU, on an H200."""
    if torch.device(device).type != "cuda":
        return BLOCK * min(cdiv(n, BLOCK), H200.sms * (H200_THREADS // BLOCK))
    gpu = torch.cuda.get_device_properties(device)
    resident = gpu.multi_processor_count * (gpu.max_threads_per_multi_processor // BLOCK)
    return BLOCK * min(cdiv(n, BLOCK), resident)


def calls_of(n: int, threads: int) -> int:
    """Calls of Philox that a thread makes."""
    return cdiv(n, WORDS * threads)
