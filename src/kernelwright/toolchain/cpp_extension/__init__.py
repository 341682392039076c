"""The extension in C++: a call from its arguments to its launches, and its node for autograd.

It is compiled against PyTorch's headers without CUDA's, which takes 10 to 20 seconds. A process
that launches its first kernel therefore starts another process that compiles the extension, and
uses Python until it is ready. Later processes load it from the cache. If it cannot be built,
`status` says why, and calls stay in Python.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from functools import cache as once
from pathlib import Path
from types import ModuleType

import torch

from kernelwright.support import cache
from kernelwright.support.errors import CompileError, ToolchainError

FOLDER = Path(__file__).parent
FLAGS = ("-O2", "-fPIC", "-shared", "-std=c++20", "-w")
_NAME, _REFUSED = "kernelwright_calls", "refused.txt"

#: The extension module, once it can be used.
loaded: ModuleType | None = None
_users: list[Callable[[ModuleType], None]] = []
_order = threading.RLock()  # users are called in the order of their requests
_problem: str | None = None


def when_loaded(user: Callable[[ModuleType], None]) -> None:
    """Call `user` with the module: now, or as soon as it is loaded."""
    with _order:
        if loaded is None:
            _users.append(user)
        else:
            user(loaded)


@once
def start() -> None:
    """Load the module without waiting for it: from the cache, or once another process has built
    it."""
    threading.Thread(target=_load_or_say, name="kernelwright-calls", daemon=True).start()


def load() -> None:
    """Build the module if it is not in the cache, load it and pass it to its users.

    Raises:
        ToolchainError: there is no compiler, or the headers are missing. CompileError: compilation
            fails, now or in an earlier process.
    """
    _use(build())


def build() -> Path:
    """The module's file, built now if it is not in the cache.

    Raises:
        ToolchainError, CompileError: as `load`.
    """
    entry, command = _recipe()

    def made(work: Path) -> cache.Files:
        out = work / _file()
        done = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True)
        if done.returncode:  # cached, so that other processes do not retry
            return {
                _REFUSED: f"{command[0]} refused cpp_extension/module.cpp:\n{done.stderr}".encode()
            }
        return {_file(): out.read_bytes()}

    return _checked(cache.get_or_build("calls", entry, "building cpp_extension/module.cpp", made))


def status() -> str:
    """The language in which calls of operators run on a GPU, and why."""
    if loaded is not None:
        return "C++"
    if _problem is not None:
        return f"Python: {_problem}"
    try:
        found = cache.find("calls", _recipe()[0])
        if found is not None:
            _checked(found)
        return "Python, until C++ is built" if found is None else "C++"
    except (ToolchainError, CompileError) as e:
        return f"Python: {e}"


def compiler() -> list[str] | None:
    """The C++ compiler's command: CXX, or c++, g++ or clang++ from PATH, or None."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    found = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    return [found] if found else None


def _load_or_say() -> None:
    global _problem
    try:
        found = cache.find("calls", _recipe()[0])
        if found is None:
            _build_elsewhere()
        load()
    except (ToolchainError, CompileError, OSError, ImportError) as e:
        _problem = str(e)


def _build_elsewhere() -> None:
    """Build in another process, which continues if this one ends."""
    paths = [str(FOLDER.parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "CUDA_VISIBLE_DEVICES": "",
    }
    subprocess.run(
        [sys.executable, "-m", __name__],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _recipe() -> tuple[str, list[str]]:
    """(the module's key in the cache, the command that builds it without `-o`)."""
    command = compiler()
    if command is None:
        raise ToolchainError("no C++ compiler: install g++ or clang++, or set CXX")
    python, pytorch = Path(sysconfig.get_path("include")), Path(torch.__file__).parent
    needed = python / "Python.h", pytorch / "include" / "torch" / "csrc" / "autograd" / "function.h"
    for header in needed:
        if not header.exists():
            raise ToolchainError(f"no {header}")
    cuda = ("torch_cuda",) if torch.version.cuda else ()
    options = [
        *FLAGS,
        *(f"-DKW_CUDA={v}" for v in cuda and (1,)),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{p}" for p in (pytorch / "include", python)),
        str(FOLDER / "module.cpp"),
        f"-L{pytorch / 'lib'}",
        *(f"-l{name}" for name in ("torch_python", "torch_cpu", "c10", *cuda)),
    ]
    sources = sorted([*FOLDER.glob("*.h"), FOLDER / "module.cpp"])
    parts = [torch.__version__, _version(command), _file(), *options]
    return cache.key([*(p.read_bytes() for p in sources), *parts]), [*command, *options]


def _version(command: list[str]) -> str:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError as e:
        raise ToolchainError(f"no C++ compiler: {command[0]}: {e.strerror}") from None
    if done.returncode:
        raise ToolchainError(f"no C++ compiler: {command[0]} --version: {done.stderr}")
    return done.stdout


def _file() -> str:
    return f"{_NAME}{sysconfig.get_config_var('EXT_SUFFIX')}"


def _checked(entry: Path) -> Path:
    refused = entry / _REFUSED
    if refused.exists():
        raise CompileError(refused.read_text())
    return entry / _file()


def _use(path: Path) -> None:
    global loaded
    from kernelwright.toolchain import driver

    loader = importlib.machinery.ExtensionFileLoader(_NAME, str(path))
    spec = importlib.util.spec_from_file_location(_NAME, path, loader=loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    made.set_launcher(driver.launchers().interface)
    with _order:
        loaded = made
        while _users:
            _users.pop(0)(made)
