"""The function that runs a plan on a GPU, generated for the plan.

A call should cost little more than its allocations and launches. Everything that is determined by
the signature is computed here; values that depend on open sizes are computed when the sizes are
bound. The generated source contains only the rest. `source_of` returns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from struct import pack
from typing import Any

import torch

from kernelwright.contract import Launch, NumbaKernel, Operator, Plan, Pointers, Scalar, TensorMap
from kernelwright.contract.symbolic_int import SymbolicInt, SymbolicStruct, Trace
from kernelwright.machine import gpu_of
from kernelwright.support import generated_code
from kernelwright.support.errors import ToolchainError, refuse_capture

from . import build, cpp_extension, driver, pointer_arrays, redzones, tensor_maps
from .build import Tensors
from .compiled import TENSOR_MAP_BYTES, hidden_parameters
from .workspace import ZeroScratches, places

MOST_LAUNCHERS = 256  # of one open launch, by block, shared memory and cluster
_KINDS = {
    "pointer": "p",
    "i32": "i",
    "i64": "l",
    "f32": "f",
    "f64": "d",
    "struct": "b",
    "tensor_map": "b",
}


def executor(
    plan: Plan,
    operator: Operator,
    specs: dict[str, Any],
    copies: tuple[str, ...],
    device: torch.device,
) -> Callable:
    """Compile and load the plan's kernels, and return the function of the operator's arguments.

    Raises:
        CompiledDuringCapture: the current stream is being captured.
        ToolchainError: see `build.compile` and `driver.function`.
    """
    bind = opened(plan, operator, specs, copies, device, Trace({}))
    run = bind()
    if cpp_extension.loaded is None:
        run.again = bind  # in C++, once that is there
    return run


def can_open(plan: Plan) -> bool:
    """Whether a plan's open sizes reach its kernels through arguments and grids alone."""
    numba = any(isinstance(step.kernel, NumbaKernel) for step in plan.launches)
    return not (_pointers(plan) or numba)


def opened(
    plan: Plan,
    operator: Operator,
    specs: dict[str, Any],
    copies: tuple[str, ...],
    device: torch.device,
    trace: Trace,
) -> Callable[..., Callable]:
    """`bind(*sizes)`, which returns the function of the operator's arguments for these sizes.
    Values that depend on open sizes are computed when they are bound, all others here.

    Raises:
        See `executor`.
    """
    refuse_capture(operator.name)
    if device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    tensors = Tensors(plan, operator, specs)
    scope: dict[str, Any] = {
        "empty": torch._C._dynamo.guards._empty_strided_cuda,
        "current_stream": torch._C._cuda_getCurrentRawStream,
        "current_device": torch._C._cuda_getDevice,
        "on": torch.cuda.device,
        "guarded_empty": redzones.allocator(),
        "device": device,
        "byte": torch.uint8,
        "pack": pack,
        "cpp_extension": cpp_extension,
    }
    for i, step in enumerate(plan.launches):
        launcher, attributes = _launcher(step, tensors, device), _attributes(step)
        if _open(attributes):
            scope[f"launcher{i}"] = launcher  # source_of calls it when the sizes are bound
        else:
            scope[f"launch{i}"] = launcher(*attributes)
    if any(s.zero for s in plan.scratch.values()) and redzones.active is None:
        scope["zero_scratch"] = ZeroScratches(device)
    for i, argument in enumerate(_pointers(plan)):
        scope[f"locate{i}"] = pointer_arrays.Addresses(tensors[argument].numel(), device)
    for i, argument in enumerate(_maps(plan)):
        scope[f"encoded{i}"] = tensor_maps.encoder(argument, tensors, device)
    constants = {n: t.to(device) for n, t in plan.constants.items()}
    scope |= {f"constant_{n}": t.data_ptr() for n, t in constants.items()}
    scope["kept"] = constants
    scope |= {f"spec_{n}": s for n, s in {**tensors.outputs, **tensors.scratch}.items()}
    scope |= {f"dtype_{n}": s.dtype for n, s in tensors.outputs.items()}
    several = torch.cuda.device_count() > 1
    sizes = Sizes()
    run = source_of(plan, operator, tensors, copies, device.index, several=several,
                    guarded=redzones.active is not None, sizes=sizes)  # fmt: skip
    described = None
    if redzones.active is None:
        described = description_of(plan, operator, tensors, copies, sizes)
    in_cpp = [
        "if cpp_extension.loaded is not None:",
        f"    return cpp_extension.loaded.plan(device, kept, {described})",
    ] if described else []  # fmt: skip
    lines = [f"def bind({', '.join(trace.values)}):", *sizes.lines, *in_cpp, *run.splitlines(),
             "return run"]  # fmt: skip
    return generated_code.function("\n    ".join(lines) + "\n", "bind", scope, operator.name)


