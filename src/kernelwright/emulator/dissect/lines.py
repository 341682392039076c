"""Maps addresses of instructions to the rung's lines, many at once."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import compiler, kernel_library, messages

#: Conditional jumps of x86-64 and aarch64.
_JUMP = re.compile(r"^\s*([0-9a-f]+):\s+(?:j(?!mp)[a-z]+|b\.[a-z]+|cbn?z|tbn?z)\s", re.M)
#: A function that reads a vector's elements one by one, where nvcc reads the vector as a whole.
_ELEMENTS = re.compile(r"kw::Vec<(\w+), (\d+)>(?: const&|::operator\[\])")
_BYTES = {"float": 4, "double": 8, "int": 4, "long": 8, "__half": 2, "__nv_bfloat16": 2}
_ASYNC = "copy_async"  # include/kw/async.cuh: one instruction on a GPU, a load and a store here


@dataclass(frozen=True)
class Place:
    """The source position of an instruction.

    Attributes:
        line: of the rung's own file, 0 if only a header's line is known.
        file: the rung's file.
        inside: "vec.cuh:24" of each header function between that line and the instruction.
        vector: bytes of the kw::Vec whose elements it touches, 8 or 16; or 0.
    """

    file: str
    line: int
    inside: tuple[str, ...] = ()
    asynchronous: bool = False
    vector: int = 0

    @property
    def text(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.inside[-1]


def places_of(
    source: Path, accesses: Sequence[int], blocks: Sequence[int], executable: Path | None = None
) -> dict[int, Place]:
    """Places of accesses by their address, and of the jumps that end basic blocks by the negated
    address of their block. Jumps inside the emulator's own functions are omitted.

    Args:
        executable: the program that has the code; without one, this process does.
    """
    jumps = _jumps(blocks, executable)
    wanted = [*accesses, *(jumps[b] for b in blocks if b in jumps)]
    if executable:
        before = messages.resolve_addresses(str(executable), {a - 1: a for a in wanted})
        frames = {a: before.get(a - 1, ()) for a in wanted}
    else:
        frames = messages.frames_of_all(wanted)
    places = {a: _place(source, frames[a]) for a in accesses}
    for block, jump in jumps.items():
        if frames[jump] and not _emulators(frames[jump][0][1]):
            places[-block] = _place(source, frames[jump])
    return places


def _emulators(path: str) -> bool:
    return Path(path).is_relative_to(compiler.HERE)


def _place(source: Path, frames: Sequence[tuple[str, str, int]]) -> Place:
    theirs = [f for f in frames if not _emulators(f[1])]
    own = next((n for _, path, n in theirs if Path(path).resolve() == source.resolve()), 0)
    inside: list[str] = []
    for _, path, n in theirs:
        if Path(path).resolve() == source.resolve():
            break
        inside.append(f"{Path(path).name}:{n}")
    asynchronous = any(_ASYNC in function for function, _, _ in frames)
    element = _ELEMENTS.search(theirs[0][0].partition("(")[2] or theirs[0][0]) if theirs else None
    vector = _BYTES.get(element[1], 0) * int(element[2]) if element else 0
    return Place(source.name, own, tuple(inside), asynchronous, vector if vector in (8, 16) else 0)


def _jumps(blocks: Iterable[int], executable: Path | None = None) -> dict[int, int]:
    """The address after the conditional jump that ends each basic block."""
    ends: dict[int, int] = {}
    by_library: dict[str, list[tuple[int, int]]] = {}
    for block in blocks:
        path, inside = (
            (str(executable), block) if executable else kernel_library.position_in_file(block)
        )
        if path:
            by_library.setdefault(path, []).append((inside, block))
    for path, those in by_library.items():
        first, last = min(those)[0], max(those)[0] + 4096
        process = subprocess.run(
            ["objdump", "-d", "--no-show-raw-insn", f"--start-address={first}",
             f"--stop-address={last}", path],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        jumps = [int(m[1], 16) for m in _JUMP.finditer(process.stdout)]
        for inside, block in those:
            jump = next((j for j in jumps if j >= inside), None)
            if jump is not None:
                ends[block] = block + jump - inside + 1  # the address after the instruction
    return ends
