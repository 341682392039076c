"""Problems in the formats of other collections, converted to specs.

KernelBench: a file with `class Model(torch.nn.Module)`, `get_inputs()` and `get_init_inputs()`; a
solution is a class `ModelNew`. GPU MODE: a folder with `task.yml` and a reference.py that has
`generate_input(**test)` and `ref_kernel(data)`; a solution is a function `custom_kernel(data)`.

The shapes of these problems are fixed, so no other inputs are made. Their values are drawn again
for each check, from a seed that the kernel cannot predict. PyTorch's result is that of the
reference; the exact result is that of the reference in float64.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec
from kernelwright.machine import random_state
from kernelwright.support.errors import UsageError
from kernelwright.workbench.verify.candidate import is_tensor, map_tensors

from .on_cpu import on_cpu

#: The largest seed that PyTorch's generators accept on all platforms.
SEEDS = 2**31 - 1
TIMED = ("timed", True)  # the parameter that marks the cases to be timed


@dataclass(frozen=True)
class Problem:
    """A problem of a collection.

    Attributes:
        make: returns the arguments of the reference, in order, for a case and a device ("cpu",
            "cuda").
        run: calls the reference with the arguments.
        cases: the cases to judge and time.
        solution: how the kernel's process calls a solution; see `sandbox.loading.solution`.
    """

    make: Callable[[Case, str], list[Any]]
    run: Callable[[list[Any]], Any]
    cases: tuple[Case, ...]
    solution: dict[str, Any]


def is_kernelbench(module: ModuleType) -> bool:
    return all(callable(getattr(module, n, None)) for n in ("Model", "get_inputs"))


def is_gpu_mode(module: ModuleType) -> bool:
    return all(callable(getattr(module, n, None)) for n in ("generate_input", "ref_kernel"))


def kernelbench(module: ModuleType, path: Path) -> Problem:
    """The problem in a KernelBench file."""
    models: dict[tuple[torch.dtype, str], torch.nn.Module] = {}
    init = getattr(module, "get_init_inputs", list)

    def make(case: Case, device: str) -> list[Any]:
        with random_state.preserved(), on_cpu(device):
            torch.manual_seed(case.seed % SEEDS)
            made = module.get_inputs()
        return [t.to(device) if is_tensor(t) else t for t in made]

    def run(args: list[Any]) -> Any:
        given = [t for t in args if is_tensor(t)]
        floating = (t.dtype for t in given if t.is_floating_point())
        dtype, device = next(floating, torch.float32), str(given[0].device)
        if (dtype, device) not in models:
            with random_state.preserved(), on_cpu(device):
                torch.manual_seed(0)
                model = module.Model(*init())
            models[dtype, device] = model.to(device=device, dtype=dtype)
        with torch.no_grad(), on_cpu(device):
            return models[dtype, device](*args)

    shown = make(Case((), torch.float32), "cpu")
    first = next((t for t in shown if is_tensor(t)), None)
    if first is None:
        raise UsageError(f"--as: {path}: get_inputs() returns no tensor")
    shape, dtype = tuple(first.shape), first.dtype
    cases = (Case(shape, dtype), Case(shape, dtype, (TIMED,), use="bench"))
    return Problem(make, run, cases, {"model": str(path), "folder": str(path.resolve().parent)})


def gpu_mode(module: ModuleType, path: Path, task: Path) -> Problem:
    """The problem in a GPU MODE reference and its task."""
    known: dict[str, dict[str, Any]] = {}

    def make(case: Case, device: str) -> list[Any]:
        said = dict(known[case.id])
        if "seed" in said:
            said["seed"] = (int(said["seed"]) + case.seed) % SEEDS
        with random_state.preserved(), on_cpu(device):
            data = module.generate_input(**said)
        listed = list(data) if isinstance(data, (tuple, list)) else [data]
        return [t.to(device) if is_tensor(t) else t for t in listed]

    def run(args: list[Any]) -> Any:
        with torch.no_grad(), on_cpu(str(next(t for t in args if is_tensor(t)).device)):
            return module.ref_kernel(args[0] if single else tuple(args))

    cases: list[Case] = []
    said = tests_of(task)
    with random_state.preserved(), on_cpu("cpu"):
        shown = module.generate_input(**said[0][1])
    single = not isinstance(shown, (tuple, list))
    dtype = next(t.dtype for t in ([shown] if single else shown) if is_tensor(t))
    for use, test in said:
        sizes = tuple(v for k, v in test.items() if isinstance(v, int) and k != "seed")
        rest = tuple(sorted((k, v) for k, v in test.items() if isinstance(v, str)))
        timed = (TIMED,) if use == "bench" else ()
        case = Case(sizes, dtype, (*rest, *timed), use=use)
        if case.id not in known:
            known[case.id] = test
            cases.append(case)
    how = {"data": "single" if single else "tuple", "folder": str(path.resolve().parent)}
    return Problem(make, run, tuple(cases), how)


def tests_of(task: Path) -> list[tuple[str, dict[str, Any]]]:
    """("verify" or "bench", arguments of `generate_input`) of each test of a task.yml."""
    found: list[tuple[str, dict[str, Any]]] = []
    use = ""
    for number, line in enumerate(task.read_text("utf-8").splitlines(), 1):
        text = line.partition(" #")[0].rstrip()
        if re.match(r"\w", text):
            use = {"tests": "verify", "benchmarks": "bench"}.get(text.partition(":")[0], "")
            continue
        if not use or not text.strip():
            continue
        body = text.strip()
        try:
            if body.startswith("-"):
                body = body[1:].strip()
                found.append((use, {}))
            inner = body[1:-1] if body.startswith("{") else body
            for part in filter(None, (p.strip() for p in inner.split(","))):
                key, _, value = part.partition(":")
                found[-1][1][key.strip().strip("\"'")] = _value(value.strip())
        except (IndexError, ValueError, SyntaxError):
            raise UsageError(f"--as: {task}:{number}: this test cannot be read: {body}") from None
    if not any(use == "verify" for use, _ in found):
        raise UsageError(f"--as: {task} has no `tests`")
    return found


def _value(text: str) -> Any:
    if not text:
        raise ValueError(text)
    if text in ("true", "false"):
        return text == "true"
    return ast.literal_eval(text) if re.match(r"[-\d\"']", text) else text


def operator_of(problem: Problem, name: str, source: str) -> Operator:
    """The problem as an operator: its arguments are numbered, and those that the reference changes
    are also results."""
    shown = problem.make(problem.cases[0], "cpu")
    names = [f"x{i}" for i in range(len(shown))]
    args = map_tensors(dict(zip(names, shown, strict=True)), torch.clone)
    before = map_tensors(args, torch.clone)
    versions = {n: v._version for n, v in args.items() if is_tensor(v)}
    out = problem.run([*args.values()])
    results = _results(out, [*args.values()])
    # Uninitialized memory may already contain the result; then only the version shows a write.
    changed = [
        n for n, v in args.items()
        if is_tensor(v)
        and (v._version != versions[n]
             or not torch.equal(torch.nan_to_num(v), torch.nan_to_num(before[n])))
    ]  # fmt: skip
    listed = [_declared(n, v, n in changed) for n, v in args.items()]
    given = ", ".join("Tensor y" if len(results) == 1 else f"Tensor y{i}"
                      for i in range(len(results)))  # fmt: skip

    def reference(**values: Any) -> Any:
        got = _results(problem.run([*values.values()]), [*values.values()])
        got = tuple(t.double() if t.is_floating_point() else t for t in got)
        return got[0] if len(got) == 1 else got or None

    def inputs(case: Case, device: str) -> dict[str, Any]:
        if device == "meta":
            raise NotImplementedError("these inputs have values")
        return dict(zip(names, problem.make(case, device), strict=True))

    def outputs(**specs: Any) -> tuple[TensorSpec, ...]:
        fakes = [_zeros(v) for v in specs.values()]
        got = _results(problem.run(fakes), fakes)
        return tuple(TensorSpec(tuple(t.shape), tuple(t.stride()), t.dtype) for t in got)

    def cost(**specs: Any) -> Cost:
        read = tuple(t.nbytes for t in specs.values() if isinstance(t, TensorSpec))
        return Cost(read, tuple(t.nbytes for t in outputs(**specs)))

    return Operator(
        name=name,
        schema=f"({', '.join(listed)}) -> ({given})",
        reference=reference,
        inputs=inputs,
        cases=problem.cases,
        cost=cost,
        outputs=outputs,
        layout="any",
        source=source,
    )


def native_of(problem: Problem) -> Callable[..., Any]:
    """The reference in the arguments' own dtypes; it takes the arguments in order."""

    def native(*values: Any) -> Any:
        got = _results(problem.run([*values]), [*values])
        return got[0] if len(got) == 1 else got or None

    return native


