"""Builds the C files of this folder with the system's C compiler, once, and loads them."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
from functools import cache as once
from pathlib import Path
from types import ModuleType

from kernelwright.support import cache
from kernelwright.support.errors import CompileError, ToolchainError

SOURCE = Path(__file__).with_name("launcher.c")
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c11")


def compiler() -> list[str] | None:
    """The C compiler's command: CC, or cc, gcc or clang from PATH; None if there is none."""
    if os.environ.get("CC"):
        return shlex.split(os.environ["CC"])
    executable = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    return [executable] if executable else None


@once
def module(file: str = "launcher") -> ModuleType:
    """The extension module kernelwright_<file>, not yet connected to torch or the driver.

    Raises:
        ToolchainError: there is no compiler or no Python.h. CompileError: compilation fails.
    """
    name, path = f"kernelwright_{file}", _built(file)
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    extension = importlib.util.module_from_spec(spec)
    loader.exec_module(extension)
    return extension


def _built(file: str = "launcher") -> Path:
    command = compiler()
    if command is None:
        raise ToolchainError("no C compiler: install gcc or clang, or set CC")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise ToolchainError(f"no Python.h in {headers}: install Python's development headers")
    path = SOURCE.with_name(f"{file}.c")
    headers_too = sorted(path.parent.glob("cpp_extension/*.h"))
    source = "".join(p.read_text() for p in (path, *headers_too))
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    entry = cache.key([source, version.stdout, " ".join(FLAGS), suffix, str(headers)])
    name = f"kernelwright_{file}{suffix}"

    def build(work: Path) -> cache.Files:
        out = work / name
        options = [*FLAGS, f"-I{headers}", str(path), "-o", str(out)]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
        if done.returncode:
            raise CompileError(f"{command[0]} refused {path.name}:\n{done.stderr}")
        return {name: out.read_bytes()}

    return cache.get_or_build(file, entry, f"building {path.name}", build) / name
