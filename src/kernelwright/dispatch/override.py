"""`with kw.use(softmax="triton_online")`: the user's choice takes precedence over every table."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import contextmanager

import torch

from .registry import ladder

# Process-wide, like torch.backends' flags. torch.compile can guard on a plain dict, so a compiled
# function recompiles when an override changes. Autograd threads never read it: the forward resolves
# the override and passes it to the backward.
active: dict[str, str] = {}
# The open blocks, in the order in which they were entered. Blocks of two threads need not end in
# the reverse order: each removes exactly its own entries.
_open: list[dict[str, str]] = []
_lock = threading.Lock()


@contextmanager
def use(chosen: dict[str, str]):
    """`kw.use` of operators that are imported."""
    for name, rung in chosen.items():
        ladder(name).rung(rung)
    _change(_open.append, chosen)
    try:
        yield
    finally:
        _change(_close, chosen)


def _change(how: Callable[[dict[str, str]], None], block: dict[str, str]) -> None:
    if torch.compiler.is_compiling():  # cannot trace locks; only one thread traces
        how(block)
        _update_active()
        return
    with _lock:
        how(block)
        _update_active()


def _close(block: dict[str, str]) -> None:
    _open[:] = [b for b in _open if b is not block]


def _update_active() -> None:
    """Set `active` from the open blocks; later ones take precedence."""
    now = {name: rung for block in _open for name, rung in block.items()}
    for name in [n for n in active if n not in now]:
        del active[name]
    active.update(now)


def override(name: str) -> str | None:
    """The rung that `use` currently selects for an operator."""
    return active.get(name)
