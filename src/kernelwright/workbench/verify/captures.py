"""Cleanup after a failed capture of a CUDA graph."""

from __future__ import annotations

from typing import Any

import torch


def end_recording(pool: Any) -> None:
    """End the allocator's recording into a graph's pool if a failed capture has not ended it;
    otherwise it would continue, and no cached memory could be freed."""
    try:
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
    except RuntimeError as e:
        if "not currently recording" not in str(e):
            raise
