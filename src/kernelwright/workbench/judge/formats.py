"""Problems in the formats of other collections, converted to specs.

KernelBench: a file with `class Model(torch.nn.Module)`, `get_inputs()` and `get_init_inputs()`; a
solution is a class `ModelNew`. GPU MODE: a folder with `task.yml` and a reference.py that has
`generate_input(**test)` and `ref_kernel(data)`; a solution is a function `custom_kernel(data)`.

The shapes of these problems are fixed, so no other inputs are made; without a GPU, the constants
that give the sizes of a KernelBench problem are halved until it fits. Values are drawn again for
each check, from a seed that the kernel cannot predict. PyTorch's result is that of the reference;
the exact result is that of the reference in float64. Where a GPU MODE problem has its own check,
`check_implementation`, that check and its tolerance decide whether a result is right.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any

import torch

from kernelwright.contract import Case, Cost, Operator, TensorSpec
from kernelwright.machine import here, random_state
from kernelwright.support.errors import UsageError
from kernelwright.workbench.verify.candidate import copy_of, filler, is_tensor, map_tensors

from . import sizes
from .meter import Meter, TooLarge
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
        check: the problem's own check: given the arguments and what a solution returned, what is
            wrong, or "". None if it has none.
        buffers: positions of the tensors that receive results: the reference does not read them.
        reduced: how the sizes differ from the problem's, in words, or "".
    """

    make: Callable[[Case, str], list[Any]]
    run: Callable[[list[Any]], Any]
    cases: tuple[Case, ...]
    solution: dict[str, Any]
    check: Callable[[list[Any], Any], str] | None = None
    buffers: tuple[int, ...] = ()
    reduced: str = ""


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
            inputs = module.get_inputs()
        return [t.to(device) if is_tensor(t) else t for t in inputs]

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

    def whole() -> None:
        models.clear()  # one of other sizes
        run(make(Case((), torch.float32), "cpu"))

    smaller = sizes.reduced(module, whole) if here().type == "cpu" else {}
    models.clear()
    shown = make(Case((), torch.float32), "cpu")
    first = next((t for t in shown if is_tensor(t)), None)
    if first is None:
        raise UsageError(f"--as: {path}: get_inputs() returns no tensor")
    shape, dtype = tuple(first.shape), first.dtype
    cases = (Case(shape, dtype), Case(shape, dtype, (TIMED,), use="bench"))
    how = {"model": str(path), "folder": str(path.resolve().parent), "constants": smaller}
    return Problem(make, run, cases, how, reduced=sizes.in_words(smaller))


def gpu_mode(module: ModuleType, path: Path, task: Path) -> Problem:
    """The problem in a GPU MODE reference and its task."""
    known: dict[str, dict[str, Any]] = {}
    single, buffers = False, tuple[int, ...]()

    def make(case: Case, device: str) -> list[Any]:
        said = dict(known[replace(case, values="normal").id])
        if "seed" in said:
            said["seed"] = (int(said["seed"]) + case.seed) % SEEDS
        with random_state.preserved(), on_cpu(device):
            data = module.generate_input(**said)
        listed = list(data) if isinstance(data, (tuple, list)) else [data]
        listed = [t.to(device) if is_tensor(t) else t for t in listed]
        for i in buffers:
            listed[i].fill_(filler(listed[i].dtype))
        return listed

    def run(args: list[Any]) -> Any:
        with torch.no_grad(), on_cpu(_device(args)):
            return module.ref_kernel(args[0] if single else tuple(args))

    def check(args: list[Any], out: Any) -> str:
        given = args[0] if single else tuple(args)
        with random_state.preserved(), torch.no_grad(), on_cpu(_device(args)):
            return _complaint(module.check_implementation(given, out))

    cases: list[Case] = []
    said = tests_of(task)
    shown = sizes.first_that_fits(
        (lambda t=test: _drawn(module, t) for _, test in said), here().type, path
    )
    single = not isinstance(shown, (tuple, list))
    listed = [shown] if single else list(shown)
    dtype = next(t.dtype for t in listed if is_tensor(t))
    for use, test in said:
        shape = tuple(v for k, v in test.items() if isinstance(v, int) and k != "seed")
        rest = tuple(sorted((k, v) for k, v in test.items() if isinstance(v, str)))
        timed = (TIMED,) if use == "bench" else ()
        case = Case(shape, dtype, (*rest, *timed), use=use)
        if case.id not in known:
            known[case.id] = test
            cases.append(case)
    buffers = _buffers(run, listed)
    how = {
        "data": "single" if single else "tuple",
        "folder": str(path.resolve().parent),
        "buffers": list(buffers),
    }
    own = check if hasattr(module, "check_implementation") else None
    return Problem(make, run, tuple(cases), how, own, buffers)


def _drawn(module: ModuleType, test: dict[str, Any]) -> Any:
    with random_state.preserved(), on_cpu("cpu"):
        return module.generate_input(**test)


