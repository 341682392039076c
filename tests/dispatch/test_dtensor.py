"""Operators on DTensors, in two processes (support/sharded.py)."""

import subprocess
import sys

from support import ranks


def test_two_processes_compute_what_one_does():
    """Results and gradients, without gathering tensors that a rule allows to stay split; and a
    block with tensor and sequence parallelism."""
    ranks.output("sharded.py")


def test_the_operators_import_nothing_distributed():
    code = """
import sys, torch
before = set(sys.modules)
import kernelwright.ops.every
print({m for m in set(sys.modules) - before if m.startswith("torch.distributed.tensor")})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
