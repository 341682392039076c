"""Finds the headers of the CUDA toolkit, in wheels or in a toolkit of the machine."""

from __future__ import annotations

import os
import re
import shutil
from functools import cache
from pathlib import Path
from types import ModuleType

from kernelwright.support.errors import ToolchainError

#: Files that kernels and programs include; they are spread over three wheels.
NEEDED = ("cuda_bf16.h", "cuda_fp16.h", "cuda_runtime_api.h", "crt/host_defines.h", "nv/target")
WHEELS = "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"


@cache
def complete() -> tuple[tuple[Path, ...], ...]:
    """Sets of folders that together have all files in NEEDED: wheels, CUDA_HOME, the system's.

    Raises:
        ToolchainError: there is none; the message names the missing files and their packages.
    """
    sets = tuple(f for f in map(_with_cccl, candidates()) if not _missing(f))
    if not sets:
        missing = {f: _missing(_with_cccl(f)) for f in candidates()}
        seen = "; ".join(f"{f} lacks {', '.join(m)}" for f, m in missing.items()) or "no folder"
        raise ToolchainError(
            f"the CUDA headers are not complete ({seen}): pip install {WHEELS}, or set CUDA_HOME"
        )
    return sets


def candidates() -> list[Path]:
    """Folders of CUDA headers: the one that cuda-pathfinder finds, then the machine's toolkits.
    cuda-pathfinder returns only the first that it finds, which may be incomplete or of another
    version than NVRTC, and it ignores the toolkit whose nvcc is on the PATH."""
    first = pathfinder().find_nvidia_header_directory("cudart")
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    nvcc = shutil.which("nvcc")
    if nvcc:
        homes.append(str(Path(nvcc).resolve().parent.parent))
    folders = [Path(f) for f in (first,) if f] + [Path(h) / "include" for h in homes if h]
    return [f for f in dict.fromkeys(folders) if (f / "cuda_fp16.h").exists()]


def version(folder: Path) -> tuple[int, int] | None:
    """The version of the toolkit whose headers are in a folder, (13, 0)."""
    header = folder / "cuda_runtime_api.h"
    text = header.read_text(errors="replace") if header.exists() else ""
    number = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", text)
    return (int(number[1]) // 1000, int(number[1]) % 1000 // 10) if number else None


def pathfinder() -> ModuleType:
    """cuda-pathfinder, which searches wheels, conda and CUDA_HOME.

    Raises:
        ToolchainError: it is not installed.
    """
    try:
        from cuda import pathfinder
    except ImportError:
        raise ToolchainError(
            "cuda-pathfinder is not installed: pip install cuda-pathfinder"
        ) from None
    return pathfinder


def _with_cccl(folder: Path) -> tuple[Path, ...]:
    return (folder, folder / "cccl") if (folder / "cccl").is_dir() else (folder,)


def _missing(folders: tuple[Path, ...]) -> list[str]:
    return [n for n in NEEDED if not any((f / n).exists() for f in folders)]
