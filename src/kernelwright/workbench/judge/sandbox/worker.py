"""The process in which a kernel is judged. `sandbox.Box` starts it and sends it requests.

    python -m kernelwright.workbench.judge.sandbox.worker READ WRITE

Requests and answers are JSON, each preceded by its length in four bytes, over the two pipes;
tensors are in memory that the parent owns. The parent trusts this process as little as possible: it
reads the results and takes the times itself.
"""

from __future__ import annotations

import base64
import faulthandler
import gc
import json
import mmap
import os
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.toolchain import redzones
from kernelwright.workbench.verify.candidate import not_plain, unexpanded
from kernelwright.workbench.verify.integrity import Snapshot

from .loading import (
    Imports,
    OnGpu,
    as_tuple,
    differentiated,
    exception_told,
    function_in,
    host_function,
    imported,
    module_of,
    named_in,
    parameters_of,
    solution,
)
from .poison import Poisoned, unseen
from .rounds import Rounds, captured, synchronize_of

# A kernel may replace these later, so the original functions are stored here.
_type, _len, _isinstance, _Tensor = type, len, isinstance, torch.Tensor
_enumerate = threading.enumerate
_read, _write, _pack, _unpack = os.read, os.write, struct.pack, struct.unpack
_dumps, _loads = json.dumps, json.loads


