"""Launches that start before the one before them ends: each kernel waits before it reads."""

from pathlib import Path

import pytest

from kernelwright import ops
from kernelwright.contract import H200, CudaKernel
from kernelwright.dispatch import ladders, plan_of
from kernelwright.toolchain import binary, nvrtc
from kernelwright.workbench import inspect, where

TYPES = ("float", "__half", "__nv_bfloat16")
OVERLAPPING = {
    "norm/cuda_parts.cu": [f"norm_bwd_parts<{w}, {v}, {16 // v}>" for w in TYPES for v in (1, 4)],
    "bias_gelu/cuda_vec16.cu": [f"bias_gelu_bwd_parts<{w}>" for w in TYPES],
    "dropout/cuda_vec16.cu": [f"dropout_bwd_parts<{w}>" for w in TYPES],
    "dropout/cuda_octets.cu": [f"dropout_octets_parts<{w}>" for w in TYPES],
    "layer_norm_residual_dropout_gelu/cuda_block.cu": [f"chain_bwd_parts<{w}>" for w in TYPES],
}
KERNELS = [(source, name) for source, names in OVERLAPPING.items() for name in names]


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
    assert found and found <= {name for _, name in KERNELS}


@pytest.mark.parametrize(("source", "name"), KERNELS)
def test_what_overlaps_waits_before_it_reads(source, name):
    kernel = CudaKernel(Path(ops.__file__).parent / source, name)
    for arch in ("sm_90a", "sm_100a"):
        code = binary.sass(nvrtc.compile(kernel, arch)).splitlines()
        reads = [i for i, line in enumerate(code) if "LDG" in line]
        (waits,) = (i for i, line in enumerate(code) if "ACQBULK" in line)
        assert waits < reads[0]
    assert "ACQBULK" not in binary.sass(nvrtc.compile(kernel, "sm_80"))  # launches in turn there
