"""Sizes of problems of other collections on a machine without a GPU: is one small enough, and which
smaller sizes has it?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from kernelwright.support.errors import INCONCLUSIVE, UserError

from .meter import Meter, TooLarge

#: Bytes and operations that a call may take before it is judged without a GPU.
MEMORY, OPERATIONS = 1 << 30, 2**36
#: Bytes and operations of a call whose sizes have been reduced: Triton's interpreter can run it.
REDUCED = 8 << 20, 2**28
#: Those of the largest call of a problem that is tried without a GPU, if PyTorch computes it: a
#: solution may be wrong only on the sizes that are timed.
LARGEST = 1 << 25, 2**33
#: A call on a GPU may take this part of its memory, which also holds copies of the inputs, results
#: of the reference and those of the checks; and any number of operations.
PART, ANY = 8, 2**62
#: Constants up to this are kernel sizes, strides and numbers of groups, not sizes of inputs.
SMALLEST = 16

Constant = tuple[str, int | None]  # a module's constant, and the position in it if it is a tuple


class NeedsGpu(UserError):
    """A problem is too large for a CPU."""

    exit_code = INCONCLUSIVE


def fits(call: Callable[[], Any], most: int = MEMORY, operations: int = OPERATIONS) -> bool:
    """Whether a call stays within the limits; it stops before it allocates more."""
    try:
        with Meter(most, operations):
            call()
    except TooLarge:
        return False
    return True


def room_of_gpu() -> int:
    """Bytes of the inputs of the largest call that is tried on this machine's GPU."""
    return torch.cuda.mem_get_info()[1] // PART


def first_that_fits(calls: Iterable[Callable[[], Any]], device: str, source: Any) -> Any:
    """The result of the first call that a CPU can run; on a GPU, of the first.

    Raises:
        NeedsGpu: there is none.
    """
    for call in calls:
        if device != "cpu":
            return call()
        try:
            with Meter(MEMORY, OPERATIONS):
                return call()
        except TooLarge:
            continue
    raise NeedsGpu(f"--as: {source}: each of its inputs takes more than 1 GiB, which needs a GPU")


def reduced(module: ModuleType, call: Callable[[], Any]) -> dict[str, list[Any]]:
    """Halve the constants of a module that give sizes of its inputs until a call is small.

    Returns:
        The changed constants: their old and new values.

    Raises:
        NeedsGpu: no such constants make the call small enough for a CPU.
    """
    if fits(call, *REDUCED):
        return {}
    given = _constants(module, "get_inputs")
    for allowed in (given, [c for c in given if c not in _constants(module, "get_init_inputs")]):
        before = {name: getattr(module, name) for name, _ in allowed}
        try:
            if _halved(module, allowed, call):
                return {
                    name: [old, getattr(module, name)]
                    for name, old in before.items()
                    if getattr(module, name) != old
                }
        except Exception:  # noqa: BLE001  the model does not accept these sizes
            pass
        for name, old in before.items():
            setattr(module, name, old)
    if fits(call):
        return {}
    raise NeedsGpu(
        f"--as: {module.__file__}: its inputs are too large without a GPU, and no smaller "
        "constants of the file give inputs that its model accepts"
    )


def _halved(module: ModuleType, allowed: list[Constant], call: Callable[[], Any]) -> bool:
    """Whether halving the largest of some constants repeatedly makes a call small."""
    while True:
        largest = max(allowed, key=lambda c: _value(module, c), default=None)
        if largest is None or _value(module, largest) <= SMALLEST:
            return _single(module, allowed, call)
        _set(module, largest, _value(module, largest) // 2)
        if fits(call, *REDUCED):
            return True


def _single(module: ModuleType, allowed: list[Constant], call: Callable[[], Any]) -> bool:
    """The same by constants that the model does not depend on: the size of a batch."""
    free = [c for c in allowed if c not in _constants(module, "get_init_inputs")]
    while any(_value(module, c) > 1 for c in free):
        largest = max(free, key=lambda c: _value(module, c))
        _set(module, largest, _value(module, largest) // 2)
        if fits(call, *REDUCED):
            return True
    return False


def in_words(changed: dict[str, list[Any]]) -> str:
    """How sizes were reduced: "batch_size=16 in place of 4096"."""
    return ", ".join(f"{name}={new} in place of {old}" for name, (old, new) in changed.items())


def apply(module: Any, changed: dict[str, list[Any]]) -> None:
    """Give a module that has the same constants the reduced ones."""
    for name, (old, new) in changed.items():
        mine = getattr(module, name, None)
        if mine is not None and (list(mine) if isinstance(mine, (tuple, list)) else mine) == (
            list(old) if isinstance(old, (tuple, list)) else old
        ):
            setattr(module, name, tuple(new) if isinstance(mine, tuple) else new)


def _constants(module: ModuleType, function: str) -> list[Constant]:
    """The integers of a module to which a function refers."""
    code = getattr(getattr(module, function, None), "__code__", None)
    codes = [code, *(c for c in getattr(code, "co_consts", ()) if hasattr(c, "co_names"))]
    names = dict.fromkeys(n for c in codes for n in getattr(c, "co_names", ()))
    constants: list[Constant] = []
    for name in names:
        value = vars(module).get(name)
        if type(value) is int:
            constants.append((name, None))
        elif isinstance(value, (tuple, list)):
            constants += [(name, i) for i, v in enumerate(value) if type(v) is int]
    return constants


def _value(module: ModuleType, constant: Constant) -> int:
    name, at = constant
    value = getattr(module, name)
    return value if at is None else value[at]


def _set(module: ModuleType, constant: Constant, value: int) -> None:
    name, at = constant
    old = getattr(module, name)
    new = value if at is None else type(old)([*old[:at], value, *old[at + 1 :]])
    setattr(module, name, new)
