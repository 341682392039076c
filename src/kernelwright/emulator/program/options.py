"""The options of a compiler's command line that decide what a program is: -D, -I, -std."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.support.errors import UsageError

#: NAME, NAME=VALUE, NAME(x)=VALUE.
_DEFINE = re.compile(r"([A-Za-z_]\w*)(\([^()]*\))?(?:=(.*))?")
_STANDARD = re.compile(r"(?:c|gnu)\+\+(\d\w)")
_OLDEST = "17"  # the emulator's headers need it
_NEWEST = ("17", "20", "2a", "23", "2b")
_OLDER = ("98", "03", "0x", "11", "1y", "14", "1z")
#: Macros by which the emulator chooses how thrust and CCCL work.
_OWN = ("THRUST_DEVICE_SYSTEM", "CCCL_DISABLE_FP8_SUPPORT", "CCCL_DISABLE_FP16_SUPPORT",
        "CCCL_DISABLE_BF16_SUPPORT", "CCCL_DISABLE_NVTX")  # fmt: skip


@dataclass(frozen=True)
class Options:
    """`defines`: (NAME or NAME(x), VALUE). `includes`: folders of headers that come before those of
    the project. `standard`: the value of g++'s option -std; empty if the program decides."""

    defines: tuple[tuple[str, str], ...] = ()
    includes: tuple[Path, ...] = ()
    standard: str = ""

    def text(self) -> str:
        """The macros as directives."""
        return "".join(f"#define {name} {value}\n" for name, value in self.defines)

    def command(self) -> list[str]:
        """As options of a compiler other than the emulator's."""
        parsed = [f"-D{name}={value}" for name, value in self.defines]
        return [*parsed, *(f"-I{p}" for p in self.includes)]

    def plain_names(self) -> list[str]:
        """Names of macros that the headers of a library may use for something else. Macros that
        configure a library have a prefix."""
        plain = (re.match(r"\w+", name) for name, _ in self.defines)
        return [m[0] for m in plain if m and "_" not in m[0] and m[0] != "NDEBUG"]


NONE = Options()


def options(defines: Iterable[str], includes: Sequence[Path], standard: str) -> Options:
    """Options as a command line gives them.

    Raises:
        UsageError: one has no meaning.
    """
    parsed: list[tuple[str, str]] = []
    for text in defines:
        m = _DEFINE.fullmatch(text)
        if m is None:
            raise UsageError(f"-D {text}: is not NAME or NAME=VALUE")
        if m[1] in _OWN:
            raise UsageError(f"-D {text}: the emulator defines {m[1]} itself")
        parsed.append((m[1] + (m[2] or ""), "1" if m[3] is None else m[3]))
    folders = tuple(p.resolve() for p in includes)
    for given, folder in zip(includes, folders, strict=True):
        if not folder.is_dir():
            raise UsageError(f"-I {given}: there is no such folder")
    return Options(tuple(parsed), folders, _standard(standard))


def _standard(text: str) -> str:
    if not text:
        return ""
    match = _STANDARD.fullmatch(text)
    if match is None or match[1] not in (*_OLDER, *_NEWEST):
        raise UsageError(f"-std {text}: choose from c++11, c++14, c++17, c++20, c++23")
    return f"gnu++{match[1] if match[1] in _NEWEST else _OLDEST}"
