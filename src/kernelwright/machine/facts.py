"""Facts of the devices at hand."""

from __future__ import annotations

from functools import cache

import torch

from kernelwright.contract import Gpu


def gpu_of(device: torch.device | None) -> Gpu | None:
    """The GPU that holds a device's tensors, or None for a CPU."""
    if device is None or device.type != "cuda":
        return None
    return _gpu(torch.cuda.current_device() if device.index is None else device.index)


@cache
def _gpu(index: int) -> Gpu:
    p = torch.cuda.get_device_properties(index)
    return Gpu(
        (p.major, p.minor),
        p.multi_processor_count,
        p.shared_memory_per_block_optin,
        p.L2_cache_size,
        p.name,
    )
