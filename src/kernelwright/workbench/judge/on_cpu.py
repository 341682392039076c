"""Code that names the GPU, on a machine without one: problems of other collections make their
tensors with device="cuda"."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _OnCpu(TorchFunctionMode):
    """Every device that is named is the CPU."""

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
    """Where `device` is "cpu", tensors and generators that are asked for on a GPU are made here."""
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
