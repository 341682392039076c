"""Compares calls of operators in C++ and in Python on a GPU, bit for bit, and records which agree.

    python -m tools.prove_calls                     every operator, up to 60 s
    python -m tools.prove_calls softmax gelu --into DIR --seconds 20

The record is DIR/<machine>/calls.json; DIR is the folder of the records by default. Only operators
in the record of the current source are called in C++ (dispatch/native_calls.py). Random cases of
each operator are called with and without gradients, on another stream, under autocast, in inference
mode and captured in a CUDA graph. Results, gradients and errors must be the same. An operator is
recorded if all of its calls agree and C++ launched some of them. Several processes share the GPU,
since most of the time goes into compiling kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright.contract import Operator
from kernelwright.dispatch import binding, data, ladder, native_calls
from kernelwright.machine import facts, here, slug
from kernelwright.toolchain import cpp_extension
from kernelwright.workbench.records import records

#: The operators to compare first, since time may run out.
FIRST = (
    *("softmax", "layer_norm", "rms_norm", "gelu", "add", "mul", "swiglu", "silu", "add_rms_norm"),
    *("cross_entropy", "add_layer_norm", "relu", "tanh", "sigmoid", "bias_gelu", "rope", "dropout"),
    *("embedding", "sum", "geglu"),
)
CASES, LARGEST = 6, 1 << 20  # cases of an operator; elements of their shape
Outcome = list[Any]


class Switch:
    """Operators are called in C++, or in Python as before C++ is there."""

    def __init__(self):
        caches = list(binding._caches.values())
        every, real = frozenset(c._ladder.name for c in caches), native_calls.proven
        native_calls.proven = lambda: every
        try:
            cpp_extension.load()
        finally:
            native_calls.proven = real
        self._module = cpp_extension.loaded
        self._kept = [(c, c.in_cpp, [(n, n["run"], n.get("in_cpp")) for n in c._users])
                      for c in caches]  # fmt: skip

    def set(self, in_cpp: bool) -> None:
        cpp_extension.loaded = self._module if in_cpp else None
        for calls, caller, users in self._kept:
            calls.in_cpp = caller if in_cpp else None
            calls.now = calls.in_cpp or calls._plain
            for names, run, entry in users:
                names["run"] = run if in_cpp else calls._plain
                if "in_cpp" in names:
                    names["in_cpp"] = entry if in_cpp else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.prove_calls")
    parser.add_argument("operators", nargs="*", help="default: all")
    parser.add_argument("--into", type=Path, help="folder of the record; default: the records")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        for line in compared(asked.operators, asked.seconds, asked.seed):
            print(json.dumps(line), flush=True)
        return
    wanted = asked.operators or [*FIRST, *sorted(set(forwards()) - {*FIRST})]
    cpp_extension.build()
    results = list(_in_processes(wanted, asked))
    wrong = [line for line in results if line["problems"]]
    for line in wrong:
        print(f"{line['operator']}: {line['problems'][0]}")
    agreed: dict[str, int] = {}
    for line in results:
        if not line["problems"]:
            agreed |= line["agreed"]
    path = record(agreed, asked.into or records.home())
    print(f"{len(agreed)} operators agree, {len(wrong)} of {len(results)} compared do not: {path}")
    if wrong:
        sys.exit(1)


def forwards() -> list[str]:
    """The operators that C++ may call, without the backwards that their gradients call."""
    return [name for name in native_calls.entries if not name.endswith(".backward")]


def record(agreed: dict[str, int], folder: Path) -> Path:
    """Write the record of this machine."""
    machine = slug(here())
    path = folder / machine / native_calls.RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    environment = {"when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **facts(here())}
    document = {
        "source": native_calls.source_hash(),
        "operators": agreed,
        "environment": environment,
    }
    data.write(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
    return path


def _in_processes(wanted: list[str], asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    options = ["--worker", "--seconds", str(asked.seconds), "--seed", str(asked.seed)]
    command = [sys.executable, "-m", "tools.prove_calls", *options]
    shares = [wanted[i :: asked.jobs] for i in range(min(asked.jobs, len(wanted)))]
    running = [
        subprocess.Popen([*command, *share], stdout=subprocess.PIPE, text=True) for share in shares
    ]
    for share, process in zip(shares, running, strict=True):
        assert process.stdout is not None
        yield from map(json.loads, process.stdout)
        if process.wait():
            why = f"its process ended with {process.returncode}"
            yield {"operator": f"one of {' '.join(share)}", "agreed": {}, "problems": [why]}


def compared(names: list[str], seconds: float, seed: int) -> Iterator[dict[str, Any]]:
    """Of each operator, until the time is over: {"operator", "agreed": calls by operator, of the
    forward and its backward, "problems"}."""
    end, device, switch = time.monotonic() + seconds, here(), Switch()
    for name in names:
        if time.monotonic() > end:
            return
        yield operator_compared(name, device, switch, random.Random(f"{seed} {name}"), end)


def operator_compared(
    name: str, device: torch.device, switch: Switch, rng: random.Random, end: float
) -> dict[str, Any]:
    op, problems, calls = ladder(name).operator, [], 0
    fit = [c for c in op.cases if 0 < c.numel <= LARGEST and c.use != "big"]
    for case in rng.sample(fit, min(CASES, len(fit))):
        if time.monotonic() > end and calls:
            break
        for how, call in _ways(op, case, device, rng):
            switch.set(False)
            expected = call()
            if not all(_same(expected, call()) for _ in range(3)):
                continue  # a rung that is not deterministic
            switch.set(True)
            for _ in range(2):  # bound, and found
                calls += 1
                if not _same(expected, call()) and _is_repeatable(switch, expected, call):
                    problems.append(f"{case.id}, {how}: {_told(expected)}, in C++ {_told(call())}")
        torch.cuda.synchronize() if device.type == "cuda" else None
    agreed = {
        n: calls
        for n in (name, f"{name}.backward")
        if (run := binding._caches.get(n)) and run.in_cpp is not None and run.in_cpp.plans()
    }
    return {"operator": name, "agreed": agreed, "problems": problems}


def _is_repeatable(switch: Switch, expected: Outcome, call: Callable[[], Outcome]) -> bool:
    """Whether many calls in Python agree too: some of PyTorch's kernels seldom give other bits."""
    switch.set(False)
    agree = all(_same(expected, call()) for _ in range(40))
    switch.set(True)
    return agree


