"""Runs code that requests the GPU on a machine without one: problems of other collections create
their tensors with device="cuda"."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """Replaces every device argument by the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        kwargs = {k: _here(v) if k == "device" else v for k, v in (kwargs or {}).items()}
        return func(*map(_here, args), **kwargs)


def _here(value: Any) -> Any:
    gpu = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
    return "cpu" if gpu else value


@contextmanager
def on_cpu(device: str) -> Generator[None]:
    """If `device` is "cpu", create tensors and generators requested on a GPU on the CPU."""
    if device != "cpu":
        yield
        return
    real = torch.Generator

    def generator(device: Any = "cpu") -> torch.Generator:
        return real(device=_here(device))

    torch.Generator = generator  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with _OnCpu():
            yield
    finally:
        torch.Generator = real
