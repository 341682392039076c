"""A program around one kernel of a .cu file, whose tensors and launch come from a launch file.

    tensors = {"x": torch.randn(64, 500), "y": ((64,), torch.float32)}

    def launch(x, y):
        return {"grid": 64, "block": 256, "args": ["x", "y", x.shape[1]]}

`launch` is as in `judge`'s launch files. A pair of a shape and a dtype is uninitialized memory. A
`main` in the .cu file is not run.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.contract import H200, CudaKernel, Launch, Scalar, TensorSpec
from kernelwright.emulator import program
from kernelwright.support.errors import UsageError
from kernelwright.workbench.judge import launch_file
from kernelwright.workbench.judge.target import Target, launchable

_START = """\
#define main kw_own_main
#include "{source}"
#undef main
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
struct KwPointer {{
  void *at;
  template <typename T> operator T *() const {{ return static_cast<T *>(at); }}
}};
template <size_t N> struct KwBytes {{
  unsigned char bytes[N];
  template <typename T> operator T() const {{
    static_assert(sizeof(T) == N, "an argument has another size than the kernel's parameter");
    T made;
    memcpy(&made, bytes, N);
    return made;
  }}
}};
static void kw_fill(void *to, const std::string &file, size_t bytes) {{
  std::vector<char> data(bytes);
  FILE *from = fopen(file.c_str(), "rb");
  if (!from || fread(data.data(), 1, bytes, from) != bytes) exit(3);
  fclose(from);
  cudaMemcpy(to, data.data(), bytes, cudaMemcpyHostToDevice);
}}
int main(int, char **kw_arguments) {{
  const std::string kw_folder = kw_arguments[1];
  KwPointer kw_at[{count}];
"""


@dataclass(frozen=True)
class _None:
    """An operator without results: all tensors come from the launch file."""

    results: tuple[str, ...] = ()

    def outputs(self, **specs: Any) -> tuple[TensorSpec, ...]:
        return ()


def program_of(target: str, launch: Path | None, folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Write a program that launches a kernel into a folder; returns its path and arguments.

    Args:
        target: "FILE.cu:KERNEL".

    Raises:
        UsageError: there is no such file or kernel, or the launch file is wrong.
    """
    asked = Target.of(target)
    launchable(asked, launch)
    assert launch is not None
    module = _loaded(launch)
    tensors = _tensors(module, launch)
    specs = {n: t if isinstance(t, TensorSpec) else TensorSpec.of(t) for n, t in tensors.items()}
    try:
        none: Any = _None()
        plan = launch_file.plan_of(module, asked.path, asked.name, H200, none, specs)
    except (launch_file.LaunchFile, ValueError) as e:
        raise UsageError(f"{launch}: {e}") from None
    memory = {**tensors, **{n: s.spec for n, s in plan.scratch.items()}, **plan.constants}
    lines = [_START.format(source=asked.path, count=max(len(memory), 1))]
    for i, (name, t) in enumerate(memory.items()):
        bytes_ = t.numel() * t.itemsize if isinstance(t, TensorSpec) else t.nbytes
        lines.append(
            f"  {{ void *{name}; cudaMalloc(&{name}, {bytes_}); kw_at[{i}] = {{{name}}}; }}"
        )
        if isinstance(t, torch.Tensor):
            data = t.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            (folder / f"{i}.bin").write_bytes(data)
            lines.append(f'  kw_fill(kw_at[{i}].at, kw_folder + "/{i}.bin", {bytes_});')
    places = {name: i for i, name in enumerate(memory)}
    lines += [_launched(step, places) for step in plan.launches]
    lines.append("  return cudaDeviceSynchronize() != cudaSuccess;\n}")
    source = folder / f"{asked.name}_of_{asked.path.name}"
    source.write_text("\n".join(lines) + "\n")
    for shared in program.include_folders(asked.path):
        with suppress(FileExistsError):  # the first one found is the nearest
            (folder / shared.name).symlink_to(shared)
    return source, (str(folder),)


def _loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kernelwright_launch_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"--launch: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _tensors(module: ModuleType, path: Path) -> dict[str, torch.Tensor | TensorSpec]:
    given: Any = getattr(module, "tensors", None)
    if not isinstance(given, Mapping) or not given:
        raise UsageError(
            f"{path}: needs `tensors`, the kernel's tensors by name, for example "
            '{"x": torch.randn(1000), "y": ((1000,), torch.float32)}; '
            "python -m pydoc kernelwright.workbench.run_program.one_kernel describes the file"
        )
    tensors: dict[str, torch.Tensor | TensorSpec] = {}
    for name, t in given.items():
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise UsageError(f"{path}: tensors: {name!r} is not a name")
        if isinstance(t, torch.Tensor):
            tensors[name] = t.cpu()
        elif isinstance(t, tuple) and len(t) == 2 and isinstance(t[1], torch.dtype):
            tensors[name] = TensorSpec.contiguous(t[0], t[1])
        else:
            raise UsageError(
                f"{path}: tensors: {name} is neither a tensor nor a pair (shape, dtype)"
            )
    return tensors


def _launched(step: Launch, places: Mapping[str, int]) -> str:
    assert isinstance(step.kernel, CudaKernel)
    arguments = ", ".join(_argument(a, places) for a in step.args)
    sizes = [f"dim3({', '.join(map(str, v))})" for v in (step.grid, step.block)]
    if step.kernel.cluster == 1:
        return f"  {step.kernel.name}<<<{', '.join(sizes)}, {step.shared}>>>({arguments});"
    return (
        "  {\n    cudaLaunchAttribute kw_cluster[1];\n"
        "    kw_cluster[0].id = cudaLaunchAttributeClusterDimension;\n"
        f"    kw_cluster[0].val.clusterDim = {{{step.kernel.cluster}, 1, 1}};\n"
        "    cudaLaunchConfig_t kw_how = {};\n"
        f"    kw_how.gridDim = {sizes[0]}, kw_how.blockDim = {sizes[1]};\n"
        f"    kw_how.dynamicSmemBytes = {step.shared}, kw_how.attrs = kw_cluster;\n"
        "    kw_how.numAttrs = 1;\n"
        f"    cudaLaunchKernelEx(&kw_how, {step.kernel.name}, {arguments});\n  }}"
    )


def _argument(argument: Any, places: Mapping[str, int]) -> str:
    if isinstance(argument, str):
        if argument not in places:
            raise UsageError(f"args: {argument!r} is not a tensor; there are {', '.join(places)}")
        return f"kw_at[{places[argument]}]"
    assert isinstance(argument, Scalar)
    value = argument.value
    if argument.ctype == "pointer":
        return "KwPointer{nullptr}"
    if isinstance(value, bytes):
        return f"KwBytes<{len(value)}>{{{{{', '.join(map(str, value))}}}}}"
    if argument.ctype in ("f32", "f64"):
        dtype = torch.float32 if argument.ctype == "f32" else torch.float64
        bits = torch.tensor(float(value), dtype=dtype).view(torch.uint8).tolist()
        kind = "float" if argument.ctype == "f32" else "double"
        return f"{kind}(KwBytes<{len(bits)}>{{{{{', '.join(map(str, bits))}}}}})"
    return f"{value}" if argument.ctype == "i32" else f"{value}ll"
