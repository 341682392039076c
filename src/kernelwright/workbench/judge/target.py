"""The function to judge, as given by the user, and the command that judges it again."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.contract import Ladder
from kernelwright.support.errors import UsageError

from .spec import Subject

LAUNCHED = (
    "A launch file has `def launch(x, ...)`: it returns grid, block and args; "
    "python -m pydoc kernelwright.workbench.judge.launch_file describes it"
)


@dataclass(frozen=True)
class Target:
    """A function in a file: "my_kernel.py:fn"."""

    path: Path
    name: str

    @staticmethod
    def of(text: str) -> Target:
        """Raises UsageError, with the format of targets."""
        path, colon, name = text.rpartition(":")
        if not colon or not name:
            raise UsageError(f"{text}: name the function as well, {text.rstrip(':')}:my_function")
        if not Path(path).is_file():
            raise UsageError(f"{text}: there is no file {path}")
        return Target(Path(path).resolve(), name)


def launchable(asked: Target, launch: Path | None) -> None:
    """Raises UsageError if the launch file or the kernel is missing, or is not needed."""
    cuda = asked.path.suffix == ".cu"
    if launch and not launch.is_file():
        raise UsageError(f"--launch: there is no file {launch}")
    if launch and not cuda:
        raise UsageError(
            f"--launch: {asked.path.name} is not a .cu file; a Python function needs no launch file"
        )
    text = asked.path.read_text("utf-8") if cuda else ""
    if cuda and launch is None and not _is_host(text, asked.name):
        raise UsageError(f"--launch: {asked.path.name} needs a launch file. {LAUNCHED}")
    if cuda and not re.search(rf"\b{re.escape(asked.name)}\b", text):
        there = re.findall(r"__global__[^;{]*?\b(\w+)\s*\(", text)
        kernels = [n for n in there if n != "__launch_bounds__"]
        has = f"; it has {', '.join(kernels)}" if kernels else ""
        raise UsageError(f"{asked.path.name} has no kernel {asked.name!r}{has}")


def _is_host(text: str, name: str) -> bool:
    """Whether a function of a .cu takes or returns PyTorch's tensors, so that it is host code."""
    match = re.search(rf"^[^\n]*\b{re.escape(name)}\s*\([^)]*\)\s*\{{", text, re.M)
    return bool(match and re.search(r"\b(torch|at)::Tensor\b", match[0]))


def command(
    target: str,
    what: Any,
    autograd: bool,
    launch: Path | None = None,
    deterministic: bool = True,
    strict: bool = False,
) -> str:
    """The command that judges the kernel again."""
    name = what.name if isinstance(what, (Ladder, Subject)) else str(what)
    words = ["kernelwright", "judge", target, "--as", name]
    words += ["--launch", str(launch)] if launch else []
    words += ["--autograd"] if autograd else []
    words += ["--strict"] if strict else []
    return shlex.join(words if deterministic else [*words, "--nondeterministic"])
