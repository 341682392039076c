"""Errors of the compiler and the linker in a program, with the program's lines."""

from __future__ import annotations

import re
from pathlib import Path

from .. import messages


def missing_names(log: str) -> set[str]:
    """The names of functions and variables that the linker has not found, without namespaces,
    template arguments and parameters: `void n::f<int>(float)` is f."""
    undefined = re.findall(r"undefined reference to `([^'(<]*)", log)
    return {re.split(r"\W+", name.strip())[-1] for name in undefined}


def functions_with_errors(log: str) -> set[str]:
    """The names of the functions in which the compiler has found errors."""
    quotes = "\u2018\u2019'`"
    form = (
        rf"In (?:function|instantiation of) [{quotes}](?:[^{quotes}(]*?[\s*&])?(\w+)(?:<[^(]*>)?\("
    )
    return set(re.findall(form, log))


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
    header = re.search(r"(\S+): No such file or directory|'(\S+)' file not found", text)
    if header:
        what = f"there is no header {header[1] or header[2]}, of the program or of the emulator"
        listed = 'docs: "Whole CUDA programs", "What is supported"'
        return f"{Path(path).name}:{line}: {what} ({listed})\n{log.strip()}"
    return f"{Path(path).name}:{line}: {messages.unsupported_construct(text)}\n{log.strip()}"
