"""A step under PyTorch's profiler: its events as trees, and its kernels by the operator that
launched them."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from kernelwright.machine import profiler
from kernelwright.support.errors import ToolchainError

_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver")
_OURS = "kernelwright::"
_MODELS = "kernelwright/models/operators.py("
_STEP = "kernelwright: the step"


@dataclass
class Node:
    """A call of a Python function or of an operator (PyTorch's or ours), or a launch.

    Attributes:
        kind: "python_function", "cpu_op", "cuda_runtime", ...
        begin, end: microseconds.
        gpu_us: GPU time of the work that it launched itself.
    """

    name: str
    kind: str
    thread: tuple[Any, Any]
    begin: float
    end: float
    facts: dict[str, Any]
    parent: Node | None = None
    children: list[Node] = field(default_factory=list)
    gpu_us: float = 0.0

    @property
    def us(self) -> float:
        return self.end - self.begin

    @property
    def own_us(self) -> float:
        """Time outside its children."""
        return max(0.0, self.us - sum(c.us for c in self.children))

    def up(self) -> Iterator[Node]:
        """The call and its callers, innermost first."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def down(self) -> Iterator[Node]:
        """The call and all its callees."""
        yield self
        for child in self.children:
            yield from child.down()


@dataclass(frozen=True)
class Kernel:
    """A kernel on a GPU; on a CPU, an operator of PyTorch without its callees.

    Attributes:
        operator: the operator that launched it, followed by ".backward" if autograd did.
    """

    name: str
    operator: str
    us: float


@dataclass(frozen=True)
class Row:
    """Kernels of one name for one operator."""

    kernel: str
    operator: str
    count: int
    us: float


@dataclass(frozen=True)
class Trace:
    """The contents of a profile.

    Attributes:
        document: PyTorch's trace, which Perfetto (ui.perfetto.dev) can show.
        roots: outermost calls of all threads.
        on_gpu: whether kernels ran on a GPU.
        memory: (microseconds, allocated bytes), in order.
    """

    document: dict[str, Any]
    roots: list[Node]
    kernels: list[Kernel]
    on_gpu: bool
    memory: list[tuple[float, int]]

    def rows(self) -> list[Row]:
        """Kernels by name and operator, longest first."""
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for k in self.kernels:
            times[k.name, k.operator].append(k.us)
        rows = [Row(name, op, len(us), sum(us)) for (name, op), us in times.items()]
        return sorted(rows, key=lambda r: -r.us)

    def operators(self) -> list[Row]:
        """Time by operator, longest first; `kernel` is empty."""
        times: dict[str, list[float]] = defaultdict(list)
        for k in self.kernels:
            times[k.operator].append(k.us)
        rows = [Row("", op, len(us), sum(us)) for op, us in times.items()]
        return sorted(rows, key=lambda r: -r.us)


def record(step: Callable[[], Any], device: torch.device, warm_up: int = 3) -> Trace:
    """Profile one step.

    Args:
        step: the step; it is called `warm_up` times first.

    Raises:
        ToolchainError: the profiler reports no kernel on the GPU.
    """
    from torch.profiler import ProfilerActivity, profile, record_function

    for _ in range(warm_up):
        step()
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
        profiler.prepare()
        torch.cuda.synchronize()
    session = profile(activities=activities, with_stack=True, profile_memory=True)
    with session as running, record_function(_STEP):
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        running.export_chrome_trace(str(path))
        trace = read(json.loads(path.read_text(encoding="utf-8", errors="replace")))
    if device.type == "cuda" and not trace.on_gpu:
        raise ToolchainError("the profiler reports no kernel on the GPU; profile once more")
    return trace


def read(document: dict[str, Any]) -> Trace:
    """The trace in a document exported by PyTorch's profiler."""
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and "cat" in e]
    kinds = {"python_function", "cpu_op", "user_annotation", *_LAUNCHES}
    roots = _of_the_step(_trees([e for e in events if e["cat"] in kinds]))
    labels = _Labels(roots)
    gpu = [e for e in events if e["cat"] in _ON_GPU]
    kernels = _of_gpu(gpu, roots, labels) if gpu else _of_cpu(roots, labels)
    return Trace(document, roots, kernels, bool(gpu), _memory(document, bool(gpu)))


