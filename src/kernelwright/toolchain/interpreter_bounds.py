"""Checks of memory accesses in Triton's interpreter: bounds, and races between programs.

The interpreter reads and writes whatever is at an address, and runs the programs of a launch one
after another. So a load past the end of a tensor gets the value that happens to be there, and two
programs that update the same element without an atomic operation are right by chance. Here each
access is compared with the memory of the launch's tensors, and, while `recording`, the programs'
accesses with each other.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.interpreter import GridExecutor, InterpreterBuilder

MOST = 2**21  # recorded accesses of a launch, after which no further ones are


class OutOfBounds(Exception):
    """A kernel accesses memory outside of its tensors; the message states where."""


class ProgramRace(Exception):
    """Two programs of a launch access the same element, and at least one of them writes to it."""


class _Launch:
    """The tensors of a launch, and the accesses of its programs.

    Attributes:
        known: whether each pointer comes from an argument that is a tensor.
        atomic: whether the launch has atomic operations, with which it may order its programs.
    """

    def __init__(self, names: list[str], tensors: list[Any]):
        spans = [(*_span(t), n) for n, t in zip(names, tensors, strict=True) if t.numel()]
        self.spans = sorted(spans)
        self.first = np.array([s[0] for s in self.spans], dtype=np.uint64)
        self.end = np.array([s[1] for s in self.spans], dtype=np.uint64)
        self.known, self.atomic = True, False
        self.room = MOST
        self.loads: list[tuple[int, str, np.ndarray, np.ndarray]] = []
        self.stores: list[tuple[int, str, np.ndarray, np.ndarray]] = []

    def check(self, verb: str, pointers: Any, mask: np.ndarray) -> None:
        """Raise OutOfBounds if an element is outside of the launch's tensors."""
        if not self.known:
            return
        mask = np.broadcast_to(mask, pointers.data.shape)
        at = pointers.data if mask.all() else pointers.data[mask]
        if not at.size:
            return
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        low, high = int(at.min()), int(at.max()) + size
        if any(a <= low and high <= b for a, b, _ in self.spans):
            return
        at = np.unique(at)
        inside = np.zeros(at.shape, dtype=bool)
        for a, b, _ in self.spans:
            inside |= (at >= np.uint64(a)) & (at + np.uint64(size) <= np.uint64(b))
        if not inside.all():
            self._refuse(verb, at[~inside], size)

    def _refuse(self, verb: str, outside: np.ndarray, size: int) -> None:
        at = int(outside[0])
        a, b, name = min(
            self.spans, key=lambda s: max(s[0] - at, at - s[1] + 1), default=(0, 0, "a tensor")
        )
        index, count = (at - a) // size, (b - a) // size
        many = "" if outside.size == 1 else f", and {outside.size - 1} more"
        raise OutOfBounds(
            f"{_line()}: program {_program()} {verb} {name}[{index}]{many}, outside of its {count} "
            "elements"
        )

    def record(self, kind: list[Any], pointers: Any, mask: np.ndarray, values: np.ndarray) -> None:
        if not _recording or self.atomic or self.room <= 0:
            return
        shape = pointers.data.shape
        mask = np.broadcast_to(mask, shape)
        at = pointers.data[mask]
        self.room -= at.size
        bits = np.ascontiguousarray(np.broadcast_to(values, shape)[mask])
        kind.append((_number(), _line(), at, bits.view(f"u{bits.itemsize}").astype(np.uint64)))

    def race(self) -> str | None:
        """The first pair of programs that access an element in an undefined order, or None."""
        if self.atomic or self.room <= 0 or not self.stores:
            return None
        program, address, value, line = _joined(self.stores)
        order = np.lexsort((program, address))
        program, address, value, line = program[order], address[order], value[order], line[order]
        again = (address[1:] == address[:-1]) & (program[1:] != program[:-1])
        differ = np.flatnonzero(again & (value[1:] != value[:-1]))
        if differ.size:
            i = int(differ[0])
            where = self.stores[line[i + 1]][1]
            return self._told(where, address[i], program[i], program[i + 1], "both write")
        if not self.loads:
            return None
        theirs, at, read, where_read = _joined(self.loads)
        for side in ("left", "right"):  # the first and the last program that writes an element
            near = np.searchsorted(address, at, side) - (side == "right")
            near = np.clip(near, 0, address.size - 1)
            hit = (address[near] == at) & (program[near] != theirs) & (value[near] != read)
            if hit.any():
                i = int(np.flatnonzero(hit)[0])
                where = self.loads[where_read[i]][1]
                return self._told(
                    where, at[i], theirs[i], program[near[i]], "reads", " which it writes"
                )
        return None

    def _told(self, where: str, address: Any, a: Any, b: Any, verb: str, also: str = "") -> str:
        name = next((n for s, e, n in self.spans if s <= int(address) < e), "an element")
        pair = f"programs {a} and {b} {verb} an element of {name}"
        if also:
            pair = f"program {a} reads an element of {name} that program {b} writes"
        return f"{where}: {pair} in no defined order; use an atomic operation"


_launch: _Launch | None = None
_recording = False


