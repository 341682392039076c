"""The CUDA driver: loads cubins and returns their functions. Used when binding, not in calls."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_int, c_uint, c_void_p
from functools import cache
from types import ModuleType

from kernelwright.support.errors import ToolchainError

from . import c_extensions
from .compiled import Compiled

SHARED_WITHOUT_OPT_IN = 48 * 1024  # bytes a block may use without opting in
PORTABLE_CLUSTER = 8
_SHARED_SIZE, _MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 1, 8, 14  # CUfunction_attribute

_SIGNATURES = {
    "cuInit": (c_int,),
    "cuDriverGetVersion": (c_void_p,),
    "cuDeviceGet": (c_void_p, c_int),
    "cuDevicePrimaryCtxRetain": (c_void_p, c_int),
    "cuCtxGetCurrent": (c_void_p,),
    "cuCtxPushCurrent_v2": (c_void_p,),
    "cuCtxPopCurrent_v2": (c_void_p,),
    "cuModuleLoadData": (c_void_p, c_char_p),
    "cuModuleGetFunction": (c_void_p, c_void_p, c_char_p),
    "cuFuncGetAttribute": (c_void_p, c_int, c_void_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuGetErrorName": (c_int, c_void_p),
    "cuGetErrorString": (c_int, c_void_p),
    "cuStreamGetCaptureInfo_v2": (c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
    "cuLaunchKernelEx": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuTensorMapEncodeTiled": (
        *(c_void_p, c_int, c_uint, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p),
        *(c_int, c_int, c_int, c_int),
    ),
}
# Functions that launcher.c calls directly, in the order of set_driver's parameters.
_FOR_LAUNCHER = (
    "cuLaunchKernelEx",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuStreamGetCaptureInfo_v2",
    "cuTensorMapEncodeTiled",
)


@cache
def library() -> ctypes.CDLL:
    """libcuda with its functions' types.

    Raises:
        ToolchainError: there is no driver, or it is older than CUDA 12.
    """
    try:
        lib = ctypes.CDLL("libcuda.so.1")
        for name, types in _SIGNATURES.items():
            function = getattr(lib, name)
            function.argtypes, function.restype = types, c_int
    except OSError:
        raise ToolchainError("no NVIDIA driver: libcuda.so.1 is not on this machine") from None
    except AttributeError as e:
        raise ToolchainError(f"the NVIDIA driver is older than CUDA 12: {e}") from None
    return lib


def check(code: int, what: str) -> None:
    """Raise ToolchainError with the driver's message if a call failed."""
    if code:
        name, text = c_char_p(), c_char_p()
        library().cuGetErrorName(code, byref(name))
        library().cuGetErrorString(code, byref(text))
        words = [(s.value or b"unknown").decode() for s in (name, text)]
        raise ToolchainError(f"{what}: {words[0]} ({words[1]})")


def version() -> tuple[int, int]:
    """The newest CUDA that the driver supports, (13, 0)."""
    number = c_int()
    check(library().cuDriverGetVersion(byref(number)), "cuDriverGetVersion")
    return number.value // 1000, number.value % 1000 // 10


@cache
def launchers() -> ModuleType:
    """The launcher extension, connected to the driver."""
    extension = c_extensions.module()
    addresses = [ctypes.cast(getattr(library(), n), c_void_p).value for n in _FOR_LAUNCHER]
    extension.set_driver(*addresses)
    return extension


@cache
def context(index: int) -> int:
    """The primary context of a device, which PyTorch uses too."""
    lib, device, handle = library(), c_int(), c_void_p()
    check(lib.cuInit(0), "cuInit")
    check(lib.cuDeviceGet(byref(device), index), "cuDeviceGet")
    check(lib.cuDevicePrimaryCtxRetain(byref(handle), device), "cuDevicePrimaryCtxRetain")
    assert handle.value
    return handle.value


@contextmanager
def current(index: int):
    """Make a device's primary context the thread's current one."""
    lib = library()
    check(lib.cuCtxPushCurrent_v2(context(index)), "cuCtxPushCurrent")
    try:
        yield
    finally:
        check(lib.cuCtxPopCurrent_v2(byref(c_void_p())), "cuCtxPopCurrent")


_functions: dict[tuple[bytes, str, int], int] = {}
_shared: dict[int, int] = {}  # dynamic shared memory allowed so far, by function


def function(compiled: Compiled, index: int, shared: int, cluster: int) -> int:
    """The kernel's handle on a device, with `shared` bytes and clusters of that size allowed.

    Raises:
        ToolchainError: the driver rejects the cubin, or that much shared memory.
    """
    lib = library()
    key = (compiled.cubin, compiled.name, index)
    with current(index):
        if key not in _functions:
            module, handle = c_void_p(), c_void_p()
            load = lib.cuModuleLoadData(byref(module), compiled.cubin)
            check(load, f"{compiled.name}: loading its {compiled.arch} cubin")
            get = lib.cuModuleGetFunction(byref(handle), module, compiled.name.encode())
            check(get, f"{compiled.name}: finding it in its cubin")
            assert handle.value
            # Loading may be lazy; querying an attribute forces it here, and not during a
            # capture.
            _functions[key] = handle.value
            _shared[handle.value] = 0
            _attribute(handle.value, _SHARED_SIZE)
        handle = _functions[key]
        static = _attribute(handle, _SHARED_SIZE)
        if static + shared > SHARED_WITHOUT_OPT_IN and shared > _shared[handle]:
            allow = lib.cuFuncSetAttribute(handle, _MAX_DYNAMIC_SHARED, shared)
            check(allow, f"{compiled.name}: {static} + {shared} bytes of shared memory per block")
            _shared[handle] = shared
        if cluster > PORTABLE_CLUSTER:
            allow = lib.cuFuncSetAttribute(handle, _NON_PORTABLE_CLUSTER, 1)
            check(allow, f"{compiled.name}: clusters of {cluster} blocks")
    return handle


def _attribute(handle: int, attribute: int) -> int:
    value = c_int()
    check(library().cuFuncGetAttribute(byref(value), attribute, handle), "cuFuncGetAttribute")
    return value.value
