"""The savings of fusion: kernels and DRAM accesses, counted on any machine, and times on this one.

Without fusion, every operator is a kernel that reads its operands from memory and writes its result
back. A fused chain of elementwise operators reads only its inputs and writes only its outputs.
`rows()` returns the counts shown in the report; `measure()` adds the times on this machine.

    python -m kernelwright.workbench.bench.fusion [--record]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import kernelwright as kw
from kernelwright.machine import clock, here, profiler, random_state, slug
from kernelwright.ops.elementwise.gelu import torch_rungs
from kernelwright.ops.elementwise.glu.torch_rungs import native_swiglu, native_swiglu_backward
from kernelwright.toolchain import inductor
from kernelwright.workbench.records.records import Record, save

from .bench import environment, new_run


@dataclass(frozen=True)
class Work:
    """The kernels and the memory traffic of a function.

    Attributes:
        kernels: operators that launch one; views and allocations do not.
        reads, writes: tensors that cross DRAM, one for each operand and result of a kernel.
        bytes: the bytes of all reads and writes.
    """

    kernels: int
    reads: int
    writes: int
    bytes: int

    @property
    def accesses(self) -> int:
        return self.reads + self.writes


@dataclass(frozen=True)
class Row:
    """One variant of an example. If it was measured, `seen` is the number of kernels in the
    profiler (GPUs only), `cold` samples in microseconds per call with operands in DRAM."""

    example: str
    way: str
    work: Work
    seen: int | None = None
    cold: tuple[float, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "accesses": self.work.accesses}


def count(fn: Callable, *args: Any) -> Work:
    """Run `fn`, and count its operators' kernels and the bytes that they move."""
    return _total(_steps(fn, *args))


def fused(fn: Callable, *args: Any) -> Work:
    """The counts for one fused kernel: inputs are read, outputs are written.

    Raises:
        ValueError: an operator of `fn` is not elementwise, so one kernel may not suffice.
    """
    steps = _steps(fn, *args)
    for step in steps:
        if not step.elementwise:
            raise ValueError(f"fn: {step.name} is not elementwise")
    written = {key for step in steps for key in step.writes}
    taken = {key for step in steps for key in step.reads} - written
    used = {key for step in steps for key in step.reads}
    sizes = {k: n for step in steps for k, n in (step.reads | step.writes).items()}
    reads = {k: sizes[k] for k in taken}
    writes = {k: sizes[k] for k in written - used}
    return _total([_Step("fused", reads, writes, True)])


@dataclass(frozen=True)
class _Step:
    """One kernel: bytes by storage, so that x * x reads x once."""

    name: str
    reads: dict[int, int]
    writes: dict[int, int]
    elementwise: bool


def _total(steps: list[_Step]) -> Work:
    moved = [b for s in steps for b in (*s.reads.values(), *s.writes.values())]
    reads, writes = sum(len(s.reads) for s in steps), sum(len(s.writes) for s in steps)
    return Work(len(steps), reads, writes, sum(moved))


