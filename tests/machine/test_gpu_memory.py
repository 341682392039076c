"""Processes that need most of a GPU's memory take turns."""

import subprocess
import sys
import time

from kernelwright.machine import gpu_memory

OTHER = """
import time
from kernelwright.machine import gpu_memory
print("waits", flush=True)
with gpu_memory.exclusive():
    print(time.monotonic())
"""


def test_processes_take_turns_and_blocks_can_be_nested():
    with gpu_memory.exclusive(), gpu_memory.exclusive():
        other = subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True)
        assert other.stdout and other.stdout.readline() == "waits\n"
        time.sleep(0.2)
        left = time.monotonic()
    out, _ = other.communicate()
    assert float(out) > left