def source_of(
    plan: Plan,
    operator: Operator,
    tensors: Tensors,
    copies: tuple[str, ...],
    index: int,
    *,
    several: bool,
    guarded: bool,
    sizes: Sizes | None = None,
) -> str:
    """Source of `run(...)`. Its workspace is one allocation, which holds every scratch tensor.

    Args:
        index: the index of the device that holds the call's tensors.
        several: whether the machine has other GPUs, one of which may be the current device.
        guarded: allocate with red zones.
        sizes: gives the source of sizes, by name if they are open.
    """
    known = sizes or Sizes()
    listed = ", ".join(a.name for a in operator.args)
    zero = [n for n, s in plan.scratch.items() if s.zero]
    names: dict[str | Pointers, str] = {p: f"pointers{i}" for i, p in enumerate(_pointers(plan))}
    body = [f"given_{n}, {n} = {n}, {n}.contiguous()" for n in copies]
    if guarded:
        for n in (*tensors.outputs, *tensors.scratch):
            facts = f"result={n in tensors.outputs}, zero={n in zero}"
            body.append(f"{n} = guarded_empty({n!r}, spec_{n}, device, {facts})")
    else:
        for n, spec in tensors.outputs.items():
            body.append(f"{n} = empty({known(spec.shape)}, {known(spec.strides)}, dtype_{n})")
        if len(zero) < len(tensors.scratch):
            offsets, size = places({n: s for n, s in tensors.scratch.items() if n not in zero})
            body.append(f"workspace = empty(({known(size)},), (1,), byte)")
            body.append("start = workspace.data_ptr()")
            names |= {n: f"start + {known(offset)}" for n, offset in offsets.items()}
    body.append(f"stream = current_stream({index})")
    if zero and not guarded:
        offsets, size = places({n: tensors.scratch[n] for n in zero})
        known.bound["zeroed"] = f"zero_scratch({known(size)})"
        body.append("zero = zeroed(stream)")
        names |= {n: f"zero + {known(offset)}" for n, offset in offsets.items()}
    for i, p in enumerate(_pointers(plan)):
        body.append(f"pointers{i} = locate{i}(stream, ({', '.join(p.lists)},))")
    names |= {n: f"constant_{n}" for n in plan.constants}
    maps = _maps(plan)
    for i, m in enumerate(maps):
        known.bound[f"map{i}"] = f"encoded{i}({known((m.shape, m.strides, m.box))})"
    for i, step in enumerate(plan.launches):
        attributes = _attributes(step)
        if _open(attributes):
            known.bound[f"launch{i}"] = f"launcher{i}({', '.join(map(known, attributes))})"
        values = [_expression(a, names, maps, known) for a in step.args]
        if _open(step.grid):
            values = [*map(known, step.grid), *values]
        body.append(f"launch{i}({', '.join(['stream', *(v for v in values if v)])})")
    body += [f"given_{n}.copy_({n})" for n in copies if n in operator.mutated]
    if tensors.outputs:
        body.append(f"return {', '.join(tensors.outputs)}")
    elsewhere = (
        [f"if current_device() != {index}:", f"    with on({index}):",
         f"        return run({listed})"] if several else []
    )  # fmt: skip
    return "\n    ".join([f"def run({listed}):", *elsewhere, *body]) + "\n"