def _device(args: list[Any]) -> str:
    return str(next(t for t in args if is_tensor(t)).device)


def _complaint(said: Any) -> str:
    """What a problem's check says is wrong, or "". Collections return (right, message), or only the
    message."""
    right, message = said if isinstance(said, tuple) else (not said, said)
    return "" if right else str(message or "its check rejects it")


def _buffers(run: Callable[[list[Any]], Any], shown: list[Any]) -> tuple[int, ...]:
    """The tensors that receive results: other values in them change nothing that the reference
    returns or writes."""

    def results(change: int | None) -> list[torch.Tensor]:
        args = [copy_of(t) if is_tensor(t) else t for t in shown]
        if change is not None:
            args[change].fill_(filler(args[change].dtype))
        before = [copy_of(t) if is_tensor(t) else t for t in args]
        out = run(args)
        listed = out if isinstance(out, (tuple, list)) else (out,)
        written = [a for a, b in zip(args, before, strict=True) if is_tensor(a) and not _same(a, b)]
        return [t for t in listed if is_tensor(t)] + written

    def unread(i: int) -> bool:
        try:
            got = results(i)
        except Exception:  # noqa: BLE001  an index out of range, say: it is read
            return False
        return all(any(_same(g, w) for g in got) for w in want)

    want = results(None)
    sizes_of = {t.numel() for t in want}
    tensors = [i for i, t in enumerate(shown) if is_tensor(t) and t.numel()]
    fitting = [i for i in tensors if shown[i].numel() in sizes_of]
    return tuple(i for i in fitting if len(tensors) > 1 and unread(i))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (
        a.shape == b.shape
        and a.dtype == b.dtype
        and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    )


def tests_of(task: Path) -> list[tuple[str, dict[str, Any]]]:
    """("verify" or "bench", arguments of `generate_input`) of each test of a task.yml."""
    tests: list[tuple[str, dict[str, Any]]] = []
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
                tests.append((use, {}))
            inner = body[1:-1] if body.startswith("{") else body
            for part in filter(None, (p.strip() for p in inner.split(","))):
                key, _, value = part.partition(":")
                tests[-1][1][key.strip().strip("\"'")] = _value(value.strip())
        except (IndexError, ValueError, SyntaxError):
            raise UsageError(f"--as: {task}:{number}: this test cannot be read: {body}") from None
    if not any(use == "verify" for use, _ in tests):
        raise UsageError(f"--as: {task} has no `tests`")
    return tests


def _value(text: str) -> Any:
    if not text:
        raise ValueError(text)
    if text in ("true", "false"):
        return text == "true"
    return ast.literal_eval(text) if re.match(r"[-\d\"']", text) else text


def operator_of(problem: Problem, name: str, source: str) -> Operator:
    """The problem as an operator: its arguments are numbered, and those that the reference changes
    or that receive results are also results."""
    case = sizes.first_that_fits(
        (lambda c=c: (problem.make(c, "cpu"), c)[1] for c in problem.cases), here().type, source
    )
    shown = problem.make(case, "cpu")
    names = [f"x{i}" for i in range(len(shown))]
    args = map_tensors(dict(zip(names, shown, strict=True)), torch.clone)
    dtypes = {n: v.dtype for n, v in args.items() if is_tensor(v)}
    before = map_tensors(args, torch.clone)
    versions = {n: v._version for n, v in args.items() if is_tensor(v)}
    results = _results(problem, problem.run([*args.values()]), [*args.values()])
    # Uninitialized memory may already contain the result; then only the version shows a write.
    changed = [
        n for i, (n, v) in enumerate(args.items())
        if is_tensor(v)
        and (i in problem.buffers or v._version != versions[n] or not _same(v, before[n]))
    ]  # fmt: skip
    listed = [_declared(n, v, n in changed) for n, v in args.items()]
    given = ", ".join("Tensor y" if len(results) == 1 else f"Tensor y{i}"
                      for i in range(len(results)))  # fmt: skip

    def reference(**values: Any) -> Any:
        if problem.check:  # which decides; a reference may accept only its own dtypes
            own = [v.to(dtypes[n]) if n in dtypes else v for n, v in values.items()]
            got = _results(problem, problem.run(own), own)
            for mine, theirs in zip(own, values.values(), strict=True):
                if is_tensor(theirs):
                    theirs.copy_(mine)
        else:
            got = _results(problem, problem.run([*values.values()]), [*values.values()])
        got = tuple(t.double() if t.is_floating_point() else t for t in got)
        return got[0] if len(got) == 1 else got or None

    def inputs(case: Case, device: str) -> dict[str, Any]:
        if device == "meta":
            raise NotImplementedError("these inputs have values")
        return dict(zip(names, problem.make(case, device), strict=True))

    def outputs(**specs: Any) -> tuple[TensorSpec, ...]:
        fakes = [_zeros(v) for v in specs.values()]
        got = _results(problem, problem.run(fakes), fakes)
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
        got = _results(problem, problem.run([*values]), [*values])
        return got[0] if len(got) == 1 else got or None

    return native


