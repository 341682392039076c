"""Which backends work here, and the one line that says why one does not."""

from __future__ import annotations

import importlib.util
from functools import cache


@cache
def missing(backend: str, device_type: str) -> str | None:
    """Why `backend` cannot run on a device of this type here, or None."""
    if backend == "torch":
        return None
    return {"inductor": _inductor, "triton": _triton, "cuda": _cuda, "numba": _numba}[backend](
        device_type
    )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def _inductor(device_type: str) -> str | None:
    return None


def _triton(device_type: str) -> str | None:
    return None if _installed("triton") else "triton is not installed: pip install triton"


def _cuda(device_type: str) -> str | None:
    if device_type != "cuda":
        return "CUDA C++ runs on GPUs only; on a CPU it is compiled, not run"
    return None


def _numba(device_type: str) -> str | None:
    return (
        None if _installed("numba_cuda") else "numba-cuda is not installed: pip install numba-cuda"
    )