def _ways(
    op: Operator, case: Any, device: torch.device, rng: random.Random
) -> Iterator[tuple[str, Callable[[], Outcome]]]:
    """Calls of a case: what is special of each, and the call."""
    named = op.with_defaults(op.inputs(case, device))
    args, seed = [named[a.name] for a in op.args], rng.random()
    floats = [
        i for i, t in enumerate(args) if isinstance(t, torch.Tensor) and t.is_floating_point()
    ]
    some = [i for i in floats if rng.random() < 0.5] or floats[:1]
    yield "without gradient", lambda: _called(op, args, (), seed)
    yield "all gradients", lambda: _called(op, args, floats, seed)
    yield "some gradients", lambda: _called(op, args, some, seed)
    yield "inference mode", lambda: _called(op, args, (), seed, torch.inference_mode())
    autocast = torch.autocast(device.type, torch.bfloat16)
    yield "autocast", lambda: _called(op, args, floats, seed, autocast)
    if device.type == "cuda":
        yield "another stream", lambda: _called(op, args, floats, seed, _another_stream())
        yield "captured", lambda: _captured(op, args)


def _called(op: Operator, args: list, wanted: Any, seed: float, inside: Any = None) -> Outcome:
    """Results and gradients, or the error."""
    given = [_leaf(t) if i in wanted else t for i, t in enumerate(args)]
    leaves = [given[i] for i in wanted]
    try:
        with inside or nullcontext():
            results = _tuple(native_calls.entries[op.name](*given))
            ends = [t for t in results if t.requires_grad]
            if not ends:
                return [*results]
            generator = torch.Generator(device=ends[0].device).manual_seed(int(seed * 2**31))
            incoming = [torch.empty_like(t).normal_(generator=generator) for t in ends]
            gradients = torch.autograd.grad(ends, leaves, incoming, allow_unused=True)
            return [*results, *gradients]
    except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as e:
        return [type(e).__name__, str(e)]


def _captured(op: Operator, args: list) -> Outcome:
    entry = native_calls.entries[op.name]
    try:
        with _another_stream(), torch.no_grad():
            entry(*args)
        graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.graph(graph):
            results = _tuple(entry(*args))
    except (RuntimeError, ValueError, TypeError, NotImplementedError, IndexError) as e:
        return [type(e).__name__]
    graph.replay()
    torch.cuda.synchronize()
    return [t.clone() for t in results]


@contextmanager
def _another_stream():
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)
    stream.synchronize()


def _leaf(t: torch.Tensor) -> torch.Tensor:
    return t.detach().requires_grad_()


def _tuple(results: Any) -> tuple[torch.Tensor, ...]:
    return results if isinstance(results, tuple) else () if results is None else (results,)


def _same(a: Outcome, b: Outcome) -> bool:
    return len(a) == len(b) and all(map(_equal, a, b))


def _equal(a: Any, b: Any) -> bool:
    if not (isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)):
        return type(a) is type(b) and a == b
    facts_of = [(t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t.is_inference(),
                 t.grad_fn and t.grad_fn.name()) for t in (a, b)]  # fmt: skip
    if facts_of[0] != facts_of[1]:
        return False
    return torch.equal(_bits(a), _bits(b))


def _bits(t: torch.Tensor) -> torch.Tensor:
    return t.detach().contiguous().view(-1).view(torch.uint8)


def _told(outcome: Outcome) -> str:
    return ", ".join(
        f"{v.dtype} {tuple(v.shape)}" if isinstance(v, torch.Tensor) else str(v) for v in outcome
    )[:300]


if __name__ == "__main__":
    main()