class Child:
    """Answers requests until the pipe closes."""

    def __init__(self, read: int, write: int):
        self.read, self.write = read, write
        self.functions = Snapshot()
        self.fn: Callable[..., Any] | None = None
        self.runs: dict[int, tuple[Any, ...]] = {}
        self.captured: dict[int, Any] = {}
        self.languages: set[str] = set()  # of the loaded file
        self.imported = dict[str, set[str]]()  # what the first import of each file imported
        self.interpreted: Any = None
        self.rounds: Rounds | None = None
        self.loaded = 0
        self.imports = Imports()
        self.on_gpu = OnGpu(None)

    def serve(self) -> None:
        while True:
            head = self._take(4)
            if not head:
                return
            request = _loads(self._take(_unpack("<I", head)[0]))
            try:
                answer = getattr(self, "do_" + request.pop("do"))(**request)
                answer = {"ok": answer}
            except BaseException as e:
                if _isinstance(e, (KeyboardInterrupt,)):
                    raise
                answer = {"error": exception_told(e)}
            text = _dumps(answer).encode()
            view = memoryview(_pack("<I", _len(text)) + text)
            while view:
                view = view[_write(self.write, view) :]

    def _take(self, size: int) -> bytes:
        parts = b""
        while _len(parts) < size:
            part = _read(self.read, size - _len(parts))
            if not part:
                return b""
            parts += part
        return parts

    # memory

    def do_start(self, device: str, arena: dict[str, Any], threads: int) -> dict[str, Any]:
        """Map the parent's memory."""
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        self.synchronize = synchronize_of(self.cuda)
        torch.set_num_threads(threads)
        if self.cuda:
            torch.cuda.set_device(self.device)
        self.do_arena(arena)
        return {"pid": os.getpid()}

    def do_arena(self, arena: dict[str, Any]) -> None:
        if self.cuda:
            parts = [base64.b64decode(p["b"]) if _isinstance(p, dict) else p for p in arena["ipc"]]
            self.storage = torch.UntypedStorage._new_shared_cuda(*parts)
        else:
            self.map = mmap.mmap(arena["fd"], arena["size"])
            self.locked = mmap.mmap(arena["fd"], arena["size"], prot=mmap.PROT_READ)
        self.runs.clear()
        self.captured.clear()
        self.rounds = None

    def _tensor(self, t: dict[str, Any]) -> torch.Tensor:
        """A tensor in the parent's memory: a buffer of "count" elements starts at byte "at", and
        the tensor at element "lead" of it. It is not a view, which would share the version counter
        of its base."""
        dtype = getattr(torch, t["dtype"])
        if self.cuda:
            first = t["at"] // dtype.itemsize + t["lead"]
            fresh = torch.empty(0, dtype=dtype, device=self.device)
            return fresh.set_(self.storage, first, t["shape"], t["stride"])
        memory = self.locked if t.get("locked") else self.map
        buffer = torch.frombuffer(memory, dtype=dtype, count=t["count"], offset=t["at"])
        return buffer.as_strided(t["shape"], t["stride"], t["lead"])

    def _value(self, v: dict[str, Any]) -> Any:
        if "t" in v:
            return self._tensor(v["t"])
        if "l" in v:
            return [self._tensor(t) for t in v["l"]]
        return getattr(torch, v["dtype"]) if "dtype" in v else v["v"]

    def _args(self, args: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        named = {k: self._value(v) for k, v in args["named"].items()}
        return [self._value(v) for v in args["listed"]], named

    # the kernel

    def do_load(self, path: str, name: str, make: bool, kind: dict[str, Any]) -> dict[str, Any]:
        """Import the user's file and take a function from it; returns its parameters.

        Args:
            make: whether the name is that of a function that returns the kernel.
            kind: {"autograd": ...}, {"launch": {"path", "what"}}, {"solution": ...} or nothing.
        """
        self.functions.restore()
        self.loaded += 1
        before = imported()
        shapes = None
        self.imports.change(path)
        if "solution" in kind:  # it may import files next to the problem
            folder = Path(kind["solution"]["folder"])
            sys.path += [str(folder), str(folder.parent)]
        if path.endswith(".cu") and "launch" not in kind:
            fn = host_function(Path(path), name, self.device)
        elif "launch" in kind:
            fn, shapes = self._cuda_function(path, name, **kind["launch"])
        else:
            fn = function_in(module_of(path, f"judged_{self.loaded}"), path, name)
        fn = fn() if make else fn
        if "solution" in kind:
            fn = solution(fn, self.device, kind["solution"])
        # now, because torch itself imports some later; another kernel may have imported it before
        self.languages = self.imported.setdefault(path, imported() - before) | named_in(Path(path))
        if "triton" in self.languages:
            self._watch_interpreter()
        self.fn = fn
        self.on_gpu = OnGpu(Path(path) if self.device.type == "cpu" else None)
        if "autograd" in kind:
            self.fn = differentiated(fn, **kind["autograd"])
        return {
            "parameters": parameters_of(fn),
            "languages": sorted(self.languages),
            "shapes": shapes,
            "replaced": self.functions.replaced(),
        }

    def _cuda_function(self, source: str, name: str, path: str, what: str) -> tuple[Any, Any]:
        """A kernel of a .cu with its launch file as a function, and the shapes that it declares."""
        from ..launch_file import shapes_of
        from ..spec import subject_of
        from .kernels import CudaFunction

        launch = module_of(path, f"launch_{self.loaded}")
        fn = CudaFunction(Path(source), name, launch, subject_of(what))
        return fn, shapes_of(launch)

    def _watch_interpreter(self) -> None:
        """Apply our fixes to Triton's interpreter, and record its launches."""
        from kernelwright import toolchain

        from .kernels import Interpreted

        if os.environ.get("TRITON_INTERPRET") != "1":
            return
        toolchain.prepare("triton")
        self.interpreted = self.interpreted or Interpreted()

    def _call(self, args: dict[str, Any]) -> tuple[Any, ...]:
        return self._called(self._args(args))

    def _called(self, given: tuple[list[Any], dict[str, Any]]) -> tuple[Any, ...]:
        assert self.fn is not None
        _compile_every_shape()
        listed, named = given
        fn = self.fn
        return as_tuple(self.on_gpu(lambda: fn(*listed, **named), _tensors(given)))

    def do_run(self, run: int, args: dict[str, Any], guarded: bool, poison: list[int], release):
        """Call the function, keep its results, and return their descriptions."""
        for old in release:
            self.runs.pop(old, None)
        self._fill_with_nan(poison)
        guard = redzones.Guard()
        with ExitStack() as stack:
            if guarded:
                guard = stack.enter_context(redzones.guarded())
                guard.empty = unseen(guard.empty)  # pyright: ignore[reportAttributeAccessIssue]
                stack.enter_context(Poisoned(guard))
            given = self._args(args)
            versions = [t._version for t in _tensors(given)]
            results = self._called(given)
        self.synchronize()
        self.runs[run] = results
        lent = _tensors(given)
        return {
            "results": [_described(r) for r in results],
            "lent": [t.untyped_storage().data_ptr() for t in lent],
            "written": any(
                t._version != v
                for t, v, locked in zip(lent, versions, _locked(args), strict=True)
                if locked
            ),
            "allocations": guard.check(),
            "replaced": self.functions.replaced(),
        }

    def _fill_with_nan(self, sizes: list[int]) -> None:
        """Leave NaN in the memory that will probably be allocated for the results."""
        spoiled = [torch.full((n // 4 + 1,), float("nan"), device=self.device) for n in sizes]
        del spoiled

    def do_fetch(self, run: int, slots: list[dict[str, Any]]) -> None:
        """Copy a run's current results into the parent's memory."""
        self._copy(self.runs[run], slots)
        self.synchronize()

    def _copy(self, results: tuple[Any, ...], slots: list[dict[str, Any]]) -> None:
        for result, slot in zip(results, slots, strict=True):
            if slot:
                unexpanded(self._tensor(slot)).copy_(unexpanded(result.detach()))

    # further requests of checks

    def do_watched(self, args: dict[str, Any]) -> dict[str, str]:
        """Races, out-of-bounds accesses and other findings of an emulated kernel, by check."""
        from .kernels import CudaFunction

        assert _isinstance(self.fn, CudaFunction)
        return self.fn.watched(self._args(args)[0])

    def do_late(self, args, staged, slots) -> None:
        """On a busy stream: copy the arguments, call the function, copy its results."""
        stream = torch.cuda.Stream()
        self.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # about 10 ms
            for mine, late in zip(_tensors(self._args(args)), staged, strict=True):
                unexpanded(mine).copy_(unexpanded(self._tensor(late)))
            self._copy(self._call(args), slots)
            stream.synchronize()

    def do_threads(self, args: dict[str, Any]) -> list[str]:
        before = set(_enumerate())
        self._call(args)
        return [t.name for t in _enumerate() if t not in before]

    def do_growth(self, args: dict[str, Any], calls: int) -> int:
        listed, named = self._args(args)
        assert self.fn is not None
        self.synchronize()
        gc.collect()  # memory in reference cycles is not a leak
        before = torch.cuda.memory_allocated()
        for _ in range(calls):
            self.fn(*listed, **named)
        self.synchronize()
        gc.collect()
        return torch.cuda.memory_allocated() - before

    def do_capture(self, run: int, args: dict[str, Any]) -> list[dict[str, Any]]:
        self.captured[run], self.runs[run] = captured(lambda: self._call(args))
        return [_described(r) for r in self.runs[run]]

    def do_replay(self, run: int, slots: list[dict[str, Any]]) -> None:
        self.captured[run].replay()
        self.synchronize()
        self.do_fetch(run, slots)

    # time, by the parent's clock

    def do_prepare(self, sets: list[dict[str, Any]], passes: int) -> dict[str, Any]:
        """Prepare rounds over rotated sets for timing."""
        self.rounds = None  # frees its memory
        assert self.fn is not None
        calls = [self._args(s) for s in sets]
        lent = {t.untyped_storage().data_ptr() for call in calls for t in _tensors(call)}
        self.rounds = Rounds(self.fn, calls, passes, lent, self.cuda, self.synchronize)
        return {"launches": self.rounds.launches, "uncaptured": self.rounds.uncaptured}

    def _rounds(self) -> Rounds:
        assert self.rounds is not None
        return self.rounds

    def do_repeat(self, times: int) -> None:
        self._rounds().repeat(times)

    def do_clock(self, times: int) -> float:
        return self._rounds().clock(times)

    def do_host(self, times: int) -> None:
        self._rounds().host(times)

    def do_spoil(self) -> None:
        self._rounds().spoil()

    def do_timed(self, call: int) -> list[dict[str, Any]]:
        return [_described(r) for r in self._rounds().results[call]]

    def do_fetch_timed(self, run: int, slots: list[dict[str, Any]]) -> None:
        """Copy the results of a call of the newest round into the parent's memory."""
        self._copy(self._rounds().results[run], slots)
        self.synchronize()

    def do_replaced(self) -> str | None:
        return self.functions.replaced()

    # static properties and costs

    def do_kernels(self, args: dict[str, Any], arch: str) -> dict[str, Any]:
        """Compiled properties of a call's kernels, or launches for another process to compile."""
        from . import kernels

        if _isinstance(self.fn, kernels.CudaFunction):
            return {"kernels": self.fn.kernels(arch)}
        if self.interpreted is not None:
            return {"launches": list(self.interpreted.launches.values())}
        if "triton" in sys.modules and self.cuda:
            return {"kernels": kernels.triton_kernels(lambda: self._call(args))}
        return {}

    def do_compile(self, launches: list[dict[str, Any]], arch: str) -> list[dict[str, Any]]:
        """Compile kernels of the loaded file that another process has interpreted."""
        from .kernels import compile_triton

        return [compile_triton(launch, arch) for launch in launches]

    def do_costs(self, args: dict[str, Any]) -> dict[str, Any]:
        """Launches of a call, bytes moved by its operators, memory besides inputs and outputs."""
        from kernelwright.workbench.bench.fusion import count, kernels_seen

        listed, named = self._args(args)
        fn = self.fn
        assert fn is not None

        def call() -> Any:
            return fn(*listed, **named)

        def launched() -> int:
            return getattr(fn, "launches", 0) + (self.interpreted.count if self.interpreted else 0)

        before = launched()
        work = count(call)
        ours = launched() - before
        opaque = ours or self.languages
        if hasattr(fn, "launches"):  # a .cu: the code that runs it here is not counted
            work = replace(work, kernels=0)
        answer = {"launches": work.kernels + ours, "moved": None if opaque else work.bytes}
        if not self.cuda:
            return answer
        answer["launches"] = kernels_seen(call)
        if answer["launches"] != work.kernels:  # kernels outside of operators: load_inline's, say
            answer["moved"] = None
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        results = as_tuple(call())
        self.synchronize()
        held = sum(r.untyped_storage().nbytes() for r in results if _isinstance(r, _Tensor))
        return {**answer, "peak": torch.cuda.max_memory_allocated() - before - held}


def _compile_every_shape() -> None:
    """Raise torch.compile's limit of recompilations: beyond it, a function runs uncompiled, and the
    uncompiled function would be timed."""
    if "torch._dynamo" in sys.modules:
        config = sys.modules["torch._dynamo"].config
        config.recompile_limit = config.accumulated_recompile_limit = 1 << 20


def _tensors(args: tuple[list[Any], dict[str, Any]]) -> list[torch.Tensor]:
    tensors = []
    for v in (*args[0], *args[1].values()):
        tensors += [t for t in (v if _isinstance(v, list) else [v]) if _isinstance(t, _Tensor)]
    return tensors


def _locked(args: dict[str, Any]) -> list[bool]:
    """For each tensor, in the order of `_tensors`, whether it must not be written."""
    told = (*args["listed"], *args["named"].values())
    return [bool(t.get("locked")) for v in told for t in ([v["t"]] if "t" in v else v.get("l", ()))]


def _described(t: Any) -> dict[str, Any]:
    """Describe a result. Types are compared by identity, because a subclass may run code."""
    kind = _type(t)
    if kind is not _Tensor:
        return {"type": kind.__name__}
    if lazy := not_plain(t):
        return {"type": lazy}
    return {
        "type": "Tensor",
        "shape": list(t.shape),
        "stride": list(t.stride()),
        "dtype": str(t.dtype).removeprefix("torch."),
        "device": str(t.device),
        "storage": t.untyped_storage().data_ptr(),
    }


if __name__ == "__main__":
    faulthandler.enable()  # so that a crash reports its line
    Child(int(sys.argv[1]), int(sys.argv[2])).serve()
