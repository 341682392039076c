"""What a kernel is judged as: an operator of Kernelwright, or one defined in a file of 30 lines.

A spec is a Python file with a `reference`; everything else has a default:

    def reference(x, weight, eps: float = 1e-6): ...   # plain PyTorch that runs in float64
    def inputs(case, device): ...       # default: a random tensor for each argument without type
    cases = [(4096, 4096), ...]         # default: adversarial ones, and two to time
    def cost(**specs): ...              # default: read every argument, write every result
    def native(...): ...                # default: the reference in the arguments' own dtype

Unlike a kernel, a spec runs in this process: use only a spec that you would run yourself.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from kernelwright.contract import Case, Cost, Ladder, Operator, Rung, TensorSpec, case
from kernelwright.contract.inputs import adversarial, tensor
from kernelwright.dispatch import entry_of, ladder, ladders
from kernelwright.support.errors import UsageError
from kernelwright.workbench.verify.candidate import all_results, map_tensors, tensors

from . import formats

KINDS = {int: "int", float: "float", bool: "bool", str: "str"}


@dataclass(frozen=True)
class Subject:
    """Attributes:
    name: the operator's name as given by the user, "softmax" or "my_spec.py".
    native: PyTorch's own function, called with the arguments in the schema's order.
    ladder: None if Kernelwright has no such ladder.
    solution: how the kernel of a problem of another collection is called (see `formats`); None for
        the operator's own arguments.
    check: a problem's own check, which decides in place of the error budget: what is wrong with the
        results of a call, given its arguments, or "".
    sizes: (bytes, operations) of a case of a problem, whose inputs are not known without values.
    reduced: how a problem's sizes were reduced for a CPU, in words, or "".
    """

    name: str
    operator: Operator
    native: Callable[..., Any]
    ladder: Ladder | None = None
    solution: dict[str, Any] | None = None
    check: Callable[[dict[str, Any], tuple[Any, ...]], str] | None = None
    sizes: Callable[[Case], tuple[int, int]] | None = None
    reduced: str = ""

    def of(self, args: dict[str, Any]) -> dict[str, Any]:
        """All arguments in the schema's order."""
        return self.operator.with_defaults(args)


def subject_of(what: str | Path | Ladder) -> Subject:
    """The subject for an operator's name, a spec's file or a ladder.

    Raises:
        UsageError: the file does not exist, or defines no operator.
        UnknownOperator: an unknown name; the message lists the known ones.
    """
    if isinstance(what, Ladder):
        return Subject(what.name, what.operator, entry_of(what, what.rung("native")), what)
    if str(what).endswith((".py", ".yml")) or Path(what).is_dir():
        return _of_file(Path(what))
    import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]

    return subject_of(ladder(str(what)))


def backward_of(subject: Subject) -> Subject:
    """The operator's backward.

    Raises:
        UsageError: it has none; for a user's spec, the backward is a separate spec.
    """
    for candidate in ladders():
        if subject.ladder and candidate.name == f"{subject.operator.name}.backward":
            return subject_of(candidate)
    raise UsageError(f"--backward: {subject.name} has no backward operator; try --autograd")


