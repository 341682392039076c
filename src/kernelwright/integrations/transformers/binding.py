"""How a module gets another forward, and which forward a module currently has.

A replaced forward belongs to a subclass of the module's class with the same name, as that of FSDP
does. A function in the instance's `__dict__` would be bound to that one instance: copies of it that
share attributes, such as the replicas of `nn.DataParallel`, would run the original's weights.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import inspect
from collections.abc import Callable, Collection
from functools import cache
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as _module

Forward = Callable[..., Any]
# modules of torch that put a class of their own, made per class or per module, on top of a module's
_WRAPPERS = ("torch.nn.utils.parametrize", "torch.distributed.")
# attributes in which other libraries keep the forward that they wrap
_KEPT = ("_old_forward", "_original_forward")


def bind(module: nn.Module, forward: Forward) -> None:
    """Give this module another forward. It has no effect on a module that has one already."""
    if patched(module) is None:
        mark(forward)
        module.__class__ = _replaced(type(module), lambda cls: _subclass(cls, forward))


def unbind(module: nn.Module) -> Any:
    """Undo `bind`, also where classes of torch have been put on top since.

    Returns:
        A forward in which another library has wrapped the replaced one, which it still calls.
    """
    ours, own = patched(module), vars(module)
    if ours is None:
        return None
    module.__class__ = _replaced(type(module), lambda cls: cls.__bases__[0])
    before = MethodType(type(module).forward, module)
    for name in ("forward", *_KEPT):
        if getattr(own.get(name), "__func__", None) is ours.forward:
            own[name] = before
    wrapper = own.get("forward")
    if wrapper == before:
        del module.forward
    elif any(name in own for name in _KEPT) and hasattr(wrapper, "__wrapped__"):
        wrapper.__wrapped__ = before  # only its signature is read there
    elif _calls(wrapper, ours.forward):
        return wrapper
    return None


def _calls(wrapper: Any, forward: Forward) -> bool:
    """Whether a wrapper of a known kind is around a forward."""
    while wrapper is not None and getattr(wrapper, "__func__", wrapper) is not forward:
        if isinstance(wrapper, functools.partial):
            wrapper = wrapper.func
            continue
        wrapper = getattr(wrapper, "__func__", wrapper)
        names = ("__wrapped__", "_torchdynamo_orig_callable")
        wrapper = next((v for n in names if (v := getattr(wrapper, n, None)) is not None), None)
    return wrapper is not None


def patched(module: nn.Module) -> Any:
    """The class that `bind` made, or None."""
    return next((c for c in type(module).__mro__ if "unpatched_forward" in vars(c)), None)


def original(module: nn.Module) -> type:
    """The module's class without `bind`."""
    ours = patched(module)
    return type(module) if ours is None else ours.__bases__[0]


def untouched(module: Any, forwards: Collection[Forward | None]) -> bool:
    """Whether the module's forward is one of these, and no hook sees its call. Adapters that wrap a
    module after `patch`, and modules that take its place, compute something else. Where hooks see a
    call, the module is called as its class would, so that they see the same tensors and gradients.
    """
    bound = getattr(module, "forward", None)
    # not getattr(bound, "__func__", None): torch.compile of torch 2.11 traces it as None
    if not isinstance(bound, MethodType) or bound.__func__ not in forwards:
        return False
    any_hooks = (  # no call of a function: this is asked for several modules of each layer
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or _module._global_forward_hooks
        or _module._global_forward_pre_hooks
        or _module._global_backward_hooks
        or _module._global_backward_pre_hooks
    )
    return not any_hooks or all(map(_of_fsdp, _hooks(module)))


def _hooks(module: nn.Module) -> list[Any]:
    """The hooks of a module and of all modules."""
    names = ("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks")
    of = [getattr(module, f"_{name}") for name in names]
    of += [getattr(_module, f"_global_{name}") for name in names]
    return [hook for hooks in of for hook in hooks.values()]


def _of_fsdp(hook: Any) -> bool:
    """FSDP's hooks only look for parameters."""
    module = getattr(inspect.unwrap(hook), "__module__", None) or ""
    return module.startswith("torch.distributed.fsdp.")


def constant(number: float) -> float:
    """A module's attribute, as a constant where torch.compile traces with dynamic=True: the same
    symbolic number in two autograd Functions is an error in torch 2.13's compiler."""
    if torch.compiler.is_compiling():
        return torch.fx.experimental.symbolic_shapes.guard_scalar(number)
    return number


def mark(forward: Forward) -> None:
    """Mark a function that `patch` binds, so that it is recognized behind other wrappers."""
    forward.__kernelwright__, forward.__name__ = True, "forward"  # pyright: ignore[reportFunctionMemberAccess]


def is_ours(forward: Any) -> bool:
    return isinstance(forward, MethodType) and hasattr(forward.__func__, "__kernelwright__")


@cache
def _subclass(cls: Any, forward: Forward) -> type:
    """A class that differs only in its forward. A pickled instance is one of the original class."""

    def __reduce_ex__(self, protocol):
        function, args, *rest = cls.__reduce_ex__(self, protocol)
        if type(self) is ours:  # pickle rejects __newobj__ of another class than the object's
            function, args = copyreg._reconstructor, (cls, object, None)  # pyright: ignore[reportAttributeAccessIssue]
        return function, args, *rest

    members = {
        "forward": forward,
        "unpatched_forward": cls.forward,
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__reduce_ex__": __reduce_ex__,
    }
    if _copied_by_attributes(cls):  # else a copy is made by __reduce_ex__, of the original class
        members |= {"__copy__": _copy, "__deepcopy__": _deepcopy}
    ours = type(cls)(cls.__name__, (cls,), members)
    return ours


def _copied_by_attributes(cls: type) -> bool:
    names = ("__copy__", "__deepcopy__", "__getstate__", "__reduce__", "__reduce_ex__")
    return not any(name in vars(c) for name in names for c in cls.__mro__ if c is not object)


def _copy(self):
    twin = self.__new__(type(self))
    twin.__dict__ = dict(vars(self))
    return twin


def _deepcopy(self, memo):
    twin = memo[id(self)] = self.__new__(type(self))
    twin.__dict__ = copy.deepcopy(vars(self), memo)
    return twin


def _replaced(cls: Any, by: Callable[[type], type]) -> type:
    """A class in which the class below those that torch has put on top is replaced."""
    if not cls.__module__.startswith(_WRAPPERS) or "unpatched_forward" in vars(cls):
        return by(cls)
    *others, below = cls.__bases__
    members = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    return type(cls)(cls.__name__, (*others, _replaced(below, by)), members)
