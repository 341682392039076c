"""The C++ code of a project: the supported calls, the allocations and the launches.

A plan holds the numbers of one case. Each case becomes one `if` of operator.cpp, which compares a
call with the case, and one `case` of launch.cu and of launch_nvrtc.cpp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kernelwright.contract import Case, CudaKernel, Launch, Operator, Plan, Scalar, TensorSpec
from kernelwright.contract.operator import Arg
from kernelwright.contract.plan import Scratch
from kernelwright.support.errors import UserError

DTYPE = {
    torch.float32: "at::kFloat", torch.float16: "at::kHalf", torch.bfloat16: "at::kBFloat16",
    torch.float64: "at::kDouble", torch.int64: "at::kLong", torch.int32: "at::kInt",
    torch.uint8: "at::kByte", torch.bool: "at::kBool",
}  # fmt: skip
#: C++ types of the arguments of an implementation.
CPP = {
    "Tensor": "const at::Tensor &", "Tensor?": "const std::optional<at::Tensor> &",
    "int": "int64_t ", "int[]": "at::IntArrayRef ", "float": "double ", "bool": "bool ",
    "str": "c10::string_view ", "ScalarType?": "std::optional<at::ScalarType> ",
}  # fmt: skip
#: C types of kernel arguments that are numbers.
NUMBER = {"i32": "int", "i64": "long long", "f32": "float", "f64": "double"}
STATIC_SHARED = 48 << 10  # bytes of shared memory per block without opting in


class CannotExtend(UserError, ValueError):
    """No project can be made from the rung; the message states the reason."""


@dataclass(frozen=True)
class Served:
    """A case, its arguments (tensors as specs) and the rung's plan for them."""

    case: Case
    args: dict[str, Any]
    outputs: tuple[TensorSpec, ...]
    plan: Plan


def refusal(op: Operator, plan: Plan) -> str | None:
    """Why no host code can be written for a plan, or None."""
    if op.mutated:
        return f"it changes {', '.join(op.mutated)}"
    for a in op.args:
        if _kind(op, a) not in CPP:
            return f"{a.name} is a {a.kind}"
    for step in plan.launches:
        for argument in step.args:
            if not isinstance(argument, (str, Scalar)):
                return f"{_kernel(step).name} takes a {type(argument).__name__}"
            if isinstance(argument, Scalar) and argument.ctype == "struct":
                return f"{_kernel(step).name} takes a struct"
    return "its plan has constant tensors" if plan.constants else None


def operator_fields(op: Operator, served: Sequence[Served]) -> dict[str, str]:
    """The fields of operator.cpp."""
    results = [f"results[{i}]" for i in range(len(op.results))]
    one = len(results) == 1
    tensors = [a for a in op.args if a.is_tensor]
    return {
        "name": op.torch_name,
        "schema": op.schema.replace('"', '\\"'),
        "parameters": ", ".join(f"{CPP[_kind(op, a)]}{a.name}" for a in op.args),
        "names": ", ".join(a.name for a in op.args),
        "first": next(a.name for a in op.args if a.kind == "Tensor"),
        "served": ", ".join(s.case.id for s in served),
        "result": "at::Tensor"
        if one
        else f"std::tuple<{', '.join(['at::Tensor'] * len(results))}>",
        "answer": results[0] if one else f"{{{', '.join(results)}}}",
        "conditions": "\n".join(_condition(op, i, s) for i, s in enumerate(served)),
        "allocations": "\n".join(_allocation(i, s) for i, s in enumerate(served)),
        "alignments": "\n".join(map(_alignment, tensors)),
        "addresses": ", ".join([*map(_address, tensors), *(f"{m}.data_ptr()" for m in results)]),
        "numbers": ", ".join(_floats(op)) or "0",
    }


def launches(
    op: Operator, served: Sequence[Served], written: Callable[[Launch, list[str]], str]
) -> str:
    """The cases of a launch function. `written`: a launch with the values of its arguments."""
    lines: list[str] = []
    for i, s in enumerate(served):
        lines.append(f"    case {i}: {{  // {s.case.id}")
        lines += [f"      {_scratch(name, scratch)}" for name, scratch in s.plan.scratch.items()]
        lines += [written(step, _values(op, s, step)) for step in s.plan.launches]
        lines += ["      break;", "    }"]
    return "\n".join(lines)


def by_nvcc(step: Launch, values: list[str]) -> str:
    """A launch with <<<...>>>, or with cudaLaunchKernelEx if it has attributes."""
    kernel, where = _kernel(step), f"{_dim3(step.grid)}, {_dim3(step.block)}, {step.shared}, stream"
    lines: list[str] = []
    if step.shared > STATIC_SHARED:
        what = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines.append(f"C10_CUDA_CHECK(cudaFuncSetAttribute({kernel.name}, {what}, {step.shared}));")
    if kernel.cluster > 1 or step.overlaps:
        given = ", ".join([kernel.name, where, str(kernel.cluster), _bool(step.overlaps), *values])
        lines.append(f"extended({given});")
    else:
        lines.append(f"{kernel.name}<<<{where}>>>({', '.join(values)});")
    return "\n".join(f"      {line}" for line in lines)


