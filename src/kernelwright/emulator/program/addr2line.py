"""Converts addresses in a program to its lines. An executable's addresses are those of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .. import messages

Frames = messages.Frames


#: Of a module that a program has loaded: its path, and where it begins and ends.
Module = tuple[str, int, int]


def modules_of(folder: Path) -> list[Module]:
    """The modules that a run has loaded, as it notes them in its folder."""
    file = folder / "modules"
    lines = file.read_text().splitlines() if file.exists() else []
    parts = (line.split(" ", 2) for line in lines)
    return [(path, int(first, 16), int(end, 16)) for first, end, path in parts]


def frames_of(
    addresses: Iterable[int], executable: Path, modules: Iterable[Module] = ()
) -> dict[int, Frames]:
    """(function, file, line) of the code before each return address, innermost first."""
    left = dict.fromkeys(addresses)
    frames: dict[int, Frames] = {}
    for path, first, end in [*modules, (str(executable), 0, 1 << 64)]:
        own = {a - 1 - first: a for a in left if first < a <= end and a not in frames}
        resolved = messages.resolve_addresses(path, own) if own else {}
        frames |= {address: resolved.get(before, ()) for before, address in own.items()}
    return frames


def with_lines(text: str, executable: Path) -> str:
    """A message in which "@0x401234@", and "@module.so@0x1234@", become "file.cu:12"."""
    text = re.sub(r"@/[^@\s]*@0x[0-9a-f]+@", lambda m: messages.with_lines(m[0]), text)
    addresses = [int(a, 16) for a in re.findall(r"@(0x[0-9a-f]+)@", text)]
    frames = frames_of(addresses, executable)
    return re.sub(
        r"@(0x[0-9a-f]+)@",
        lambda m: messages.format_frames(frames[int(m[1], 16)], m[1]),
        text,
    )
