"""Memory shared by the judge and the kernel's process."""

from __future__ import annotations

import base64
import mmap
import os
import tempfile
from typing import Any

import torch

ALIGN = 512


class Arena:
    """Memory mapped by both processes, with allocation and release of blocks."""

    def __init__(self, device: torch.device, size: int, fd: int = -1, largest: int = 0):
        """`fd`: the file of an arena on a CPU that this one replaces; both processes have it open.
        `largest`: bytes of the largest result; by default an eighth of the arena."""
        self.device, self.size, self.largest = device, size, largest or size // 8
        self._blocks: dict[int, int] = {}
        self._next = 0
        if device.type == "cuda":
            # larger than any block the caching allocator shares with other tensors, so that the
            # handle gives access to this memory only, not to the reference
            self.base = torch.empty(size, dtype=torch.uint8, device=device)
            self.fd = -1
        else:
            self.fd = fd if fd >= 0 else _anonymous()
            os.truncate(self.fd, size)
            self._map = mmap.mmap(self.fd, size)
            self.base = torch.frombuffer(self._map, dtype=torch.uint8)

    def told(self) -> dict[str, Any]:
        """The message with which the other process maps the arena."""
        if self.device.type == "cuda":
            parts = self.base.untyped_storage()._share_cuda_()
            return {"ipc": [_encoded(p) for p in parts]}
        return {"fd": self.fd, "size": self.size}

    def empty(self, count: int, dtype: torch.dtype, owner: list[int]) -> torch.Tensor:
        """A flat tensor in the next large enough gap after the last allocation, so that an address
        that a kernel has kept is not reused at once. `owner` gets the block."""
        size = max(1, -(-count * dtype.itemsize // ALIGN)) * ALIGN
        at = self._gap(self._next, size)
        at = self._gap(0, size) if at is None else at
        if at is None:
            raise MemoryError(f"the shared memory of {self.size >> 20} MiB is used up")
        self._blocks[at], self._next = size, at + size
        owner.append(at)
        return self.base[at : at + count * dtype.itemsize].view(dtype)

    def _gap(self, at: int, size: int) -> int | None:
        for start, taken in sorted(self._blocks.items()):
            if start - at >= size:
                break
            at = max(at, start + taken)
        return at if at + size <= self.size else None

    def release(self, blocks: list[int]) -> None:
        for at in blocks:
            del self._blocks[at]

    def describe(self, view: torch.Tensor) -> dict[str, Any]:
        """The message that lets the other process rebuild a tensor of the arena: the buffer that
        contains the tensor and the red zones around it, and the tensor's position in it."""
        lead = view.storage_offset() * view.itemsize  # an empty tensor has no address
        at = max(start for start in self._blocks if start <= lead)
        return {
            "at": at,
            "count": self._blocks[at] // view.itemsize,
            "lead": (lead - at) // view.itemsize,
            "shape": list(view.shape),
            "stride": list(view.stride()),
            "dtype": str(view.dtype).removeprefix("torch."),
        }

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _encoded(part: Any) -> Any:
    return {"b": base64.b64encode(part).decode()} if isinstance(part, bytes) else part


def _anonymous() -> int:
    """An anonymous file, whose zeros take no memory until they are written."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("kernelwright")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