def check_of(problem: Problem, operator: Operator) -> Callable[[dict, tuple], str] | None:
    """The problem's own check as a function of the arguments and of all results of a call."""
    own = problem.check
    if own is None:
        return None

    def check(args: dict[str, Any], results: tuple[Any, ...]) -> str:
        given = [copy_of(v) if is_tensor(v) else v for v in args.values()]
        theirs = [copy_of(v) if is_tensor(v) else v for v in args.values()]
        said = problem.run(theirs)
        listed = list(said) if isinstance(said, (tuple, list)) else [said]
        count = len(operator.results)
        rest, written = (
            list(results[:count]),
            dict(zip(operator.mutated, results[count:], strict=False)),
        )
        names = [*args]
        for i, t in enumerate(listed):
            if is_tensor(t):
                at = receiver(t, theirs, problem.buffers)
                got = rest.pop(0) if at is None and rest else written.get(names[at or 0])
                if got is not None:
                    # in the shape that the reference returns, which the check compares
                    listed[i] = got.reshape(t.shape) if got.numel() == t.numel() else got
        out = type(said)(listed) if isinstance(said, (tuple, list)) else listed[0]
        try:
            why = own(given, out)
        except Exception as e:  # noqa: BLE001  of a result that it cannot compare
            why = f"the problem's check raises {type(e).__name__}: {e}"
        why = shorten(" ".join(why.split()), 200, placeholder=" ...")
        held = [names[i] for i in problem.buffers if written[names[i]].dtype.is_floating_point]
        if why and any(written[n].isnan().any() for n in held):
            verb = "is" if len(held) == 1 else "are"
            why += f" ({', '.join(held)} {verb} uninitialized before the call: NaN here)"
        return why

    return check


def sizes_of(problem: Problem) -> Callable[[Case], tuple[int, int]]:
    """The bytes of a case's arguments and results, and the operations of a call; above the limits
    of this machine, more than each of them. On a GPU only the arguments: the call is not made."""

    @cache
    def size(case: Case) -> tuple[int, int]:
        if here().type == "cuda":
            room = sizes.room_of_gpu()
            try:
                with Meter(room, sizes.ANY):
                    args = problem.make(case, "cuda")
            except TooLarge:
                return 2 * room, 0
            return sum(t.nbytes for t in args if is_tensor(t)), 0  # the results are not known
        most, operations = sizes.LARGEST
        drawing, calling = Meter(2 * most, operations), Meter(8 * most, operations)
        try:
            with drawing:
                args = problem.make(case, "cpu")
            with calling:
                out = _results(problem, problem.run(args), args)
        except TooLarge:
            return 8 * most, 2 * operations
        given = sum(t.nbytes for t in (*args, *out) if is_tensor(t))
        return given, max(calling.operations, drawing.operations)

    return size


def receiver(t: torch.Tensor, args: list[Any], buffers: Sequence[int]) -> int | None:
    """The position of the argument that a returned tensor is, or that it belongs in; or None."""
    tensors = {i: a for i, a in enumerate(args) if is_tensor(a)}
    for i, a in tensors.items():
        if t.numel() and t.numel() == a.numel() and _starts_in(t, a):
            return i
    fitting = (i for i in buffers if tensors[i].numel() == t.numel())
    return next(
        (i for i in fitting if tensors[i].is_floating_point() == t.is_floating_point()), None
    )


def _starts_in(t: torch.Tensor, a: torch.Tensor) -> bool:
    """Whether a tensor begins in an argument's memory. Arguments may share a storage."""
    extent = 1 + sum((n - 1) * s for n, s in zip(a.shape, a.stride(), strict=True))
    return 0 <= t.data_ptr() - a.data_ptr() < extent * a.itemsize


def settled(out: Any, args: list[Any], buffers: Sequence[int]) -> tuple[Any, ...]:
    """The returned values that are not arguments. A tensor that belongs in a buffer is copied to
    it, if the function has not written it there itself."""
    listed = out if isinstance(out, (tuple, list)) else () if out is None else (out,)
    kept: list[Any] = []
    for t in listed:
        at = receiver(t, args, buffers) if is_tensor(t) else None
        if at is None:
            kept.append(t)
        elif args[at].data_ptr() != t.data_ptr() or args[at].stride() != t.stride():
            args[at].copy_(t.detach().clone().reshape(args[at].shape))  # they may overlap
    return tuple(kept)


def _results(problem: Problem, out: Any, args: list[Any]) -> tuple[torch.Tensor, ...]:
    """The returned tensors that are not arguments; changed arguments are results already."""
    return tuple(t for t in settled(out, args, problem.buffers) if is_tensor(t))


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
