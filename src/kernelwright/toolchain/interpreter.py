"""Runs Triton kernels on CPU tensors with Triton's interpreter, on machines without a GPU."""

from __future__ import annotations

import os
import sys
import threading
from functools import cache

from kernelwright.contract import Launch, Scalar, TritonKernel
from kernelwright.support.errors import ToolchainError

# The interpreter keeps the program's index in one global object.
_lock = threading.Lock()


def claim() -> None:
    """Set triton to interpret, before anything (such as torch.compile) imports it."""
    if "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"


@cache
def activate() -> None:
    """Import triton in its interpreting mode.

    Raises:
        ToolchainError: triton was imported before, in its compiling mode.
    """
    claim()
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise ToolchainError(
            "triton was imported in its compiling mode before a kernelwright operator ran; "
            "set TRITON_INTERPRET=1 before Python starts to interpret Triton rungs here"
        )
    from . import interpreter_bounds, interpreter_repairs

    interpreter_repairs.apply()
    interpreter_bounds.apply()


def launch(kernel: TritonKernel, step: Launch, values: list) -> None:
    """Run one launch: `values` are tensors and Scalars with numbers, in the kernel's order."""
    import numpy as np

    arguments = [typed_scalar(v) if isinstance(v, Scalar) else v for v in values]
    with _lock, np.errstate(all="ignore"):
        kernel.fn[step.grid](*arguments, **kernel.constexprs)


def typed_scalar(s: Scalar):
    """A scalar of exactly the planned type. Otherwise the interpreter would treat a small int64 as
    an int32 and pass floats to the kernel as plain Python numbers."""
    import numpy as np
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    dtype, ty = {
        "i32": (np.int32, tl.int32),
        "i64": (np.int64, tl.int64),
        "f32": (np.float32, tl.float32),
        "f64": (np.float64, tl.float64),
    }[s.ctype]
    return tl.tensor(TensorHandle(np.array([s.value], dtype=dtype), ty), ty)
