"""Every operator: importing this registers all ladders, in the order of the table in `ops`."""

import importlib

from kernelwright.dispatch import registry
from kernelwright.ops import LADDERS

MODULES = tuple(f"kernelwright.ops.{ladder}" for ladder in LADDERS)
for module in MODULES:
    importlib.import_module(module)
registry.arrange(MODULES)
