"""Launches that start before the one before them ends: each kernel waits before it reads."""

from pathlib import Path

import pytest

from kernelwright import ops
from kernelwright.contract import H200, CudaKernel
from kernelwright.dispatch import ladders, plan_of
from kernelwright.toolchain import binary, nvrtc
from kernelwright.workbench import inspect, where

OVERLAPPING = [
    f"norm_bwd_parts<{w}, {vec}, {16 // vec}>"
    for w in ("float", "__half", "__nv_bfloat16")
    for vec in (1, 4)
]


def test_what_overlaps_is_known():
    """Every kernel that starts before the one before it ends is in the next test."""
    found = set()
    for lad in ladders():
        for rung in lad.rungs:
            for case in where.thorough_cases(lad) if rung.backend == "cuda" else ():
                call = inspect.specs_of(lad, case)
                if case.numel and (rung.supports is None or rung.supports(H200, **call) is None):
                    steps = plan_of(lad, rung, call, config=rung.configs[0]).launches
                    found |= {step.kernel.name for step in steps if step.overlaps}
                    assert not steps[0].overlaps, f"{lad.name}.{rung.name}: nothing is before it"
    assert found and found <= set(OVERLAPPING)


@pytest.mark.parametrize("name", OVERLAPPING)
def test_what_overlaps_waits_before_it_reads(name):
    kernel = CudaKernel(Path(ops.__file__).parent / "norm" / "cuda_parts.cu", name)
    for arch in ("sm_90a", "sm_100a"):
        code = binary.sass(nvrtc.compile(kernel, arch)).splitlines()
        reads = [i for i, line in enumerate(code) if "LDG" in line]
        (waits,) = (i for i, line in enumerate(code) if "ACQBULK" in line)
        assert waits < reads[0]
    assert "ACQBULK" not in binary.sass(nvrtc.compile(kernel, "sm_80"))  # launches in turn there
