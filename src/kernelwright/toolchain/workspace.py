"""Workspace: where each tensor of it lies in one allocation.

Some of it kernels find zero and leave zero, so that no call pays for a memset.
Calls of one stream run one after the other and share it. A captured call must not: its graph may
be replayed on any stream, beside anything. So each capture gets a place of its own, out of memory
that was zeroed before the capture began and that lives as long as the process, as the graph may.
"""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Scratch, TensorSpec

from . import driver

_CHUNK, _MOST = 1 << 20, 16 << 20  # bytes kept ready for captures on each device
_ALIGNMENT = 256


def places(specs: dict[str, TensorSpec]) -> tuple[dict[str, int], int]:
    """(offset of each tensor, bytes of all)."""
    offsets, size = {}, 0
    for name, spec in specs.items():
        offsets[name] = size
        size += math.ceil(spec.nbytes / _ALIGNMENT) * _ALIGNMENT
    return offsets, size


def kept_ready(size: int) -> int:
    """Bytes for captures of a plan of so many: for sixteen of small ones, for one of large ones."""
    return max(size, min(16 * size, _MOST), _CHUNK)


class _Arena:
    """Zeroed memory for captures. Grows when a plan is bound, never during a capture."""

    def __init__(self, device: torch.device):
        self.device, self.chunks, self.free, self.next = device, [], 0, 0

    def reserve(self, size: int) -> None:
        if self.free < max(size, _CHUNK // 2):
            chunk = torch.zeros(kept_ready(size), dtype=torch.uint8, device=self.device)
            torch.cuda.current_stream(self.device).synchronize()  # zero for every stream
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
    """The addresses of a plan's zeroed workspace, for a stream."""

    def __init__(self, scratch: dict[str, Scratch], device: torch.device):
        offsets, self.size = places({n: s.spec for n, s in scratch.items()})
        self.offsets, self.device = tuple(offsets.values()), device
        self.known: dict[tuple[int, int], tuple[int, ...]] = {}
        self.kept: list[torch.Tensor] = []
        self.capture_id = driver.launchers().capture_id
        assert device.index is not None
        self.arena = _arenas.setdefault(device.index, _Arena(device))
        self.arena.reserve(self.size)

    def __call__(self, stream: int) -> tuple[int, ...]:
        capture = self.capture_id(stream)
        found = self.known.get((stream, capture))
        return found if found is not None else self._make(stream, capture)

    def _make(self, stream: int, capture: int) -> tuple[int, ...]:
        start = self.arena.take(self.size) if capture else None
        if start is None:
            # Outside of captures: zeroed once, in the stream's order. In a capture whose arena is
            # used up: a memset in the graph.
            fresh = torch.zeros(self.size, dtype=torch.uint8, device=self.device)
            self.kept.append(fresh)
            start = fresh.data_ptr()
        self.known[stream, capture] = tuple(start + o for o in self.offsets)
        return self.known[stream, capture]