def _results(out: Any, args: list[Any]) -> tuple[torch.Tensor, ...]:
    """The returned tensors that are not arguments; changed arguments are results already."""
    listed = out if isinstance(out, (tuple, list)) else (out,)
    known = {t.untyped_storage().data_ptr() for t in args if is_tensor(t) and t.numel()}
    return tuple(
        t for t in listed
        if is_tensor(t) and not (t.numel() and t.untyped_storage().data_ptr() in known)
    )  # fmt: skip


def _declared(name: str, value: Any, changed: bool) -> str:
    if is_tensor(value):
        return f"Tensor({name}!) {name}" if changed else f"Tensor {name}"
    kinds = {bool: "bool", int: "int", float: "float", str: "str"}
    if type(value) not in kinds:
        raise UsageError(
            f"--as: argument {name} is a {type(value).__name__}, neither a tensor nor a number"
        )
    return f"{kinds[type(value)]} {name}"


def _zeros(v: Any) -> Any:
    if isinstance(v, TensorSpec):
        extent = 1 + sum((n - 1) * s for n, s in zip(v.shape, v.strides, strict=True))
        return torch.zeros(max(extent, math.prod(v.shape)), dtype=v.dtype).as_strided(
            v.shape, v.strides
        )
    return torch.zeros_like(v) if is_tensor(v) else v
