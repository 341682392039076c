"""Processes that need most of a GPU's memory take turns."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

from kernelwright.support import cache

_inside = ContextVar("inside", default=False)


@contextmanager
def exclusive() -> Generator[None]:
    """Until the block ends, no other process is in such a block. What PyTorch keeps of the memory
    for later use is freed before and after it."""
    if _inside.get():
        yield
        return
    with cache.locked("memory of a GPU"):
        torch.cuda.empty_cache()
        inside = _inside.set(True)
        try:
            yield
        finally:
            _inside.reset(inside)
            torch.cuda.empty_cache()
