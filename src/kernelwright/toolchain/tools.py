"""Finds and runs NVIDIA's command-line tools: ptxas, nvdisasm, cuobjdump."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from kernelwright.support.cuda_headers import pathfinder
from kernelwright.support.errors import CompileError, ToolchainError


@cache
def find(name: str) -> tuple[Path, tuple[int, int]]:
    """The newest tool of that name, from the CUDA toolkit or a wheel, and its CUDA version.

    Raises:
        ToolchainError: there is none.
    """
    versions = [(version, path) for path in _candidates(name) if (version := _version(path))]
    if not versions:
        raise ToolchainError(
            f"{name} is not on this machine: pip install triton, or install the CUDA toolkit"
        )
    version, path = max(versions)
    return path, version


def locate(name: str) -> Path:
    """A tool of any version: compute-sanitizer, ncu.

    Raises:
        ToolchainError: there is none.
    """
    candidates = _candidates(name)
    if not candidates:
        raise ToolchainError(f"{name} is not on this machine: install the CUDA toolkit")
    return candidates[0]


def _candidates(name: str) -> list[Path]:
    """Paths of a tool: the one that cuda-pathfinder finds, then the places that it does not search:
    the PATH, toolkits in the usual folders, and triton's own tools."""
    toolkit = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    paths = [pathfinder().find_nvidia_binary_utility(name), toolkit]
    triton = importlib.util.find_spec("triton")
    if triton and triton.origin:
        paths.append(str(Path(triton.origin).parent / "backends" / "nvidia" / "bin" / name))
    return [Path(p) for p in dict.fromkeys(paths) if p and Path(p).is_file()]


def _version(tool: Path) -> tuple[int, int] | None:
    done = subprocess.run([str(tool), "--version"], capture_output=True, text=True)
    match = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return (int(match[1]), int(match[2])) if match else None


def tritons_ptxas(arch: str) -> Path:
    """The ptxas that triton itself compiles with for an architecture."""
    from triton.backends.nvidia.compiler import get_ptxas

    return Path(get_ptxas(int("".join(filter(str.isdigit, arch)))).path)


def assemble(ptx: str, arch: str, tool: Path | None = None) -> tuple[bytes, str]:
    """(cubin, log of `ptxas -v`) of PTX text, assembled by the newest ptxas or by `tool`.

    Raises:
        CompileError: ptxas rejects the text; the message is ptxas's.
    """
    tool = tool or find("ptxas")[0]
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx)
        done = subprocess.run(
            [str(tool), "-v", "--gpu-name", arch, str(source), "-o", str(out)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise CompileError(f"{tool} rejected the PTX for {arch}:\n{done.stderr.strip()}")
        return out.read_bytes(), done.stderr.strip()


def disassemble(cubin: bytes) -> str:
    """The SASS of a cubin.

    Raises:
        ToolchainError: nvdisasm does not support the cubin's architecture or format.
    """
    tool, _ = find("nvdisasm")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        done = subprocess.run([str(tool), "-c", str(path)], capture_output=True, text=True)
    if done.returncode or ".text." not in done.stdout:
        raise ToolchainError(f"{tool} cannot read the cubin: {done.stderr.strip()}")
    return done.stdout