def _trees(events: list[dict[str, Any]]) -> list[Node]:
    """Calls nested by time, in each thread."""
    threads: dict[Any, list[Node]] = defaultdict(list)
    for e in events:
        begin, thread = float(e["ts"]), (e["pid"], e["tid"])
        end = begin + float(e.get("dur", 0))
        node = Node(str(e["name"]), e["cat"], thread, begin, end, e.get("args", {}))
        threads[thread].append(node)
    roots: list[Node] = []
    for nodes in threads.values():
        open_: list[Node] = []
        for node in sorted(nodes, key=_in_order):
            while open_ and open_[-1].end <= node.begin:
                open_.pop()
            if open_:
                node.parent = open_[-1]
                open_[-1].children.append(node)
            else:
                roots.append(node)
            open_.append(node)
    return roots


def _in_order(node: Node) -> tuple[float, float, float]:
    """Sort callers before callees. Functions that were running when the profile began have the same
    start time; their ids order them."""
    return node.begin, node.facts.get("Python id", float("inf")), -node.end


def _of_the_step(roots: list[Node]) -> list[Node]:
    """The step, and calls in other threads during it, such as autograd's thread for a GPU."""
    step = next(n for root in roots for n in root.down() if n.name == _STEP)
    step.parent = None
    others = [
        r
        for r in roots
        if r.thread != step.thread
        and any(n.kind != "python_function" and n.begin >= step.begin for n in r.down())
    ]
    return [step, *others]


class _Labels:
    """Determines the operator to which a call belongs.

    This is the innermost operator of ours around the call; else the function of models/operators.py
    that called PyTorch; else the outermost operator of PyTorch. Calls made by autograd have the
    sequence number of a forward's call and belong to its operator.
    """

    def __init__(self, roots: list[Node]):
        self._forward: dict[int, str] = {}
        for root in roots:
            for node in root.down():
                number = node.facts.get("Sequence number")
                if number is not None and not self._is_backward(node):
                    self._forward.setdefault(number, self._of_forward(node))

    def of(self, node: Node) -> str:
        chain = list(node.up())
        ours = next((n.name for n in chain if n.name.startswith(_OURS)), None)
        if ours is not None:
            name = ours.removeprefix(_OURS)
            return name.removesuffix("_backward") + ".backward" * name.endswith("_backward")
        backward = [n for n in chain if self._is_backward(n)]
        for n in backward:
            forward = self._forward.get(n.facts.get("Sequence number", -1))
            if forward is not None:
                return f"{forward}.backward"
        if backward:
            return backward[0].name.rpartition(": ")[2]
        return self._of_forward(node)

    def _of_forward(self, node: Node) -> str:
        chain = list(node.up())
        for n in chain:
            if n.name.startswith(_OURS):
                return n.name.removeprefix(_OURS)
            if n.kind == "python_function" and _MODELS in n.name:
                return n.name.rpartition(": ")[2]
        ops = [n.name for n in chain if n.kind == "cpu_op"]
        return ops[-1] if ops else chain[0].name

    @staticmethod
    def _is_backward(node: Node) -> bool:
        return node.kind == "cpu_op" and "Backward" in node.name


def _of_cpu(roots: list[Node], labels: _Labels) -> list[Kernel]:
    nodes = (n for root in roots for n in root.down() if n.kind == "cpu_op")
    return [Kernel(n.name, labels.of(n), n.own_us) for n in nodes]


def _of_gpu(events: list[dict[str, Any]], roots: list[Node], labels: _Labels) -> list[Kernel]:
    launches = {
        n.facts["correlation"]: n
        for root in roots
        for n in root.down()
        if n.kind in _LAUNCHES and "correlation" in n.facts
    }
    kernels: list[Kernel] = []
    for e in events:
        launch = launches.get(e.get("args", {}).get("correlation"))
        us = float(e.get("dur", 0))
        if launch is not None:
            launch.gpu_us += us
        kernels.append(Kernel(str(e["name"]), labels.of(launch) if launch else "unknown", us))
    return kernels


def _memory(document: dict[str, Any], on_gpu: bool) -> list[tuple[float, int]]:
    """Allocated bytes over time, on the GPU if there is one. On a CPU, counted since the start."""
    totals: list[tuple[float, int]] = []
    for e in document["traceEvents"]:
        if e.get("name") == "[memory]":
            facts = e["args"]
            if (facts.get("Device Type") == 1) == on_gpu:
                totals.append((float(e["ts"]), int(facts["Total Allocated"])))
    return sorted(totals)
