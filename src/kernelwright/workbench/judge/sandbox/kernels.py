"""In the kernel's process: CUDA C++ with a launch file as a function; compiled properties."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from kernelwright import toolchain
from kernelwright.contract import H200, TritonKernel, f32
from kernelwright.contract.layout import REDZONE
from kernelwright.dispatch import device_of, specs_of
from kernelwright.emulator.checks import CHECKS
from kernelwright.machine import gpu_of
from kernelwright.toolchain import binary, build, interpreter, redzones, triton_aot
from kernelwright.toolchain.compiled import Compiled
from kernelwright.workbench.verify.candidate import map_tensors

from ..launch_file import plan_of
from ..spec import Subject

ARCH = "sm_90a"  # the architecture to compile for without a GPU


class CudaFunction:
    """A kernel of a .cu and its launch file, as a function of the operator's arguments."""

    def __init__(self, source: Path, name: str, module: ModuleType, subject: Subject):
        self.source, self.name, self.module = source, name, module
        self.subject, self.operator = subject, subject.operator
        self.launches = 0
        self._bound: dict[str, tuple[Callable[..., Any], int]] = {}
        self._last: tuple[Any, dict[str, Any]] | None = None

    def __call__(self, *args: Any) -> Any:
        named = dict(zip((a.name for a in self.operator.args), args, strict=True))
        specs, device = specs_of(named), device_of(named)
        key = f"{specs} {device} {redzones.active is not None}"
        if key not in self._bound:
            gpu = gpu_of(device) or H200
            plan = plan_of(self.module, self.source, self.name, gpu, self.operator, specs)
            self._last = plan, specs
            bound = toolchain.executor(plan, self.operator, specs, (), device)
            self._bound[key] = bound, len(plan.launches)
        call, launches = self._bound[key]
        self.launches += launches
        return call(*args)

    def watched(self, args: list[Any]) -> dict[str, str]:
        """The first finding of each of the emulator's checks in a call."""
        # imported here, because it imports all operators and fixes Triton's mode
        from kernelwright.workbench.sanitize import report
        from kernelwright.workbench.sanitize.tool_runner import apart

        ladder = self.subject.ladder
        assert ladder is not None
        named = dict(zip((a.name for a in self.operator.args), args, strict=True))
        specs = specs_of(named)
        plan = plan_of(self.module, self.source, self.name, H200, self.operator, specs)

        def make() -> dict[str, Any]:
            return map_tensors(named, lambda t: apart(t, "cpu", REDZONE))

        call = report.Call(ladder, plan, specs, (), make)
        findings: dict[str, str] = {}
        for seed in report.SEEDS:
            for finding in call.watched(tuple(CHECKS), seed)[1]:
                findings.setdefault(finding.check, f"{finding.text} (schedule {seed})")
        return findings

    def kernels(self, arch: str) -> list[dict[str, Any]]:
        """The compiled properties of the newest plan's launches."""
        if self._last is None:
            return []
        plan, specs = self._last
        tensors = build.Tensors(plan, self.operator, specs)
        rows: list[dict[str, Any]] = []
        for step in plan.launches:
            compiled = build.compile(step, tensors, arch)
            threads = step.block[0] * step.block[1] * step.block[2]
            rows.append(facts(compiled, build.name_of(step.kernel), threads, step.shared))
        return rows


def facts(compiled: Compiled, kernel: str, threads: int, dynamic: int) -> dict[str, Any]:
    """Registers, occupancy and instructions of one compiled kernel."""
    resources = binary.resources(compiled)
    shared = resources.static_shared + dynamic
    return {
        "kernel": kernel,
        "arch": compiled.arch,
        "threads": threads,
        "dynamic_shared": dynamic,
        "resources": asdict(resources),
        "occupancy": asdict(binary.occupancy(compiled.arch, threads, resources.registers, shared)),
        "instructions": asdict(binary.instructions(binary.sass(compiled))),
    }


def triton_kernels(call: Callable[[], Any]) -> list[dict[str, Any]]:
    """The kernels that Triton compiles for this process's GPU in one call. Kernels compiled for
    other calls are removed from its in-memory cache first, and found again in the cache on disk."""
    for fn in _triton_functions():
        fn.device_caches.clear()
    call()
    rows: list[dict[str, Any]] = []
    for fn in _triton_functions():
        for cached in fn.device_caches.values():
            for kernel in cached[0].values():
                meta = kernel.metadata
                arch = f"sm_{meta.target.arch}" + ("a" if meta.target.arch >= 90 else "")
                compiled = Compiled(
                    name=meta.name,
                    arch=arch,
                    cubin=kernel.asm["cubin"],
                    ptx=kernel.asm["ptx"],
                    ttgir=kernel.asm["ttgir"],
                    shared=meta.shared,
                    threads=32 * meta.num_warps,
                )
                rows.append(facts(compiled, fn.__name__, compiled.threads, compiled.shared))
    return rows


