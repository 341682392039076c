"""Builds the module; `start` runs this in another process."""

import os

from kernelwright.toolchain import cpp_extension

os.nice(10)
cpp_extension.build()
