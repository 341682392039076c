"""A plan: all launches of one call, as data.

A rung's entry turns a call's specs into a Plan without using a GPU. `toolchain` binds a plan to a
device, compiles it for any architecture, or runs it in an interpreter or emulator, always from the
same rung.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

import torch

from .signature import TensorSpec
from .symbolic_int import SymbolicInt, SymbolicStruct
from .tensor_map import TensorMap


@dataclass(frozen=True)
class Scalar:
    """A kernel argument that is not a pointer. `value` is a number determined by the call's specs,
    or the name of a float argument of the operator, read at each call (an eps, a learning rate)."""

    ctype: str  # "i32", "i64", "f32", "f64"; "struct" for bytes; "pointer" for NULL
    value: int | float | str | bytes


def i32(value: int) -> Scalar:
    if not -(2**31) <= value < 2**31:
        raise OverflowError(f"{value} does not fit the int32 kernel argument it was planned for")
    return Scalar("i32", value)


def i64(value: int) -> Scalar:
    return Scalar("i64", value)


def f32(value: float | str) -> Scalar:
    return Scalar("f32", value)


def f64(value: float | str) -> Scalar:
    return Scalar("f64", value)


def packed(value: bytes) -> Scalar:
    """A kernel argument of any other type, bool and half among them, as its bytes."""
    return Scalar("struct", value)


def struct_of(format: str, *numbers: int) -> Scalar:
    """A kernel argument that is a struct of integers, which may be open sizes; `format` is that of
    Python's `struct`."""
    if any(isinstance(n, SymbolicInt) for n in numbers):
        return Scalar("struct", SymbolicStruct(format, numbers))  # pyright: ignore[reportArgumentType]
    return packed(pack(format, *numbers))


def f16(value: float) -> Scalar:
    return packed(pack("<e", value))


def bf16(value: float) -> Scalar:
    bits = torch.tensor(value, dtype=torch.bfloat16).view(torch.int16).item()
    return packed(pack("<h", int(bits)))


#: The address of a tensor that a call does not have, where a CUDA kernel takes a null pointer.
NULL = Scalar("pointer", 0)


@dataclass(frozen=True)
class Pointers:
    """A kernel argument for list arguments of the operator, all of the same length: an int64 array
    in device memory whose row k has the addresses of lists[0][k], lists[1][k] and so on. With it,
    one launch can process any number of tensors."""

    lists: tuple[str, ...]


@dataclass(frozen=True)
class CudaKernel:
    """A `__global__` function. `name` is a C++ name expression ("softmax_fwd_warp<float, 4>");
    `cluster` is the size of the thread-block cluster along x, 1 for none. `emulated`: False if it
    has instructions without code for a CPU of their own: those of Hopper are translated by the
    emulator; with others (WMMA) it is only compiled without a GPU."""

    source: Path
    name: str
    cluster: int = 1
    emulated: bool = True


@dataclass(frozen=True)
class TritonKernel:
    """A `@triton.jit` function with its constexpr arguments and launch options."""

    fn: Any
    constexprs: dict[str, Any] = field(default_factory=dict)
    num_warps: int = 4
    num_stages: int = 2


@dataclass(frozen=True)
class NumbaKernel:
    """A plain Python function for numba.cuda.jit. Its tensor arguments arrive as flat 1-D arrays
    that cover the tensor's memory from its first element."""

    fn: Callable


@dataclass(frozen=True)
class Launch:
    """One kernel launch. `args` are names of tensors (the operator's inputs, its outputs, the
    plan's scratch and constants; "params[3]" for an element of a list), Pointers, Scalars and
    TensorMaps, in the kernel's order. `block` is ignored for Triton, `shared` is dynamic shared
    memory in bytes. `overlaps`: programmatic dependent launch (from compute capability 9.0 on): it
    may start while the plan's previous launch is still finishing; the kernel waits for that itself,
    with launch.cuh's `wait_for_launch_before`."""

    kernel: CudaKernel | TritonKernel | NumbaKernel
    grid: tuple[int, int, int]
    args: tuple[str | Scalar | Pointers | TensorMap, ...]
    block: tuple[int, int, int] = (1, 1, 1)
    shared: int = 0
    overlaps: bool = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """What each argument is: "pointer", "i32", "i64", "f32", "f64", "struct", "tensor_map"."""
        return tuple(map(_kind, self.args))


def _kind(argument: str | Scalar | Pointers | TensorMap) -> str:
    if isinstance(argument, TensorMap):
        return "tensor_map"
    return argument.ctype if isinstance(argument, Scalar) else "pointer"


@dataclass(frozen=True)
class Scratch:
    """Workspace of a plan. `zero`: kernels require it to be zero at the start; it is then allocated
    once per stream, and the kernels must leave it zero."""

    spec: TensorSpec
    zero: bool = False


@dataclass(frozen=True)
class Plan:
    """Launches in order, and the workspace they share. `constants` are CPU tensors determined by
    the specs (such as the work of each block). They are copied to the device once, when the plan is
    bound, and kernels do not change them."""

    launches: tuple[Launch, ...]
    scratch: dict[str, Scratch] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
