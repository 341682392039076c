"""Workspace: one allocation for all workspace tensors of a plan.

Some workspace must be zero when a kernel starts and is left zero by it, so that no call needs a
memset. Calls on one stream run one after another and share this workspace. Captured calls cannot
share it, because a graph may be replayed on any stream, concurrently with other work. Each capture
therefore gets its own part of memory that was zeroed before the capture began. This memory is kept
until the process ends, since the graph may live that long.
"""

from __future__ import annotations

import torch

from kernelwright.contract import TensorSpec
from kernelwright.support.errors import capturing

from . import driver

_CHUNK, _MOST = 1 << 20, 16 << 20  # bytes kept ready for captures on each device
_ALIGNMENT = 256


def places(specs: dict[str, TensorSpec]) -> tuple[dict[str, int], int]:
    """(offset of each tensor, total bytes)."""
    offsets, size = {}, 0
    for name, spec in specs.items():
        offsets[name] = size
        size += -(-spec.nbytes // _ALIGNMENT) * _ALIGNMENT
    return offsets, size


def kept_ready(size: int) -> int:
    """Bytes reserved for captures of a plan: for sixteen captures if its workspace is small, for
    one if it is large."""
    return max(size, min(16 * size, _MOST), _CHUNK)


class _Arena:
    """Zeroed memory for captures. Grows when a plan is bound outside of a capture."""

    def __init__(self, device: torch.device):
        self.device, self.chunks, self.free, self.next = device, [], 0, 0

    def reserve(self, size: int) -> None:
        if not capturing() and self.free < max(size, _CHUNK // 2):
            chunk = torch.zeros(kept_ready(size), dtype=torch.uint8, device=self.device)
            torch.cuda.current_stream(self.device).synchronize()  # zero for all streams
            self.chunks.append(chunk)
            self.next, self.free = chunk.data_ptr(), chunk.numel()

    def take(self, size: int) -> int | None:
        if size > self.free:
            return None
        place = self.next
        self.next, self.free = self.next + size, self.free - size
        return place


_arenas: dict[int, _Arena] = {}


class ZeroScratch:
    """The address of a plan's zeroed workspace on a stream."""

    def __init__(self, size: int, device: torch.device):
        self.size, self.device = size, device
        self.known: dict[tuple[int, int], int] = {}
        self.kept: list[torch.Tensor] = []
        self.capture_id = driver.launchers().capture_id
        assert device.index is not None
        self.arena = _arenas.setdefault(device.index, _Arena(device))
        self.arena.reserve(self.size)

    def __call__(self, stream: int) -> int:
        capture = self.capture_id(stream)
        address = self.known.get((stream, capture))
        return address if address is not None else self._make(stream, capture)

    def _make(self, stream: int, capture: int) -> int:
        start = self.arena.take(self.size) if capture else None
        if start is None:
            # Outside of captures, the memory is zeroed once, in the stream's order. In a capture
            # whose arena is used up, a memset is added to the graph.
            fresh = torch.zeros(self.size, dtype=torch.uint8, device=self.device)
            self.kept.append(fresh)
            start = fresh.data_ptr()
        self.known[stream, capture] = start
        return start


class ZeroScratches:
    """The zeroed workspace of an open plan: one for all sizes up to the same power of two."""

    def __init__(self, device: torch.device):
        self._device = device
        self._known: dict[int, ZeroScratch] = {}

    def __call__(self, size: int) -> ZeroScratch:
        room = 1 << (size - 1).bit_length()
        if room not in self._known:
            self._known[room] = ZeroScratch(room, self._device)
        return self._known[room]
