"""The costs of a program's kernels by line, from the observer's counts of a run."""

from __future__ import annotations

import ctypes
from pathlib import Path

from .. import build, dissect
from ..dissect import Dissected, Memory
from .addr2line import frames_of, modules_of
from .checks import names_of


def settings() -> dict[str, str]:
    """Settings of a run: {name: one line}."""
    return {
        "dissector": str(build.observer(dissect.HERE)),
        "site_bytes": str(ctypes.sizeof(dissect.RawSite)),
        "step_bytes": str(ctypes.sizeof(dissect.RawStep)),
        "workers": "1",
        "patience": "0",
    }


class _Reader:
    """Reads numbers, names and structures from a file, one after another."""

    def __init__(self, data: bytes):
        self._data, self._at = data, 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self) -> int:
        return int.from_bytes(self.bytes(8), "little")

    def numbers(self, n: int) -> tuple[int, ...]:
        return tuple(self.number() for _ in range(n))

    def bytes(self, n: int) -> bytes:
        self._at += n
        return self._data[self._at - n : self._at]

    def structures(self, kind: type[ctypes.Structure]) -> list:
        n = self.number()
        return [kind.from_buffer_copy(self.bytes(ctypes.sizeof(kind))) for _ in range(n)]


def dissected(folder: Path, source: Path, executable: Path) -> list[Dissected]:
    """The first launch of each kernel, from the files that a run has left in its folder."""
    file = folder / "dissected"
    if not file.exists():
        return []
    reader, launches = _Reader(file.read_bytes()), list[Dissected]()
    while reader.more():
        name = reader.bytes(reader.number()).decode()
        gx, gy, gz, bx, by, bz = reader.numbers(6)
        rows = [reader.numbers(4) for _ in range(reader.number())]
        frames = frames_of([row[0] for row in rows], executable, modules_of(folder))
        names = names_of((row[0] for row in rows), frames)
        memory = tuple(Memory(names[row[0]], *row[1:]) for row in rows)
        sites, steps = reader.structures(dissect.RawSite), reader.structures(dissect.RawStep)
        its = (name, source, (gx, gy, gz), (bx, by, bz))
        launches.append(dissect.dissected(*its, memory, sites, steps, executable))
    return launches
