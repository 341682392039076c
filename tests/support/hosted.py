"""The host side of an H200 with CPU tensors: everything in a call except its kernels. The driver
is a fake that launches nothing, so results are uninitialized memory.

CALLS are those whose host cost is counted (test_host_cost.py) and timed (tools/host_cost.py).
"""

import ctypes
import subprocess
import sys
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import kernelwright as kw
from kernelwright import dispatch, toolchain
from kernelwright.contract import H200, TritonKernel
from kernelwright.toolchain import (
    availability,
    build,
    c_extensions,
    compiled,
    driver,
    gpu_executor,
    modes,
    pointer_arrays,
)
from support.publics import randn

FAKE = Path(__file__).with_name("fake_driver.c")
_HERE = torch.device("cpu", 0)

M, N = 16, 64
INDICES = torch.arange(M)
CALLS = {  # ours, PyTorch's if it is one operator, the shapes of the differentiated tensors
    "add": (kw.add, torch.add, (M, N), (M, N)),
    "mul": (kw.mul, torch.mul, (M, N), (M, N)),
    "relu": (kw.relu, torch.relu, (M, N)),
    "silu": (kw.silu, F.silu, (M, N)),
    "sigmoid": (kw.sigmoid, torch.sigmoid, (M, N)),
    "tanh": (kw.tanh, torch.tanh, (M, N)),
    "gelu": (kw.gelu, F.gelu, (M, N)),
    "softmax": (partial(kw.softmax, dim=-1), partial(F.softmax, dim=-1), (M, N)),
    "sum": (partial(kw.sum, dim=-1), partial(torch.sum, dim=-1), (M, N)),
    "layer_norm": (
        lambda x, w, b: kw.layer_norm(x, (N,), w, b),
        lambda x, w, b: F.layer_norm(x, (N,), w, b),
        (M, N),
        (N,),
        (N,),
    ),
    "cross_entropy": (
        lambda x: kw.cross_entropy(x, INDICES),
        lambda x: F.cross_entropy(x, INDICES),
        (M, N),
    ),
    "embedding": (partial(kw.embedding, INDICES), partial(F.embedding, INDICES), (M, N)),
    "dropout": (kw.dropout, F.dropout, (M, N)),
}


@contextmanager
def hosted(folder: Path):
    """Inside the block, calls on CPU tensors select, plan and launch like on an H200.

    Args:
        folder: the folder in which the fake driver is built.
    """
    assert not modes.has_gpu()
    library = folder / "libcuda.so.1"
    command = [*(c_extensions.compiler() or ()), "-O2", "-shared", "-fPIC", str(FAKE)]
    subprocess.run([*command, "-o", str(library)], check=True, capture_output=True)
    lib = ctypes.CDLL(str(library))
    ctypes.c_int.in_dll(lib, "quiet").value = 1
    ctypes.c_int.in_dll(lib, "static_shared").value = 0  # the kernels are not compiled
    for name, types in driver._SIGNATURES.items():
        getattr(lib, name).argtypes = types
    lib.set_context.argtypes = [ctypes.c_void_p]
    lib.set_context(0xC0)
    guards, of_gpu = torch._C._dynamo.guards, lambda device: H200
    cached = (driver.library, driver.launchers, driver.context)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, stand_in in (
            (driver, "library", lambda: lib),
            (driver, "launchers", cache(driver.launchers.__wrapped__)),
            (driver, "_functions", {}),
            (driver, "_shared", {}),
            (driver, "context", lambda _: 0xC0),
            (build, "compile", _compiled),
            (gpu_executor, "hidden_parameters", lambda *_: 0),
            (gpu_executor, "gpu_of", of_gpu),
            (dispatch.selection, "gpu_of", of_gpu),
            (sys.modules["kernelwright.dispatch.launcher"], "gpu_of", of_gpu),
            (availability, "missing", lambda *_: None),
            (toolchain, "executor", _executor),
            (toolchain, "open_executor", _open_executor),
            (toolchain, "opens", lambda args: True),
            (pointer_arrays, "in_c", lambda: True),
            (torch.cuda, "device_count", lambda: 1),
            (torch.cuda, "current_stream", lambda *_: torch.Stream("cpu")),
            # builtins, like the functions that they replace
            (torch._C, "_cuda_getCurrentRawStream", abs),
            (torch._C, "_cuda_getDevice", int),
            (guards, "_empty_strided_cuda", guards._empty_strided_cpu),
        ):
            patch.setattr(owner, name, stand_in, raising=False)
        yield
    for f in cached:
        f.cache_clear()


def _executor(plan, operator, specs, copies, device):
    return gpu_executor.executor(plan, operator, specs, copies, _HERE)


def _open_executor(plan, operator, specs, copies, device, trace):
    return gpu_executor.opened(plan, operator, specs, copies, _HERE, trace)


def _compiled(step, tensors, arch):
    """A cubin for the fake driver, and the threads of a Triton program."""
    name = build.name_of(step.kernel)
    threads = 32 * step.kernel.num_warps if isinstance(step.kernel, TritonKernel) else 0
    return compiled.Compiled(name, arch, b"\x7fELF" + repr(step.kernel).encode(), "", threads)


def both(function, shapes):
    """Forward and backward."""
    leaves = [
        randn(*s, dtype=torch.bfloat16, seed=i).requires_grad_() for i, s in enumerate(shapes)
    ]
    gradient = torch.ones_like(function(*leaves))
    return lambda: torch.autograd.grad(function(*leaves), leaves, gradient)
