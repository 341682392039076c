"""Compiles the kernel that torch.compile wrote, for an H200 and without a GPU, in a second process,
because this one may interpret Triton."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import torch

from kernelwright.contract import Launch, Plan, TensorSpec, TritonKernel, i32
from kernelwright.dispatch import ladder
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import build, modes
from kernelwright.workbench import inspection
from kernelwright.workbench.inspection import Inspection

ARCH = "sm_90a"


def compiled() -> Inspection:
    """The kernel's properties and its code.

    Raises:
        ToolchainError: Triton cannot compile it.
    """
    done = subprocess.run([sys.executable, "-m", __name__], capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().splitlines() or ["no message"]
        raise ToolchainError(f"compiling torch.compile's kernel: {last[-1]}")
    return inspection.loaded(json.loads(done.stdout))


def _here() -> Inspection:
    """The second process, which compiles Triton kernels."""
    own = import_module(f"{__package__}.inductor_kernel")
    kernel = TritonKernel(
        own.triton_per_fused_softmax, {"XBLOCK": own.XBLOCK}, own.WARPS, own.STAGES
    )
    arguments = ("x", "y", i32(own.ROWS), i32(own.COLUMNS))
    launch = Launch(kernel, (own.ROWS // own.XBLOCK, 1, 1), arguments)
    import_module("kernelwright.ops.reduce.softmax")
    operator = ladder("softmax").operator
    x = TensorSpec.contiguous((own.ROWS, own.COLUMNS), torch.float32)
    tensors = build.Tensors(Plan((launch,)), operator, {"x": x, "dim": -1})
    head = ("softmax", "compiled", "triton", {}, f"{own.ROWS}x{own.COLUMNS}-f32-dim=-1", ARCH)
    return inspection.compiled(head, launch, tensors, ARCH)


if __name__ == "__main__":
    modes.compile_only()
    json.dump(_here().as_json(texts=True), sys.stdout)
