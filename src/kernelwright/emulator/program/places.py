"""Converts addresses in a program to its lines. An executable's addresses are those of its file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .. import messages

Frames = messages.Frames


def frames_of(addresses: Iterable[int], executable: Path) -> dict[int, Frames]:
    """(function, file, line) of the code before each return address, innermost first."""
    wanted = {a - 1: a for a in dict.fromkeys(addresses)}
    found = messages._addr2line(str(executable), wanted)
    return {address: found.get(before, ()) for before, address in wanted.items()}


def with_lines(text: str, executable: Path) -> str:
    """A message in which "@0x401234@" becomes "file.cu:12"."""
    addresses = [int(a, 16) for a in re.findall(r"@(0x[0-9a-f]+)@", text)]
    frames = frames_of(addresses, executable)
    return re.sub(
        r"@(0x[0-9a-f]+)@",
        lambda m: messages._said(frames[int(m[1], 16)], m[1]),
        text,
    )