class _Listener(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.steps: list[_Step] = []
        self.alive: list[torch.Tensor] = []  # so that no address is reused for another tensor

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Compiled functions run compiled under this mode."""
        return True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        has_tensor = any(isinstance(t, torch.Tensor) for t in tree_leaves(out))
        if has_tensor and not func.is_view and "empty" not in func.__name__:
            tags = func.tags
            conversion = func.namespace == "aten" and func.__name__.startswith("_to_copy")
            elementwise = torch.Tag.pointwise in tags or conversion
            reads, writes = self._bytes((args, kwargs)), self._bytes(out)
            self.steps.append(_Step(str(func), reads, writes, elementwise))
        return out

    def _bytes(self, tree) -> dict[int, int]:
        sizes = {}
        for t in tree_leaves(tree):
            if isinstance(t, torch.Tensor) and t.ndim:
                self.alive.append(t)
                once = [n for n, s in zip(t.shape, t.stride(), strict=True) if s]
                sizes[t.untyped_storage().data_ptr()] = torch.Size(once).numel() * t.itemsize
        return sizes


def _steps(fn: Callable, *args: Any) -> list[_Step]:
    with torch.no_grad(), _Listener() as listener:
        fn(*args)
    return listener.steps


# The examples. Under torch.compile kw.gelu shows its formula, so that it fuses with the addition.


def manual(x):
    return torch_rungs.manual(x, "tanh")


def operator(x):
    return kw.gelu(x, "tanh")


def with_bias(x, bias):
    return kw.gelu(x + bias, "tanh")


def biased_formula(x, bias):
    return torch_rungs.native(x + bias, "tanh")


# Dropout: PyTorch's writes a mask, one byte per element; ours draws a seed, a one-element kernel.


def dropout_add(x, bias, residual):
    return torch.native_dropout(x + bias, 0.1, True)[0] + residual


def fused_dropout_add(x, bias, residual):
    return kw.bias_dropout_add(x, bias, residual, 0.1)


def normalised_chain(x, bias, residual):
    normal = torch.nn.functional.layer_norm(x, bias.shape, bias, bias)
    dropped = torch.native_dropout(normal + residual, 0.1, True)[0]
    return torch.nn.functional.gelu(dropped)


def fused_chain(x, bias, residual):
    return kw.layer_norm_residual_dropout_gelu(x, residual, bias.shape, bias, bias, 0.1)


@dataclass(frozen=True)
class _Way:
    """One variant of an example: the function to count and the one to time. Both take `inputs`."""

    example: str
    name: str
    work: Callable[..., Work]
    call: Callable[[torch.device], Callable]


def _counted(example: str, name: str, fn: Callable, arguments: int) -> _Way:
    """A variant that takes the first `arguments` of the inputs; the counted function is timed."""
    return _Way(
        example,
        name,
        lambda *given: count(fn, *given[:arguments]),
        lambda device: lambda *given: fn(*given[:arguments]),
    )


def _ways() -> list[_Way]:
    swiglu_backward = torch.ops.kernelwright.swiglu_backward
    return [
        _counted("gelu(x)", "an operator a kernel", manual, 1),
        _counted("gelu(x)", "kw.gelu", operator, 1),
        _counted("gelu(x + bias)", "two kernels", with_bias, 2),
        _Way(
            "gelu(x + bias)",
            "kw.gelu under torch.compile",
            lambda x, bias, *rest: fused(biased_formula, x, bias),
            lambda device: _first_two(inductor.compiled(with_bias, device)),
        ),
        _counted("gelu(x + bias)", "kw.bias_gelu", lambda x, b: kw.bias_gelu(x, b, "tanh"), 2),
        _counted("dropout(x + bias) + residual", "three kernels", dropout_add, 3),
        _counted("dropout(x + bias) + residual", "kw.bias_dropout_add", fused_dropout_add, 3),
        _counted("layer_norm, residual, dropout, gelu", "four kernels", normalised_chain, 3),
        _counted("layer_norm, residual, dropout, gelu", "one kernel", fused_chain, 3),
        _counted("swiglu", "PyTorch's operators", _glu(native_swiglu), 4),
        _counted("swiglu", "kw.swiglu", _glu(kw.swiglu), 4),
        _counted("swiglu.backward", "PyTorch's operators", _glu(native_swiglu_backward, 3), 4),
        _counted("swiglu.backward", "kw.swiglu", _glu(swiglu_backward, 3), 4),
    ]


def _first_two(fn: Callable) -> Callable:
    return lambda x, bias, *rest: fn(x, bias)


def _glu(fn: Callable, tensors: int = 2) -> Callable:
    """A function of two or three activations, in any order, without the bias."""
    return lambda x, bias, *more: fn(*(x, *more)[:tensors])


def inputs(device: torch.device) -> tuple[torch.Tensor, ...]:
    """(x, bias, up, incoming gradient) of GPT-2's MLP, bfloat16: 32 x 1024 tokens, 256 on a CPU."""
    tokens = 32 * 1024 if device.type == "cuda" else 256
    x, up, gy = (torch.randn(tokens, 3072, dtype=torch.bfloat16, device=device) for _ in range(3))
    return x, torch.randn(3072, dtype=torch.bfloat16, device=device), up, gy


def rows(device: torch.device | None = None) -> list[Row]:
    """The counts of each variant. No GPU is needed, because operators are counted, not launches."""
    given = inputs(device or torch.device("cpu"))
    return [Row(w.example, w.name, w.work(*given)) for w in _ways()]


@random_state.preserved()
def measure(device: torch.device, rule: clock.StoppingRule | None = None) -> list[Row]:
    """The counts, with this machine's measurements: kernels in the profiler, time with cold
    operands."""
    timed_rows = rows(device)
    x, bias, *more = inputs(device)
    with clock.session(device):
        sets = [(x.clone(), bias, *more) for _ in range(clock.rotations(2 * x.nbytes, device))]
        calls = [way.call(device) for way in _ways()]
        timed = clock.measure(
            [
                clock.Candidate(f"{r.example}: {r.way}", [_on(call, *s) for s in sets])
                for r, call in zip(timed_rows, calls, strict=True)
            ],
            device,
            rule,
        )
        seen = [kernels_seen(call, x, bias, *more) if x.is_cuda else None for call in calls]
    out = []
    for row, kernels in zip(timed_rows, seen, strict=True):
        times = timed.times[f"{row.example}: {row.way}"]
        if times.error:
            raise RuntimeError(f"{row.example}, {row.way}: {times.error}")
        out.append(replace(row, seen=kernels, cold=times.cold))
    return out


def _on(call: Callable, *args: Any) -> Callable[[], Any]:
    def once():
        with torch.no_grad():
            return call(*args)

    return once


def kernels_seen(fn: Callable, *args: Any) -> int:
    """The number of kernels that the profiler reports for one warm call on a GPU."""
    from torch.profiler import ProfilerActivity, profile

    profiler.prepare()
    with torch.no_grad():
        fn(*args)
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            fn(*args)
            torch.cuda.synchronize()
    on_gpu = [e.name for e in profiled.events() or () if e.device_type.name == "CUDA"]
    return sum(not name.startswith(("Memcpy", "Memset")) for name in on_gpu)


def to_records(timed: list[Row], machine: str, run: str) -> list[Record]:
    """Measured rows as records of the operator "fusion": the rung is the variant, the case is the
    example, and `why` has the number of kernels in the profiler."""
    return [
        Record(
            "fusion",
            r.way,
            r.example,
            machine,
            run,
            "pass",
            why="" if r.seen is None else f"{r.seen} kernels seen by the profiler",
            cold=r.cold,
            bytes=r.work.bytes,
        )
        for r in timed
    ]


def main() -> None:
    device = here()
    timed = measure(device)
    for r in timed:
        print(json.dumps(r.as_json()))
    if sys.argv[1:] == ["--record"]:
        run = new_run()
        save(to_records(timed, slug(device), run), environment(run, device))


if __name__ == "__main__":
    main()
