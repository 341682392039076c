"""torch.compile as a rung: compiled for one signature, without falling back to eager."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable

import torch

from kernelwright.support.errors import refuse_capture

from . import interpreter, modes

_serial = itertools.count()


def compiled(fn: Callable, device: torch.device) -> Callable:
    """`fn` compiled for one call's shapes.

    Each call compiles a separate code object, because torch counts recompilations per code object
    and silently runs the function uncompiled once its limit is reached.
    """
    what = f"{fn.__module__}.{fn.__name__}"
    refuse_capture(what)
    if not modes.compiling():
        interpreter.claim()
    fresh = types.FunctionType(
        fn.__code__.replace(co_name=f"{fn.__name__}_{next(_serial)}"),
        fn.__globals__,
        fn.__name__,
        fn.__defaults__,
        fn.__closure__,
    )
    fresh.__kwdefaults__ = fn.__kwdefaults__
    compiled = torch.compile(fresh, dynamic=False, fullgraph=True)
    ready = False

    def run(*args):
        nonlocal ready
        if not ready:
            refuse_capture(what)
        with torch.no_grad():
            out = compiled(*args)
        ready = True
        return out

    return run
