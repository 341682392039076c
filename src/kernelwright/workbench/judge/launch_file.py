"""How a kernel of a .cu is launched: a launch file, converted to a plan.

    def launch(x, y, dim):                       # arguments and results by name, as specs
        rows, cols = x.shape
        return {"grid": rows, "block": 256, "args": ["x", "y", cols]}

`args` are in the kernel's order: names of tensors and of the operator's float arguments, and
numbers: an int becomes the kernel's int, a float its float, a bool its bool; `i64(n)`, `f64(v)`,
`f16(v)` and `bf16(v)` of `kernelwright.contract` are the other widths, and bytes are a struct
(`struct.pack("<if", n, v)`). `shared` is dynamic shared memory in bytes, `kernel` a name that
replaces the command line's ("softmax<float>"), `scratch` workspace by name: (shape, dtype). Several
launches are a list. `shapes`, next to `launch`, lists the shapes of the operator's main tensor that
the kernel supports, None for any size: `shapes = [(None, 512)]`; inputs are then made only with
these shapes. For a call that the kernel does not support, raise ValueError. Alternatively,
`plan(gpu, config, **specs)` returns the plan itself, as for a rung.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.contract import (
    CudaKernel,
    Gpu,
    Launch,
    Operator,
    Plan,
    Scalar,
    Scratch,
    TensorSpec,
    f32,
    i32,
    packed,
)

KEYS = {"grid", "block", "args", "shared", "kernel", "scratch", "cluster"}


class LaunchFile(Exception):
    """A launch file contains an error; the message states where."""


def plan_of(
    module: ModuleType, source: Path, name: str, gpu: Gpu, operator: Operator, specs: dict[str, Any]
) -> Plan:
    """The plan of one call.

    Raises:
        LaunchFile: the file has an error. ValueError: raised by the file for unsupported calls.
    """
    if hasattr(module, "plan"):
        return module.plan(gpu, {}, **specs)
    launch: Callable[..., Any] | None = getattr(module, "launch", None)
    if launch is None:
        raise LaunchFile(f"{module.__file__} has no function `launch` (or `plan`)")
    results = dict(zip(operator.results, operator.outputs(**specs), strict=True))
    known = {**specs, **results}
    code = launch.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for n in names:
        if n not in known:
            raise LaunchFile(
                f"launch: {n!r} is neither an argument nor a result; there are {', '.join(known)}"
            )
    try:
        said = launch(**{n: known[n] for n in names})
    except (NameError, AttributeError, ImportError) as e:  # not of this call, but of every one
        line = traceback.extract_tb(e.__traceback__)[-1].lineno
        raise LaunchFile(f"{module.__file__}:{line}: {type(e).__name__}: {e}") from e
    steps: list[Launch] = []
    scratch: dict[str, Scratch] = {}
    for step in said if isinstance(said, list) else [said]:
        odd = set(step) - KEYS
        if odd or not {"grid", "block", "args"} <= set(step):
            what = f"unknown key {', '.join(sorted(odd))}" if odd else "needs grid, block and args"
            raise LaunchFile(f"launch: {what}")
        for n, (shape, dtype) in step.get("scratch", {}).items():
            scratch[n] = Scratch(TensorSpec.contiguous(shape, dtype))
        kernel = CudaKernel(source, step.get("kernel", name), step.get("cluster", 1))
        args = tuple(_argument(a, {**known, **scratch}) for a in step["args"])
        grid, block = _three(step["grid"]), _three(step["block"])
        steps.append(Launch(kernel, grid, args, block, step.get("shared", 0)))
    return Plan(tuple(steps), scratch)


def shapes_of(module: ModuleType) -> list[list[int | None]] | None:
    """The shapes that a launch file declares, or None if it declares none.

    Raises:
        LaunchFile: they are not shapes.
    """
    shapes = getattr(module, "shapes", None)
    if shapes is None:
        return None
    listed = isinstance(shapes, (list, tuple)) and all(isinstance(s, (list, tuple)) for s in shapes)
    if not listed or not shapes or any(not _is_size(n) for s in shapes for n in s):
        raise LaunchFile(
            f"shapes: must be a list of shapes, [(None, 512)] for any rows of 512; is {shapes!r}"
        )
    return [list(s) for s in shapes]


def _is_size(n: Any) -> bool:
    return n is None or (isinstance(n, int) and not isinstance(n, bool) and n >= 0)


def _three(n: int | tuple[int, ...]) -> tuple[int, int, int]:
    sizes = (n,) if isinstance(n, int) else tuple(n)
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z


def _argument(a: Any, known: dict[str, Any]) -> str | Scalar:
    if isinstance(a, Scalar):
        return a
    if isinstance(a, str):
        if a.split("[")[0] not in known:
            raise LaunchFile(
                f"args: {a!r} is not a tensor of the call; there are {', '.join(known)}"
            )
        return f32(a) if isinstance(known[a.split("[")[0]], float) else a
    if isinstance(a, bool):
        return packed(bytes([a]))
    if isinstance(a, bytes) and a:
        return packed(a)
    if not isinstance(a, (int, float)):
        raise LaunchFile(f"args: {a!r} is a {type(a).__name__}, neither a name nor a number")
    return i32(a) if isinstance(a, int) else f32(a)