def _triton_functions() -> list[Any]:
    import triton

    # by type, because isinstance dereferences weak proxies, whose objects may be gone
    return [o for o in gc.get_objects() if issubclass(type(o), triton.JITFunction)]


class Interpreted:
    """Records the launches of Triton's interpreter, in enough detail to compile them elsewhere."""

    def __init__(self):
        from triton.runtime.interpreter import GridExecutor

        from kernelwright.toolchain import interpreter_bounds

        self.launches: dict[str, dict[str, Any]] = {}
        self.count = 0
        plain = GridExecutor.__call__

        def watched(executor: Any, *args: Any, **kwargs: Any) -> Any:
            self.count += 1
            self._keep(executor, args, kwargs)
            typed = {
                k: v if k in executor.constexprs else _typed(v) for k, v in kwargs.items()
                if k in executor.arg_names
            }  # fmt: skip
            given = [
                v if n in executor.constexprs else _typed(v)
                for n, v in zip(executor.arg_names, args, strict=False)
            ]
            # its copies are not operators of the kernel
            with _disable_current_modes(), interpreter_bounds.recording():
                return _untraced(plain)(executor, *given, **{**kwargs, **typed})

        # like torch.compiler.disable, whose import takes seconds
        watched._torchdynamo_disable = True  # pyright: ignore[reportFunctionMemberAccess]
        GridExecutor.__call__ = watched  # pyright: ignore[reportAttributeAccessIssue]

    def _keep(self, executor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fn = executor.fn
        options = {k: kwargs[k] for k in ("num_warps", "num_stages") if k in kwargs}
        own = {k: v for k, v in kwargs.items() if k in executor.arg_names}
        bound = inspect.signature(fn).bind(*args, **own)
        bound.apply_defaults()
        told: dict[str, Any] = {}
        for name, value in bound.arguments.items():
            if name in executor.constexprs or value is None:
                told[name] = {"constexpr": getattr(value, "value", value)}
            elif isinstance(value, torch.Tensor):
                aligned = value.data_ptr() % 16 == 0
                told[name] = {"type": f"*{triton_aot.TYPES[str(value.dtype)]}", "aligned": aligned}
            elif isinstance(value, (bool, int, float)):
                told[name] = {"type": _scalar(value), "aligned": value % 16 == 0}
            else:
                return  # a descriptor or a tuple, which cannot be compiled here
        plain = (bool, int, float, str, type(None))
        if all(isinstance(t.get("constexpr"), plain) for t in told.values()):
            self.launches[fn.__qualname__] = {
                "file": fn.__code__.co_filename,
                "name": fn.__qualname__,
                "args": told,
                **options,
            }


def _untraced(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that torch.compile does not trace: it cannot compile the interpreter."""
    return torch.compiler.disable(fn) if "torch._dynamo" in sys.modules else fn


def _typed(value: Any) -> Any:
    """A float with the kernel's type on a GPU; the interpreter would pass a Python number."""
    return interpreter.typed_scalar(f32(value)) if isinstance(value, float) else value


def _scalar(value: float | int | bool) -> str:
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, float):
        return "fp32"
    return "i32" if -(2**31) <= value < 2**31 else "i64"


def compile_triton(launch: dict[str, Any], arch: str) -> dict[str, Any]:
    """Compile a kernel that another process has interpreted; imports its file here."""
    for fn in _triton_functions():
        if (fn.fn.__code__.co_filename, fn.fn.__qualname__) == (launch["file"], launch["name"]):
            break
    else:
        raise LookupError("importing the file does not create the kernel")
    constexprs = {k: v["constexpr"] for k, v in launch["args"].items() if "constexpr" in v}
    kinds = tuple((v["type"], v["aligned"]) for v in launch["args"].values() if "type" in v)
    kernel = TritonKernel(fn, constexprs, launch.get("num_warps", 4), launch.get("num_stages", 3))
    compiled = triton_aot.compile(kernel, kinds, arch)
    return facts(compiled, fn.__name__, compiled.threads, compiled.shared)
