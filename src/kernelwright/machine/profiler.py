"""PyTorch's profiler on a GPU."""

from __future__ import annotations

from functools import cache

import torch


@cache
def prepare() -> None:
    """Profile one small kernel and drop the result.

    CUPTI, which reports a GPU's kernels, starts with the first session of a process. That is kept
    out of the session that counts; whether it can lose kernels is not known.
    """
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]):
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
