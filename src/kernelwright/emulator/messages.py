"""Translates compiler and run-time errors into messages with the rung's lines."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import compiler, kernel_library

HEADERS = ", ".join(
    sorted(p.name for p in (compiler.HERE / "include").glob("*.h") if p.name != "kw_emulator.h")
)


def explain(log: str, source: Path, unit: Path) -> str:
    """The unsupported construct and its line, followed by the compiler's message."""
    first = re.search(r"^(\S[^\n:]*):(\d+):\d+: (?:fatal )?error: (.*)$", log, re.M)
    if first is None:
        unknown = re.search(r"undefined reference to `([^']*)'", log)
        what = f"{unknown[1]} is declared but not defined" if unknown else "it does not link"
        return f"{source.name} cannot be built for the CPU: {what}\n{log.strip()}"
    path, line, text = first.groups()
    place = f"{Path(path).name}:{line}"
    if Path(path) == unit:
        entry = unit.read_text().splitlines()[int(line) - 1]
        place = f"{source.name}, {entry.partition(', ')[2].rstrip(')')}"
    return f"{place}: {unsupported_construct(text)}\n{log.strip()}"


def unsupported_construct(error: str) -> str:
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
    """A message of `kernel_library.launch` with "@file@0x7f@" as "cuda_warp.cu:12"."""

    def line(match: re.Match[str]) -> str:
        inside = int(match[2], 16) - 1
        return format_frames(resolve_addresses(match[1], [inside]).get(inside, ()), match[2])

    return re.sub(r"@([^@\n]*)@(0x[0-9a-f]+)@", line, message)


def line_of(address: int) -> str:
    """The line of the call before a return address: the innermost one outside the emulator, and the
    lines that it was inlined into."""
    return format_frames(frames_of(address), hex(address))


def format_frames(frames: Frames, address: str) -> str:
    places = [
        f"{Path(path).name}:{line}"
        for _, path, line in frames
        if not Path(path).is_relative_to(compiler.HERE) and Path(path).name != compiler.UNIT
    ]
    return ", called from ".join(dict.fromkeys(places)) or address


Frames = tuple[tuple[str, str, int], ...]
known_frames: dict[int, Frames] = {}


def frames_of(address: int) -> Frames:
    """(function, file, line) of the code before a return address, innermost first."""
    return frames_of_all([address])[address]


def frames_of_all(addresses: Iterable[int]) -> dict[int, Frames]:
    """The same for many addresses, with one call of addr2line per library."""
    wanted = dict.fromkeys(addresses)
    by_library: dict[str, dict[int, int]] = {}
    for address in wanted:
        if address not in known_frames:
            path, inside = kernel_library.position_in_file(address)
            known_frames[address] = ()
            if path:
                by_library.setdefault(path, {})[inside - 1] = address
    for path, places in by_library.items():
        for inside, frames in resolve_addresses(path, places).items():
            known_frames[places[inside]] = frames
    return {address: known_frames[address] for address in wanted}


def resolve_addresses(path: str, addresses: Iterable[int]) -> dict[int, Frames]:
    process = subprocess.run(
        ["addr2line", "-e", path, "-f", "-C", "-i", "-a"],
        input="".join(f"{a:#x}\n" for a in addresses),
        capture_output=True,
        text=True,
    )
    frames: dict[int, list[tuple[str, str, int]]] = {}
    lines = iter(process.stdout.splitlines())
    at = 0
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            at = int(line, 16)
            frames[at] = []
            continue
        file, _, number = next(lines).rpartition(":")
        digits = re.match(r"\d+", number)
        if digits and file != "??":
            # a header included as "../name.cuh" keeps the dots in its path
            frames[at].append((line, os.path.normpath(file), int(digits[0])))
    return {at: tuple(each) for at, each in frames.items()}