@contextmanager
def recording():
    """Compare the accesses of different programs of the launches in this block."""
    global _recording
    _recording, before = True, _recording
    try:
        yield
    finally:
        _recording = before


def apply() -> None:
    """Check all accesses of the interpreter of this process."""
    checked = {
        (GridExecutor, "_init_args_hst"): _entered,
        (GridExecutor, "__call__"): _left,
        (InterpreterBuilder, "create_masked_load"): _load,
        (InterpreterBuilder, "create_masked_store"): _store,
        (InterpreterBuilder, "create_atomic_rmw"): _atomic_rmw,
        (InterpreterBuilder, "create_atomic_cas"): _atomic_cas,
        (InterpreterBuilder, "create_int_to_ptr"): _unknown,
    }
    for (kind, name), wrapper in checked.items():
        setattr(kind, name, wrapper(getattr(kind, name)))


def _entered(init):
    @wraps(init)
    def checked(self, args, kwargs):
        global _launch
        given, named = init(self, args, kwargs)
        tensors: dict[str, Any] = {}
        for name, value in (*zip(self.arg_names, given, strict=False), *named.items()):
            _collect(tensors, name, value)
        _launch = _Launch(list(tensors), list(tensors.values()))
        return given, named

    return checked


def _collect(tensors: dict[str, Any], name: str, value: Any) -> None:
    if isinstance(value, tuple):
        for i, v in enumerate(value):
            _collect(tensors, f"{name}[{i}]", v)
    elif isinstance(value, interpreter.TensorDescriptor):
        _collect(tensors, name, value.base)
    elif hasattr(value, "data_ptr"):
        tensors[name] = interpreter._unwrap_tensor(value)


def _left(call):
    @wraps(call)
    def checked(self, *args, **kwargs):
        global _launch
        try:
            out = call(self, *args, **kwargs)
            race = _launch.race() if _launch and _recording else None
        except interpreter.InterpreterError as e:
            if isinstance(e.__cause__, OutOfBounds):
                raise e.__cause__ from None
            raise
        finally:
            _launch = None
        if race:
            raise ProgramRace(race)
        return out

    return checked


def _load(load):
    @wraps(load)
    def checked(self, ptrs, mask, *rest, **named):
        if _launch is None:
            return load(self, ptrs, mask, *rest, **named)
        _launch.check("reads", ptrs, _data(mask))
        out = load(self, ptrs, mask, *rest, **named)
        _launch.record(_launch.loads, ptrs, _data(mask), out.data)
        return out

    return checked


def _store(store):
    @wraps(store)
    def checked(self, ptrs, value, mask, *rest, **named):
        if _launch is not None:
            _launch.check("writes", ptrs, _data(mask))
            _launch.record(_launch.stores, ptrs, _data(mask), value.data)
        return store(self, ptrs, value, mask, *rest, **named)

    return checked


def _atomic_rmw(operation):
    @wraps(operation)
    def checked(self, kind, ptr, value, mask, *rest):
        _note_atomic(ptr, _data(mask))
        return operation(self, kind, ptr, value, mask, *rest)

    return checked


def _atomic_cas(operation):
    @wraps(operation)
    def checked(self, ptr, *rest):
        _note_atomic(ptr, np.ones(ptr.data.shape, dtype=bool))
        return operation(self, ptr, *rest)

    return checked


def _note_atomic(pointers: Any, mask: np.ndarray) -> None:
    if _launch is not None:
        _launch.atomic = True
        _launch.check("updates", pointers, mask)


def _unknown(convert):
    @wraps(convert)
    def checked(self, *args):
        if _launch is not None:
            _launch.known = False  # a table of pointers
        return convert(self, *args)

    return checked


def _data(mask: Any) -> np.ndarray:
    """A mask as booleans; block pointers pass an array, and conditions of a block and a number are
    integers."""
    return np.asarray(mask if isinstance(mask, np.ndarray) else mask.data, dtype=bool)


def _span(t: Any) -> tuple[int, int]:
    """The addresses of a tensor's first element and after its last one."""
    extent = 1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    return t.data_ptr(), t.data_ptr() + extent * t.element_size()


def _joined(accesses: list[Any]) -> tuple[np.ndarray, ...]:
    """The program, address, value and position in the list of each access."""
    sizes = [a[2].size for a in accesses]
    return (
        np.repeat([a[0] for a in accesses], sizes),
        np.concatenate([a[2].reshape(-1) for a in accesses]),
        np.concatenate([a[3].reshape(-1) for a in accesses]),
        np.repeat(np.arange(len(accesses)), sizes),
    )


def _program() -> tuple[int, ...]:
    return tuple(interpreter.interpreter_builder.grid_idx)


def _number() -> int:
    x, y, z = _program()
    _, ny, nz = interpreter.interpreter_builder.grid_dim
    return (x * ny + y) * nz + z


def _line() -> str:
    """The kernel's line that is being interpreted."""
    frame = sys._getframe(1)
    own = (str(Path(interpreter.__file__).parents[1]), str(Path(__file__).parent))
    while frame and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame else "?"
