"""Compiles one launch of a plan: determines its arguments and calls its language's compiler."""

from __future__ import annotations

import re
from typing import Any

import torch

from kernelwright.contract import (
    CudaKernel,
    Launch,
    NumbaKernel,
    Operator,
    Plan,
    Pointers,
    Scalar,
    TensorMap,
    TensorSpec,
    TritonKernel,
)
from kernelwright.contract.symbolic_int import SymbolicStruct
from kernelwright.support.errors import ToolchainError

from . import nvrtc, triton_aot
from .compiled import TENSOR_MAP_BYTES, Compiled, hidden_parameters, struct_sizes


class Tensors:
    """The specs behind the tensor names and pointer arrays of a plan."""

    def __init__(self, plan: Plan, operator: Operator, specs: dict[str, Any]):
        self.inputs = specs
        self.outputs = dict(zip(operator.results, operator.outputs(**specs), strict=True))
        self.scratch = {n: s.spec for n, s in plan.scratch.items()}
        self.constants = {n: TensorSpec.of(t) for n, t in plan.constants.items()}

    def __getitem__(self, name: str | Pointers | TensorMap) -> TensorSpec:
        if isinstance(name, TensorMap):
            return self._mapped(name)
        if isinstance(name, Pointers):
            return TensorSpec.contiguous((self._length(name), len(name.lists)), torch.int64)
        element = re.fullmatch(r"(\w+)\[(\d+)\]", name)
        if element:
            tensor = self.inputs.get(element[1])
            tensor = tensor[int(element[2])] if isinstance(tensor, (list, tuple)) else None
        else:
            known = {**self.inputs, **self.outputs, **self.scratch, **self.constants}
            tensor = known.get(name)
        if not isinstance(tensor, TensorSpec):
            raise ToolchainError(f"a plan names {name!r}, which is not a tensor of the call")
        return tensor

    def _mapped(self, map: TensorMap) -> TensorSpec:
        """The tensor that a map describes."""
        spec = self[map.tensor]
        last = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True))
        nbytes = (last + 1) * spec.itemsize
        if spec.dtype != map.dtype or map.nbytes > nbytes:
            raise ToolchainError(
                f"a tensor map describes {map.nbytes} bytes of {map.dtype}, but {map.tensor} has "
                f"{nbytes} of {spec.dtype}"
            )
        if spec.align < 16:
            raise ToolchainError(f"a tensor map of {map.tensor}, which is not aligned to 16 bytes")
        return spec

    def _length(self, pointers: Pointers) -> int:
        """The one length of the lists."""
        lengths = set()
        for name in pointers.lists:
            tensors = self.inputs.get(name)
            if not isinstance(tensors, (list, tuple)) or not tensors:
                raise ToolchainError(f"a plan points to {name!r}, which is not a list of the call")
            lengths.add(len(tensors))
        if len(lengths) != 1:
            raise ToolchainError(f"a plan points to {pointers.lists}, which have different lengths")
        return lengths.pop()


def name_of(kernel: CudaKernel | TritonKernel | NumbaKernel) -> str:
    """The name of a kernel in messages and listings."""
    return kernel.name if isinstance(kernel, CudaKernel) else kernel.fn.__name__


def _struct_size(argument: str | Scalar | Pointers | TensorMap) -> int:
    """Bytes of an argument that is passed as a struct; 0 for any other."""
    if isinstance(argument, TensorMap):
        return TENSOR_MAP_BYTES
    if isinstance(argument, Scalar) and isinstance(argument.value, bytes):
        return len(argument.value)
    if isinstance(argument, Scalar) and isinstance(argument.value, SymbolicStruct):
        return argument.value.size
    return 0


def compile(step: Launch, tensors: Tensors, arch: str) -> Compiled:
    """The kernel of one launch for `arch`.

    Raises:
        CompileError: the compiler rejects it. ToolchainError: a compiler or header is missing, or
            the plan's arguments do not match the kernel's parameters.
    """
    kernel = step.kernel
    if isinstance(kernel, CudaKernel):
        compiled = nvrtc.compile(kernel, arch)
        hidden = hidden_parameters(compiled, step.kinds)
        passed = [size for a in step.args if (size := _struct_size(a))]
        sizes = struct_sizes(compiled)
        if passed != sizes:
            raise ToolchainError(
                f"{kernel.name} takes structs of {sizes} bytes, but its plan passes {passed}"
            )
        if hidden:
            raise ToolchainError(f"{kernel.name} takes more arguments than its plan passes")
        return compiled
    if isinstance(kernel, TritonKernel):
        return triton_aot.compile(kernel, tuple(_triton(a, tensors) for a in step.args), arch)
    from . import numba_rt

    return numba_rt.compile(kernel, step, tensors, arch)


def _triton(argument: str | Scalar | Pointers, tensors: Tensors) -> tuple[str, bool]:
    if isinstance(argument, Scalar):
        kind = triton_aot.SCALARS[argument.ctype]
        value = argument.value
        return kind, argument.ctype[0] == "i" and isinstance(value, int) and value % 16 == 0
    spec = tensors[argument]
    return "*" + triton_aot.TYPES[str(spec.dtype)], spec.align == 16
