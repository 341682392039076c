"""The end of a CUDA graph's capture that failed."""

from __future__ import annotations

from typing import Any

import torch


def end_recording(pool: Any) -> None:
    """End the allocator's recording into a graph's pool, if the capture that failed has not: it
    would go on, and no cached memory could be freed."""
    try:
        torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
    except RuntimeError as e:
        if "not currently recording" not in str(e):
            raise
