"""A compiler's refusal, and a runtime's complaint, in terms of the rung."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from functools import cache as once
from pathlib import Path

from . import compiler

HEADERS = ", ".join(
    sorted(p.name for p in (compiler.HERE / "include").glob("*.h") if p.name != "kw_emulator.h")
)


def explain(log: str, source: Path, unit: Path) -> str:
    """What the emulator does not know, and where, in front of the compiler's words."""
    first = re.search(r"^(\S[^\n:]*):(\d+):\d+: (?:fatal )?error: (.*)$", log, re.M)
    if first is None:
        unknown = re.search(r"undefined reference to `([^']*)'", log)
        what = f"{unknown[1]} is declared and nowhere defined" if unknown else "it does not link"
        return f"{source.name} cannot be built for the CPU: {what}\n{log.strip()}"
    path, line, text = first.groups()
    place = f"{Path(path).name}:{line}"
    if Path(path) == unit:
        entry = unit.read_text().splitlines()[int(line) - 1]
        place = f"{source.name}, {entry.partition(', ')[2].rstrip(')')}"
    return f"{place}: {_construct(text)}\n{log.strip()}"


def _construct(error: str) -> str:
    if "kw_inline_ptx_has_no_cpu_body" in error:
        return (
            "inline PTX runs on GPUs only; give the function that holds it a CPU body too: "
            "#ifdef __CUDA_ARCH__ ... #else"
        )
    header = re.search(r"(\S+): No such file or directory|'(\S+)' file not found", error)
    if header:
        return f"the emulator has no header <{header[1] or header[2]}>; it has {HEADERS}"
    gnu = r"'([\w:]+)' (?:was not declared|has not been declared|is not a member)"
    clang = r"use of undeclared identifier '([\w:]+)'|no (?:member|type) named '(\w+)'"
    name = re.search(f"{gnu}|{clang}", error)
    if name:
        return f"the emulator does not know {next(filter(None, name.groups()))}"
    return error


def with_lines(message: str) -> str:
    """A runtime's message with "@0x7f...@" as "cuda_warp.cu:12"."""
    return re.sub(r"@(0x[0-9a-f]+)@", lambda m: line_of(int(m[1], 16)), message)


def line_of(address: int) -> str:
    """The line that holds the call before a return address: the innermost that is not the
    emulator's, and what it was inlined into."""
    frames = [f for f in frames_of(address) if not Path(f[1]).is_relative_to(compiler.HERE)]
    if not frames:
        return hex(address)
    places = [f"{Path(path).name}:{line}" for _, path, line in frames]
    return ", called from ".join(dict.fromkeys(places))


Frames = tuple[tuple[str, str, int], ...]
_known: dict[int, Frames] = {}


def frames_of(address: int) -> Frames:
    """(function, file, line) of the code before a return address, innermost first."""
    return frames_of_all([address])[address]


def frames_of_all(addresses: Iterable[int]) -> dict[int, Frames]:
    """The same for many addresses, one call of addr2line a library."""
    wanted = dict.fromkeys(addresses)
    by_library: dict[str, dict[int, int]] = {}
    for address in wanted:
        if address not in _known:
            path, inside = in_file(address)
            _known[address] = ()
            if path:
                by_library.setdefault(path, {})[inside - 1] = address
    for path, places in by_library.items():
        for inside, frames in _addr2line(path, places).items():
            _known[places[inside]] = frames
    return {address: _known[address] for address in wanted}


def in_file(address: int) -> tuple[str, int]:
    """The library that holds an address, and the address that its file gives to it."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, offset, _, _, *path = line.split(maxsplit=5)
        start, end = (int(x, 16) for x in span.split("-"))
        if path and start <= address < end:
            return path[0], _virtual(path[0], address - start + int(offset, 16))
    return "", 0


@once
def _segments(path: str) -> tuple[tuple[int, int, int], ...]:
    """(offset in the file, address, bytes) of what a library's file loads."""
    data = Path(path).read_bytes()
    headers, size, count = (
        int.from_bytes(data[32:40], "little"),
        int.from_bytes(data[54:56], "little"),
        int.from_bytes(data[56:58], "little"),
    )
    found = []
    for at in range(headers, headers + size * count, size):
        if int.from_bytes(data[at : at + 4], "little") == 1:
            offset, address, _, length = (
                int.from_bytes(data[at + k : at + k + 8], "little") for k in (8, 16, 24, 32)
            )
            found.append((offset, address, length))
    return tuple(found)


def _virtual(path: str, offset: int) -> int:
    """The address that a library's file gives to what lies at an offset of it."""
    for begin, address, length in _segments(path):
        if begin <= offset < begin + length:
            return offset - begin + address
    return offset


def _addr2line(path: str, addresses: Iterable[int]) -> dict[int, Frames]:
    done = subprocess.run(
        ["addr2line", "-e", path, "-f", "-C", "-i", "-a"],
        input="".join(f"{a:#x}\n" for a in addresses),
        capture_output=True,
        text=True,
    )
    frames: dict[int, list[tuple[str, str, int]]] = {}
    lines = iter(done.stdout.splitlines())
    at = 0
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            at = int(line, 16)
            frames[at] = []
            continue
        file, _, number = next(lines).rpartition(":")
        digits = re.match(r"\d+", number)
        if digits and file != "??":
            frames[at].append((line, file, int(digits[0])))
    return {at: tuple(found) for at, found in frames.items()}