def with_gradients(subject: Subject) -> Subject:
    """The gradients of an operator in its floating-point arguments, as an operator: it takes the
    arguments and the results' gradients, and returns gradients. Its reference is autograd of the
    operator's reference."""
    op = subject.operator
    if op.mutated:
        raise UsageError(f"--autograd: {op.name} changes its arguments and has no gradient")
    shown = min(op.cases, key=lambda c: c.numel)
    given = subject.of(op.inputs(shown, "cpu"))  # targets and indices have no gradient
    wanted = [
        a.name for a in op.args
        if a.kind in ("Tensor", "Tensor?") and (given[a.name] is None or _floating(given[a.name]))
    ]  # fmt: skip

    def split(args: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
        given = {k: v for k, v in args.items() if k[:5] != "grad_"}
        return given, [v for k, v in args.items() if k[:5] == "grad_" and v is not None]

    def gradients(fn: Callable, args: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        given, gys = split(args)
        given = {
            k: v.detach().requires_grad_() if k in wanted and _floating(v) else v
            for k, v in given.items()
        }
        leaves = [v for v in given.values() if isinstance(v, torch.Tensor) and v.requires_grad]
        with torch.enable_grad():
            out = all_results(op, given, fn(given))[: len(gys)]
        return torch.autograd.grad(out, leaves, gys)

    def inputs(c: Case, device: str) -> dict[str, Any]:
        given = subject.of(op.inputs(c, device))
        out = all_results(op, given, subject.native(*given.values()))
        # saved statistics receive no gradient
        gy = tensor(c, "gy", device, shape=tuple(out[0].shape), dtype=out[0].dtype)
        return {**given, f"grad_{op.results[0]}": gy}

    def outputs(**args: Any) -> tuple[TensorSpec, ...]:
        given = [args[n] for n in wanted if args[n] is not None]
        return tuple(TensorSpec.contiguous(t.shape, t.dtype) for t in given if _floating(t))

    def cost(**args: Any) -> Cost:
        given, gys = split(args)
        specs = [t for t in (*given.values(), *gys) if isinstance(t, TensorSpec)]
        return Cost(tuple(t.nbytes for t in specs), tuple(t.nbytes for t in outputs(**args)))

    results = ", ".join(f"Tensor g{n}" for n in wanted)
    listed = op.schema.rsplit("->", 1)[0].strip()[1:-1]
    listed = re.sub(r"=(\[[^]]*\]|[^,]*)", "", listed)  # arguments without defaults follow
    operator = Operator(
        name=f"{op.name}.autograd",
        schema=f"({listed}, Tensor grad_{op.results[0]}) -> ({results})",
        reference=lambda **args: gradients(lambda g: op.reference(**g), args),
        inputs=inputs,
        cases=tuple(c for c in op.cases if c.dtype.is_floating_point),
        cost=cost,
        outputs=outputs,
        layout="any",
        source=f"autograd of {op.source or op.name}",
    )

    def native(*values: Any) -> Any:
        args = dict(zip((a.name for a in operator.args), values, strict=True))
        return gradients(lambda g: subject.native(*g.values()), args)

    return Subject(f"{subject.name}, its gradients", operator, native)


def first_results(subject: Subject, count: int) -> Subject:
    """The operator without its last results: a norm that does not return its statistic."""
    op = subject.operator
    inputs, results = op.schema.rsplit("->", 1)
    kept = ", ".join(results.strip()[1:-1].split(", ")[:count])

    def few(out: Any) -> Any:
        return out[0] if count == 1 else out[:count]

    noise = op.noise
    operator = replace(
        op,
        schema=f"{inputs}-> ({kept})",
        reference=lambda **args: few(op.reference(**args)),
        outputs=lambda **args: op.outputs(**args)[:count],
        noise=None if noise is None else lambda **args: noise(**args)[:count],
        properties={},
    )
    return replace(subject, operator=operator, native=lambda *args: few(subject.native(*args)))


def _floating(t: Any) -> bool:
    return getattr(t, "dtype", torch.int8).is_floating_point


def _of_file(path: Path) -> Subject:
    task = path if path.suffix == ".yml" else (path if path.is_dir() else path.parent) / "task.yml"
    path = task.parent / "reference.py" if path.suffix != ".py" else path
    if not path.is_file():
        raise UsageError(f"--as: there is no file {path}")
    spec = importlib.util.spec_from_file_location(f"kernelwright_spec_{path.stem}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    try:
        folder = path.resolve().parent  # it may import from its folder and the parent
        with own_imports(folder, folder.parent):
            spec.loader.exec_module(module)
    except Exception as e:
        at = [f for f in traceback.extract_tb(e.__traceback__) if f.filename == str(path)]
        where = f"{path}:{at[-1].lineno}: " if at else ""
        raise UsageError(f"--as: {where}{type(e).__name__}: {e}") from e
    problem = None
    if formats.is_kernelbench(module):
        problem = formats.kernelbench(module, path)
    elif formats.is_gpu_mode(module):
        if not task.is_file():
            raise UsageError(f"--as: {path} has no task.yml in its folder, which lists the tests")
        problem = formats.gpu_mode(module, path, task)
    if problem:
        name = path.stem if formats.is_kernelbench(module) else path.resolve().parent.name
        operator = formats.operator_of(problem, name, str(path))
        native = formats.native_of(problem)
        owner = _ladder(operator, module, path, native)
        return Subject(
            str(path),
            operator,
            native,
            owner,
            problem.solution,
            formats.check_of(problem, operator),
            formats.sizes_of(problem),
            problem.reduced,
        )
    operator = _operator(module, path)
    given = getattr(module, "native", None)

    def by_name(*values: Any) -> Any:
        named = dict(zip((a.name for a in operator.args), values, strict=True))
        return operator.reference(**named)

    return Subject(
        str(path), operator, given or by_name, _ladder(operator, module, path, given or by_name)
    )


@contextmanager
def own_imports(*folders: Path) -> Generator[None]:
    """Import from some folders in the block. Their modules are forgotten afterwards, because
    another problem has others of the same names."""
    paths, before = [str(f) for f in folders], set(sys.modules)
    sys.path[:0] = paths
    try:
        yield
    finally:
        del sys.path[: len(paths)]
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and str(Path(file).parent) in paths:
                del sys.modules[name]


def _ladder(operator: Operator, module: ModuleType, path: Path, native: Callable) -> Ladder:
    """A ladder of one rung, so that a spec's operator is timed like any other: its folder is
    treated as a package, and the spec as a module in it that contains the rung."""
    folder = path.resolve().parent
    package = f"kernelwright_specs_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    package_module = ModuleType(package)
    package_module.__spec__ = ModuleSpec(package, None, origin=str(folder / "__init__.py"))
    sys.modules.setdefault(package, package_module)
    module.__dict__["judged_native"] = native
    sys.modules[f"{package}.{path.stem}"] = module
    rung = Rung("native", "torch", f"{path.stem}:judged_native", "PyTorch, as in the spec")
    return Ladder(operator, (rung,), package, lambda gpu, **specs: (), lambda **specs: "")


def _operator(module: ModuleType, path: Path) -> Operator:
    reference = getattr(module, "reference", None)
    if not callable(reference):
        raise UsageError(
            f"--as: {path} has no function `reference`; kernelwright new --spec NAME writes a spec"
        )
    parameters = list(inspect.signature(reference, eval_str=True).parameters.values())
    dtypes = getattr(module, "dtypes", (torch.float32, torch.float16, torch.bfloat16))
    cases = _cases(getattr(module, "cases", None), dtypes)
    inputs = getattr(module, "inputs", None) or _inputs(parameters)
    schema = getattr(module, "schema", None)
    if schema is None:
        schema = _schema(parameters, reference, inputs, cases[0], path)
    names = list(inspect.signature(reference).parameters)

    def outputs(**args: Any) -> tuple[TensorSpec, ...]:
        fakes = map_tensors(args, lambda t: t)
        fakes = {k: _meta(v) for k, v in fakes.items() if k in names}
        out = reference(**fakes)
        out = out if isinstance(out, tuple) else (out,)
        return tuple(TensorSpec(tuple(t.shape), tuple(t.stride()), t.dtype) for t in out)

    outputs = getattr(module, "outputs", None) or outputs

    def cost(**args: Any) -> Cost:
        read = [t.nbytes for v in args.values() for t in (v if isinstance(v, list) else [v])
                if isinstance(t, TensorSpec)]  # fmt: skip
        return Cost(tuple(read), tuple(t.nbytes for t in outputs(**args)))

    return Operator(
        name=getattr(module, "name", path.stem),
        schema=schema,
        reference=reference,
        inputs=inputs,
        cases=cases,
        cost=getattr(module, "cost", cost),
        outputs=outputs,
        layout="any",
        properties=getattr(module, "properties", {}),
        exact=getattr(module, "exact", False),
        noise=getattr(module, "noise", None),
        source=str(path),
    )


def _cases(given: Any, dtypes: tuple[torch.dtype, ...]) -> tuple[Case, ...]:
    """Given cases unchanged; each given shape becomes a case to time in each dtype."""
    if given is None:
        given = (*adversarial(dtypes=dtypes), (4096, 768), (8192, 8192))
    cases: list[Case] = []
    for c in given:
        cases += [c] if isinstance(c, Case) else [case(c, d, use="bench") for d in dtypes]
    if not cases:
        raise UsageError("--as: its `cases` are empty")
    return tuple(cases)


def _inputs(parameters: list[inspect.Parameter]) -> Callable[[Case, str], dict[str, Any]]:
    """A random tensor of the case's shape for each argument not annotated as a number."""

    def inputs(c: Case, device: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        for p in parameters:
            if p.annotation in KINDS:
                default = None if p.default is p.empty else p.default
                arguments[p.name] = c.param(p.name, default)
            else:
                arguments[p.name] = tensor(c, p.name, device)
        return arguments

    return inputs


def _schema(parameters, reference, inputs, c: Case, path: Path) -> str:
    """The schema, from the reference's signature and its results on the first case."""
    listed = [f"{KINDS.get(p.annotation, 'Tensor')} {p.name}{_default(p)}" for p in parameters]
    try:
        arguments = inputs(replace(c, shape=tuple(min(s, 8) for s in c.shape)), "cpu")
        out = reference(**arguments)
    except Exception as e:
        raise UsageError(f"--as: {path}: on its first case, {type(e).__name__}: {e}") from e
    if not tensors({"out": list(out) if isinstance(out, tuple) else out}):
        raise UsageError(f"--as: {path}: `reference` returns no tensor")
    for i, p in enumerate(parameters):
        if isinstance(arguments[p.name], list):
            listed[i] = f"Tensor[] {p.name}"
    many = len(out) if isinstance(out, tuple) else 1
    results = ", ".join("Tensor y" if many == 1 else f"Tensor y{i}" for i in range(many))
    return f"({', '.join(listed)}) -> ({results})"


def _default(p: inspect.Parameter) -> str:
    """A number's default, as written in a schema."""
    if p.annotation not in (int, float, bool) or p.default is p.empty:
        return ""
    return f"={p.annotation(p.default)}"


def _meta(v: Any) -> Any:
    if isinstance(v, list):
        return [_meta(t) for t in v]
    if not hasattr(v, "stride"):
        return v
    return torch.empty_strided(v.shape, tuple(v.stride()), dtype=v.dtype, device="meta")
