"""A pytest plugin: Triton's interpreter as it is, without Kernelwright's repairs."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton

from kernelwright.toolchain import interpreter_repairs

interpreter_repairs.apply = lambda: None
