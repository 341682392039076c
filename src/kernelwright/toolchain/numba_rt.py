"""Numba kernels: on a GPU through numba.cuda, without one in its simulator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy
import torch

from kernelwright.contract import Launch, NumbaKernel, Scalar, TensorSpec
from kernelwright.support.errors import CompileError, ToolchainError
from kernelwright.support.progress import waiting

from . import tools
from .compiled import Compiled

#: dtypes that Numba supports. bfloat16 is not among them, so rungs reject it in `supports`.
TYPES = {
    torch.float64: "f8",
    torch.float32: "f4",
    torch.float16: "f2",
    torch.int64: "i8",
    torch.int32: "i4",
    torch.int16: "i2",
    torch.int8: "i1",
    torch.uint8: "u1",
    torch.bool: "b1",
}
_SCALARS = {"i32": "int32", "i64": "int64", "f32": "float32", "f64": "float64"}


def mend_numpy() -> None:
    """Define the alias that numba-cuda 0.30 needs at import and that NumPy 2.5 removed."""
    if not hasattr(numpy, "row_stack"):
        numpy.row_stack = numpy.vstack  # type: ignore[attr-defined]


@cache
def activate_simulator() -> None:
    """Import numba.cuda as a simulator.

    Raises:
        ToolchainError: numba was imported before, in its compiling mode.
    """
    if "numba" not in sys.modules:
        os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    if os.environ.get("NUMBA_ENABLE_CUDASIM") != "1":
        raise ToolchainError(
            "numba was imported in its compiling mode before a kernelwright operator ran; "
            "set NUMBA_ENABLE_CUDASIM=1 before Python starts to simulate Numba rungs here"
        )
    import numba.cuda  # noqa: F401


def simulate(kernel: NumbaKernel, step: Launch, values: list) -> None:
    """Run one launch in the simulator: `values` are CPU tensors and Scalars with numbers."""
    arguments = [
        _number(v.ctype, v.value) if isinstance(v, Scalar) else _flat(v).numpy() for v in values
    ]
    _jit(kernel.fn)[step.grid, step.block, 0, step.shared](*arguments)


def launcher(step: Launch, tensors, device: torch.device) -> Callable:
    """`launch(stream, ...)` on a GPU; takes the addresses and floats of each call."""
    from numba import cuda

    kernel = step.kernel
    assert isinstance(kernel, NumbaKernel)
    specs = [None if isinstance(a, Scalar) else tensors[a] for a in step.args]
    jitted = _jit(kernel.fn)
    with cuda.gpus[device.index], waiting(f"compiling {kernel.fn.__name__}"):
        jitted.compile(_signature(step, tensors))  # here, because a capture cannot compile
    configured: dict[int, Any] = {}

    def launch(stream: int, *given):
        rest = iter(given)
        arguments = []
        for a, spec in zip(step.args, specs, strict=True):
            if spec is not None:
                arguments.append(cuda.as_cuda_array(_Memory(next(rest), spec), sync=False))
            else:
                assert isinstance(a, Scalar)
                value = next(rest) if isinstance(a.value, str) else a.value
                arguments.append(_number(a.ctype, value))
        with cuda.gpus[device.index]:
            if stream not in configured:
                on = cuda.external_stream(stream) if stream else cuda.default_stream()
                configured[stream] = jitted[step.grid, step.block, on, step.shared]
            configured[stream](*arguments)

    return launch


def compile(kernel: NumbaKernel, step: Launch, tensors, arch: str) -> Compiled:
    """A kernel's PTX and cubin, for inspection; kernels run through Numba's own launch.

    Raises:
        CompileError: Numba or ptxas rejects it. ToolchainError: Numba simulates in this process.
    """
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        raise ToolchainError(
            f"{kernel.fn.__name__}: numba simulates in this process and cannot compile; "
            "call kernelwright.toolchain.modes.compile_only() before the first rung is imported"
        )
    from numba import cuda, types

    signature = _signature(step, tensors)
    capability = int("".join(filter(str.isdigit, arch)))
    try:
        with waiting(f"compiling {kernel.fn.__name__} for {arch}"):
            ptx, _ = cuda.compile_ptx(
                kernel.fn, types.void(*signature), cc=divmod(capability, 10), lineinfo=True
            )
    except Exception as e:  # numba's errors have no common type
        raise CompileError(f"numba rejected {kernel.fn.__name__} for {arch}:\n{e}") from e
    name = ptx.split(".entry", 1)[1].split("(", 1)[0].strip()
    cubin, log = tools.assemble(ptx, arch)
    return Compiled(name=name, arch=arch, cubin=cubin, ptx=ptx, log=log)


def _signature(step: Launch, tensors) -> tuple:
    """The Numba types of a launch's arguments."""
    from numba import types

    kinds = {"f": "float", "i": "int", "u": "uint"}
    signature = []
    for a in step.args:
        if isinstance(a, Scalar):
            signature.append(getattr(types, _SCALARS[a.ctype]))
            continue
        code = _code(tensors[a].dtype)
        name = "boolean" if code == "b1" else f"{kinds[code[0]]}{8 * int(code[1])}"
        signature.append(types.Array(getattr(types, name), 1, "C"))
    return tuple(signature)


class _Memory:
    """Device memory for Numba: one dimension, from a tensor's first element to its last."""

    def __init__(self, pointer: int, spec: TensorSpec):
        self.__cuda_array_interface__ = {
            "shape": (_extent(spec.shape, spec.strides),),
            "typestr": ("|" if spec.itemsize == 1 else "<") + _code(spec.dtype),
            "data": (pointer, False),
            "version": 3,
        }


def _code(dtype: torch.dtype) -> str:
    if dtype not in TYPES:
        raise ToolchainError(f"numba has no {dtype}; the rung's supports() should have rejected it")
    return TYPES[dtype]


def _extent(shape, strides) -> int:
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _flat(t: torch.Tensor) -> torch.Tensor:
    return t.as_strided((_extent(t.shape, t.stride()),), (1,))


def _number(ctype: str, value: float):
    """A scalar of exactly the planned type; Numba would convert it to int64 or float64."""
    import numpy as np

    return getattr(np, _SCALARS[ctype])(value)


@cache
def _jit(fn: Callable):
    from numba import cuda

    return cuda.jit(fn)
