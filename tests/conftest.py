"""Puts kernel languages into their modes before any test, and keeps account of what did not run."""

import os

import torch

import kernelwright.ops  # noqa: F401
from kernelwright import toolchain

if not torch.cuda.is_available():
    for backend in ("triton", "numba"):
        if toolchain.missing(backend, torch.device("cpu")) is None:
            toolchain.prepare(backend)
if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)  # workers share the cores
