"""Errors of the compiler and the linker in a program, with the program's lines."""

from __future__ import annotations

import re
from pathlib import Path

from .. import messages


def explain(log: str, source: Path, names: dict[Path, str]) -> str:
    """The construct that is not supported and its line, followed by the compiler's message."""
    for path, name in names.items():
        log = log.replace(name, path.name)
    missing = list(dict.fromkeys(re.findall(r"undefined reference to `([^']*)'", log)))
    if missing:
        what = ", ".join(missing[:6])
        return (
            f"{source.name} cannot be built for the CPU: the emulator has no {what}\n{log.strip()}"
        )
    first = re.search(r"^(\S[^\n:]*):(\d+):(?:\d+:)? (?:fatal )?error: (.*)$", log, re.M)
    if first is None:
        return f"{source.name} cannot be built for the CPU\n{log.strip()}"
    path, line, text = first.groups()
    return f"{Path(path).name}:{line}: {messages._construct(text)}\n{log.strip()}"
