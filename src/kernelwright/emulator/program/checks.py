"""The checks of a program: settings passed to its process, and its findings as text."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Iterable
from functools import cache as once
from pathlib import Path

from .. import build, checks, messages
from ..checks import CHECKS, Finding, report
from .addr2line import frames_of, modules_of

#: Also warn of barriers that some threads ended without.
EXITS = 16
PATIENCE = 10.0
#: Symbols that are not variables of a program.
_NOT_OWN = (
    "std::", "kw::", "thrust::", "cuda::", "guard variable", "typeinfo", "vtable", "VTT", "_", "."
)  # fmt: skip
#: What compilers write to know that a variable has been constructed.
_GUARD = "guardvariable"
#: A variable in constant memory that the program must write before kernels read it.
_UNSET_CONSTANT = re.compile(
    r"__constant__\s+(?!.*\bconst\b)[\w:<>, *]*?\b(\w+)\s*(?:\[[^\]]*\]\s*)*;"
)
_ALLOCATES = re.compile(
    r"cuda(?:Malloc\w*|HostAlloc)\s*(?:<[^>]*>)?\s*\(\s*(?:\([^()]*\)|reinterpret_cast<[^>]*>\s*\()?"
    r"\s*&?\s*([\w.\->\[\]]+)"
)


def settings(
    executable: Path, wanted: Iterable[str], seed: int, texts: Iterable[str]
) -> dict[str, str]:
    """Settings of a run: {name: one line}. `texts`: the program's own files."""
    unset = {name for text in texts for name in _UNSET_CONSTANT.findall(text)}
    own = sorted(_globals(executable).items())
    places = _shared(executable)
    variables = " ".join(
        f"{at} {size} {int(_GUARD in owner)}" for (at, size), (owner, _) in sorted(places.items())
    )
    return {
        "observer": str(build.observer(checks.HERE)),
        "checks": str(sum(CHECKS[c] for c in set(wanted)) | EXITS),
        "finding_bytes": str(ctypes.sizeof(report.RawFinding)),
        "variables": variables,
        "globals": " ".join(f"{at} {n} {int(name not in unset)}" for at, (n, name) in own),
        "seed": str(seed),
        "workers": "1",
        "patience": str(PATIENCE),
    }


def findings(folder: Path, executable: Path) -> list[Finding]:
    """The findings that a run has left in its folder."""
    file = folder / "findings"
    if not file.exists():
        return []
    data = file.read_bytes()
    size = ctypes.sizeof(report.RawFinding)
    raw = [report.RawFinding.from_buffer_copy(data, i) for i in range(0, len(data), size)]
    lines = [line.split("\t") for line in (folder / "calls").read_text().splitlines()]
    allocated = [(int(n), int(at, 16)) for kind, n, at, *_ in lines if kind == "memory"]
    addresses = {a for f in raw for a in (f.a.where, f.b.where) if a} | {a for _, a in allocated}
    frames = frames_of(addresses, executable, modules_of(folder))
    messages.known_frames.update(frames)
    widths = {f.region: f.bytes for f in raw}
    own = {at: name for at, (_, name) in _globals(executable).items()}
    names = names_of((at for _, at in allocated if at not in own), frames) | own
    locals_ = {int(n): name for kind, n, name, *_ in lines if kind == "local"}
    memory = {
        i: report.Memory(names[at], n, widths.get(i, 1) or 1) for i, (n, at) in enumerate(allocated)
    }
    variables = {k: name for k, (_, name) in _shared(executable).items()}
    calls: list[report.Call] = []
    for kind, *rest in lines:
        if kind == "call":
            name, *numbers = rest
            gx, gy, gz, bx, by, bz, shared, cluster, static = map(int, numbers)
            its = (shared, (bx, by, bz), (gx, gy, gz), cluster)
            calls.append(report.Call(name, memory, variables, static, *its, locals_))
    return report.format_findings(raw, calls)


def _shared(executable: Path) -> dict[tuple[int, int], tuple[str, str]]:
    """The variables in shared memory, without the gaps between arrays."""
    symbols = checks.thread_locals(executable).items()
    return {k: v for k, v in symbols if not v[1].startswith("kw_gap")}


@once
def _globals(executable: Path) -> dict[int, tuple[int, str]]:
    """{address: (bytes, name)} of a program's variables outside of functions and blocks."""
    process = subprocess.run(
        ["readelf", "-WsC", str(executable)], capture_output=True, text=True, check=True
    )
    variables: dict[int, tuple[int, str]] = {}
    for line in process.stdout.splitlines():
        fields = line.split(maxsplit=7)
        if len(fields) != 8 or fields[3] != "OBJECT" or not fields[6].isdigit():
            continue
        name, size = fields[7], int(fields[2], 0)
        if size and not name.startswith(_NOT_OWN):
            variables[int(fields[1], 16)] = size, name.rpartition("::")[2]
    return variables


def names_of(places: Iterable[int], frames: dict[int, messages.Frames]) -> dict[int, str]:
    """What the program calls memory, by the address of the call that allocated it. Of several calls
    in a line, each has the name that stands at its place."""
    lines: dict[tuple[str, int], list[int]] = {}
    for place in sorted(set(places)):
        own = [f for f in frames.get(place, ()) if not report.is_of_the_emulator(f[1])]
        lines.setdefault(own[0][1:] if own else ("", 0), []).append(place)
    names: dict[int, str] = {}
    for (path, line), those in lines.items():
        file = Path(path)
        text = file.read_text(errors="replace").splitlines() if file.is_file() else []
        named = _ALLOCATES.findall("\n".join(text[line - 1 : line + 1]))
        for i, place in enumerate(those):
            if len(those) <= len(named):
                names[place] = named[i]
            else:
                names[place] = f"the memory of {file.name}:{line}" if text else "device memory"
    return names
