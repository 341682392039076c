"""The state of PyTorch's CUDA generator, for kernels that draw the same numbers as PyTorch."""

from __future__ import annotations

import threading

import torch

_lock = threading.Lock()  # reading an offset and advancing it are two calls


def draw_state(device: torch.device, generator: torch.Generator | None, calls: int) -> torch.Tensor:
    """(seed, offset) of the generator, int64 on the device; it advances by `calls` calls of Philox.

    While a CUDA graph is captured or torch.compile traces, a generator does not reveal its state,
    and a CPU generator has a different one. Then PyTorch draws both numbers from it, so that they
    differ in each replay.

    Raises:
        ValueError: generator is of another kind of device.
    """
    if generator is not None and generator.device.type != device.type:
        raise ValueError(f"generator: is of {generator.device}, the result is on {device}")
    on_gpu = device.type == "cuda" and not torch.compiler.is_compiling()
    if not on_gpu or torch.cuda.is_current_stream_capturing():
        return torch.randint(2**63 - 1, (2,), device=device, generator=generator)
    if generator is None:
        torch.cuda.init()
        index = torch.cuda.current_device() if device.index is None else device.index
        generator = torch.cuda.default_generators[index]
    with _lock:
        offset = generator.get_offset()
        generator.set_offset(offset + 4 * calls)
    seed = generator.initial_seed()
    signed = seed - 2**64 if seed >= 2**63 else seed
    state = torch.tensor((signed, offset), pin_memory=True)
    return state.to(device, non_blocking=True)