def by_driver(step: Launch, values: list[str]) -> str:
    """A launch of a kernel by name, which takes the addresses of the arguments."""
    kernel = _kernel(step)
    held = " ".join(f"auto v{i} = {v};" for i, v in enumerate(values))
    taken = ", ".join(f"&v{i}" for i in range(len(values)))
    where = f"{{{_ints(step.grid)}}}, {{{_ints(step.block)}}}, {step.shared}"
    options = f"{kernel.cluster}, {_bool(step.overlaps)}"
    return (
        f"      {{\n        {held}\n        void *values[] = {{{taken}}};\n"
        f'        run("{kernel.name}", device, {where}, {options}, values);\n      }}'
    )


def _kind(op: Operator, a: Arg) -> str:
    """An argument's type in the schema; the schema's parser reports dtypes as integers."""
    return "ScalarType?" if f"ScalarType? {a.name}" in op.schema else a.kind


def _kernel(step: Launch) -> CudaKernel:
    assert isinstance(step.kernel, CudaKernel), step.kernel
    return step.kernel


def _values(op: Operator, s: Served, step: Launch) -> list[str]:
    """A launch's arguments in C++."""
    tensors = [a.name for a in op.args if a.is_tensor] + list(op.results)
    values: list[str] = []
    for a in step.args:
        if isinstance(a, str):
            scratch = a in s.plan.scratch
            values.append(
                f"Any{{{a}.data_ptr()}}" if scratch else f"Any{{tensors[{tensors.index(a)}]}}"
            )
            continue
        assert isinstance(a, Scalar), a
        if a.ctype == "pointer":
            values.append("Any{nullptr}")
        else:
            read = isinstance(a.value, str)
            value = f"numbers[{_floats(op).index(str(a.value))}]" if read else repr(a.value)
            values.append(f"static_cast<{NUMBER[a.ctype]}>({value})")
    return values


def _floats(op: Operator) -> list[str]:
    return [a.name for a in op.args if a.kind == "float"]


def _scratch(name: str, scratch: Scratch) -> str:
    spec, make = scratch.spec, "at::zeros" if scratch.zero else "at::empty"
    options = f"at::TensorOptions().device(at::kCUDA, device).dtype({DTYPE[spec.dtype]})"
    return f"const at::Tensor {name} = {make}({{{_ints(spec.shape)}}}, {options});"


def _condition(op: Operator, i: int, s: Served) -> str:
    tests = [t for a in op.args if (t := _test(a, s)) is not None]
    joined = " &&\n      ".join(tests)
    return f"  if ({joined})\n    return {i};  // {s.case.id}"


def _test(a: Arg, s: Served) -> str | None:
    """Source of a test that an argument is the case's; None for numbers read at each call."""
    value, name = s.args[a.name], a.name
    if isinstance(value, TensorSpec):
        of = f"*{name}" if a.kind == "Tensor?" else name
        is_it = (
            f"is({of}, {{{_ints(value.shape)}}}, {{{_ints(value.strides)}}}, {DTYPE[value.dtype]})"
        )
        return f"{name} && {is_it}" if a.kind == "Tensor?" else is_it
    if value is None:
        return f"!{name}"
    if isinstance(value, torch.dtype):
        return f"{name} == {DTYPE[value]}"
    if isinstance(value, (list, tuple)):
        return f"{name} == at::IntArrayRef({{{_ints(value)}}})"
    if isinstance(value, bool):
        return f"{name} == {_bool(value)}"
    if a.kind == "str":
        return f'{name} == "{value}"'
    read = (x for step in s.plan.launches for x in step.args if isinstance(x, Scalar))
    return None if any(x.value == name for x in read) else f"{name} == {value!r}"


def _allocation(i: int, s: Served) -> str:
    tensors = ", ".join(
        f"empty({{{_ints(o.shape)}}}, {{{_ints(o.strides)}}}, {DTYPE[o.dtype]})" for o in s.outputs
    )
    return f"    case {i}:\n      return {{{tensors}}};"


def _alignment(a: Arg) -> str:
    """A check of a view's alignment, because kernels read 16 bytes at a time."""
    return (
        f"  TORCH_CHECK(reinterpret_cast<uintptr_t>({_address(a)}) % 16 == 0,\n"
        f'              "{a.name}: must begin at a multiple of 16 bytes: pass a clone of it");'
    )


def _address(a: Arg) -> str:
    address = f"{a.name}{'->' if a.kind == 'Tensor?' else '.'}data_ptr()"
    return f"({a.name} ? {address} : nullptr)" if a.kind == "Tensor?" else address


def _bool(value: bool) -> str:
    return str(value).lower()


def _ints(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def _dim3(values: tuple[int, int, int]) -> str:
    return f"dim3({_ints(values)})"
