"""What looks on while an emulated kernel runs."""

import ctypes

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch
from kernelwright.emulator import Schedule, build, launch
from support.paths import FIXTURES

watched = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")


@watched
def test_no_thread_runs_while_an_observer_looks(tmp_path):
    """The clock ticks during each look. The thread that polls must give way to the one that it
    waits for, but only between two looks."""
    lib = ctypes.CDLL(str(build.observer(FIXTURES / "emulated" / "slow_observer")))
    lib.slow_observer.restype = ctypes.c_void_p
    source = tmp_path / "polls.cu"
    source.write_text(
        "__global__ void polls(int *flag) {\n"
        "  if (threadIdx.x) *flag = 7;\n"
        "  else while (*(volatile int *)flag != 7);\n"
        "}\n"
    )
    flag = torch.zeros(1, dtype=torch.int32)
    step = Launch(CudaKernel(source, "polls"), (1, 1, 1), ("flag",), (2, 1, 1), 0)
    schedule = Schedule(workers=1, patience=20)
    launch.run(launch.bound(step, "watched"), step, (flag,), schedule, lib.slow_observer())
    assert flag.item() == 7
    assert lib.slow_looks() > 2
    assert lib.slow_nested() == 0
