"""Builds the module; `start` runs this in another process."""

import os

from kernelwright.toolchain import host

os.nice(10)
host.build()
