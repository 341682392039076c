"""A pytest plugin: Triton's interpreter without Kernelwright's fixes."""

import os

os.environ["TRITON_INTERPRET"] = "1"  # before anything imports triton

from kernelwright.toolchain import interpreter_repairs

interpreter_repairs.apply = lambda: None
