"""Runs code that requests the GPU on a machine without one: problems of other collections create
their tensors with device="cuda", and kernels assert that their arguments are on a GPU."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode

_Generator = torch.Generator
_DEVICE = torch.Tensor.device.__get__
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


class _OnCpu(TorchFunctionMode):
    """Replaces every device argument by the CPU.

    Args:
        pretend: also tell the code that its tensors are on a GPU.

    Attributes:
        asked: whether the code has asked for the device of a tensor.
    """

    def __init__(self, pretend: bool = False):
        super().__init__()
        self.pretend, self.asked = pretend, False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if self.pretend and func in (_IS_CUDA, _DEVICE, torch.Tensor.get_device):
            self.asked = True
            if func == _IS_CUDA:
                return True
            return torch.device("cuda", 0) if func == _DEVICE else 0
        kwargs = {k: _here(v) if k == "device" else v for k, v in (kwargs or {}).items()}
        return func(*map(_here, args), **kwargs)


class _LikeGenerator(type):
    """The type of `_GeneratorHere`, which stands for torch.Generator in modules that are imported
    meanwhile: in annotations, in `isinstance` and as a key."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _Generator)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, _Generator)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _Generator

    def __hash__(cls) -> int:
        return hash(_Generator)


class _GeneratorHere(metaclass=_LikeGenerator):
    """Creates a torch.Generator on the CPU, whatever device is requested."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _Generator(device=_here(device))


def _here(value: Any) -> Any:
    gpu = isinstance(value, (str, torch.device)) and str(value).startswith("cuda")
    return "cpu" if gpu else value


@contextmanager
def on_cpu(device: str, pretend: bool = False) -> Generator[_OnCpu | None]:
    """If `device` is "cpu", create tensors and generators requested on a GPU on the CPU."""
    if device != "cpu":
        yield None
        return
    idle = {
        "synchronize": lambda device=None: None,
        "current_device": lambda: 0,
        "device": lambda device=None: nullcontext(),
        "device_of": lambda tensor=None: nullcontext(),
    }
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(torch, "Generator", _GeneratorHere))
        for name, function in idle.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, function))
        yield stack.enter_context(_OnCpu(pretend))