def description_of(
    plan: Plan,
    operator: Operator,
    tensors: Tensors,
    copies: tuple[str, ...],
    known: Sizes,
) -> str | None:
    """The source of the arguments of cpp_extension/plan.h's Plan, without the first two, that do
    the same as `run`; None if C++ cannot: arrays of pointers, Numba's kernels, changed copies."""
    if _pointers(plan) or set(copies) & set(operator.mutated):
        return None
    maps = _maps(plan)
    if any(isinstance(step.kernel, NumbaKernel) for step in plan.launches):
        return None
    places_of = {a.name: i for i, a in enumerate(operator.args)}
    sources = {n: f"('a', {i})" for n, i in places_of.items()}
    sources |= {n: f"('r', {i})" for i, n in enumerate(tensors.outputs)}
    sources |= {n: f"('n', constant_{n})" for n in plan.constants}
    zero = {n: s.spec for n, s in plan.scratch.items() if s.zero}
    offsets, size = places({n: s for n, s in tensors.scratch.items() if n not in zero})
    sources |= {n: f"('w', {known(offset)})" for n, offset in offsets.items()}
    sources |= {n: f"('z', {known(offset)})" for n, offset in places(zero)[0].items()}
    launches = []
    for i, step in enumerate(plan.launches):
        given = []
        for a in step.args:
            if isinstance(a, Scalar):
                given.append(_scalar_source(a, places_of, known))
            elif isinstance(a, TensorMap) and a.tensor in sources:
                layout = f"map{maps.index(a)}.layout"
                given.append(f"('m', {sources[a.tensor][:-1]}, {a.tensor!r}, {layout}))")
            elif a in sources:
                given.append(sources[a])
            else:
                return None  # an element of a list
        grid = known(step.grid) if _open(step.grid) else None
        launches.append(f"(launch{i}, {grid}, {_tuple(filter(None, given))})")
    results = (
        f"({known(s.shape)}, {known(s.strides)}, dtype_{n})" for n, s in tensors.outputs.items()
    )
    copied = _tuple(str(places_of[n]) for n in copies)
    zeroed = "zeroed" if zero else None
    return f"{_tuple(results)}, {copied}, {known(size)}, {zeroed}, {_tuple(launches)}"


def _scalar_source(scalar: Scalar, places_of: dict[str, int], known: Sizes) -> str | None:
    """The source of a number of a launch, or None if the launcher stores it."""
    if isinstance(scalar.value, str):
        return f"('v', {places_of[scalar.value]})"
    if isinstance(scalar.value, (SymbolicInt, SymbolicStruct, bytes)):
        return f"('n', {known(scalar.value)})"
    return None


def _tuple(items: Iterable[str]) -> str:
    return f"({''.join(f'{item}, ' for item in items)})"


class Sizes:
    """Writes sizes as source text: an open size as a name. `lines` are the statements that compute
    the open sizes when a plan is bound and then the values in `bound`, by name."""

    def __init__(self):
        self._names: dict[str, str] = {}
        self.bound: dict[str, str] = {}

    def __call__(self, value: Any) -> str:
        if isinstance(value, tuple) and _open(value):
            return f"({''.join(f'{self(v)}, ' for v in value)})"
        if not isinstance(value, (SymbolicInt, SymbolicStruct)):
            return repr(value)
        return self._names.setdefault(value.source, f"size{len(self._names)}")

    @property
    def lines(self) -> list[str]:
        sizes = [f"{name} = {source}" for source, name in self._names.items()]
        return sizes + [f"{name} = {source}" for name, source in self.bound.items()]


def _open(values: tuple[Any, ...]) -> bool:
    return any(isinstance(v, SymbolicInt) or (isinstance(v, tuple) and _open(v)) for v in values)


