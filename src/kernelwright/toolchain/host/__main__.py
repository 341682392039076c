"""Builds the module: what `start` runs in another process."""

import os

from kernelwright.toolchain import host

os.nice(10)
host.build()