def _expression(
    argument: str | Scalar | Pointers | TensorMap,
    names: dict[str | Pointers, str],
    maps: list[TensorMap],
    known: Sizes,
) -> str | None:
    """The source of what a call passes for a kernel's argument, or None if the launcher stores the
    value. `names` maps arguments whose values are already computed to their names."""
    if isinstance(argument, TensorMap):
        return f"map{maps.index(argument)}[{_expression(argument.tensor, names, maps, known)}]"
    if isinstance(argument, Scalar):
        if isinstance(argument.value, (SymbolicInt, SymbolicStruct)):
            return known(argument.value)
        if isinstance(argument.value, bytes):  # the launcher stores its size
            return repr(argument.value)
        return argument.value if isinstance(argument.value, str) else None
    return names.get(argument) or f"{argument}.data_ptr()"


def _pointers(plan: Plan) -> tuple[Pointers, ...]:
    """The plan's Pointers arguments, without duplicates."""
    found = (a for step in plan.launches for a in step.args if isinstance(a, Pointers))
    return tuple(dict.fromkeys(found))


def _maps(plan: Plan) -> list[TensorMap]:
    """The plan's TensorMap arguments, without duplicates. Open sizes in them have no hash."""
    found: list[TensorMap] = []
    for a in (a for step in plan.launches for a in step.args):
        if isinstance(a, TensorMap) and a not in found:
            found.append(a)
    return found


def _attributes(step: Launch) -> tuple[Any, ...]:
    """What a launch has besides its grid and arguments, as `_launcher`'s function takes it: block,
    dynamic shared memory, cluster."""
    return step.block, step.shared, getattr(step.kernel, "cluster", 1)


def _launcher(step: Launch, tensors: Tensors, device: torch.device) -> Callable[..., Callable]:
    """`launcher(block, shared, cluster)`, which returns `launch(stream, ...)` for one launch of a
    plan. The kernel is compiled here; only the attributes may depend on open sizes."""
    if isinstance(step.kernel, NumbaKernel):
        from . import numba_rt

        launch = numba_rt.launcher(step, tensors, device)
        return lambda *_: launch
    gpu = gpu_of(device)
    assert gpu is not None and device.index is not None, device
    index, name = device.index, build.name_of(step.kernel)
    cluster = getattr(step.kernel, "cluster", 1)
    if step.grid[0] % cluster:
        raise ToolchainError(
            f"{name}: a grid of {step.grid[0]} blocks is not a multiple of the cluster of {cluster}"
        )
    compiled = build.compile(step, tensors, gpu.arch)
    kinds = step.kinds
    hidden = hidden_parameters(compiled, kinds)
    parameters = [(_KINDS[k], _fixed(a)) for k, a in zip(kinds, step.args, strict=True)]
    open_grid = _open(step.grid)
    # CUDA graphs can record it since CUDA 12.3
    overlaps = step.overlaps and gpu.capability >= (9, 0) and driver.version() >= (12, 3)

    def launcher(block: tuple[int, int, int], shared: int, cluster: int) -> Callable:
        shared = compiled.shared or shared
        return driver.launchers().Launcher(
            name,
            driver.function(compiled, index, shared, cluster),
            driver.context(index),
            (1, 1, 1) if open_grid else step.grid,
            (compiled.threads, 1, 1) if compiled.threads else block,
            shared,
            cluster,
            overlaps,
            (*parameters, *[("p", 0)] * hidden),
            open_grid,
        )

    return lru_cache(MOST_LAUNCHERS)(launcher)


def _fixed(argument: str | Scalar | Pointers | TensorMap) -> int | float | None:
    """The part of an argument that the launcher stores: its value, the size of a struct or tensor
    map, or None."""
    if isinstance(argument, TensorMap):
        return TENSOR_MAP_BYTES
    if isinstance(argument, Scalar) and isinstance(argument.value, bytes):
        return len(argument.value)
    if isinstance(argument, Scalar) and isinstance(argument.value, SymbolicStruct):
        return argument.value.size
    if isinstance(argument, Scalar) and not isinstance(argument.value, (str, SymbolicInt)):
        return argument.value
    return None
