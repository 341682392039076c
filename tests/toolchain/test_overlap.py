"""Launches that start before the previous one ends: each kernel waits before it reads."""

from pathlib import Path

import pytest

from kernelwright import ops
from kernelwright.contract import H200, CudaKernel
from kernelwright.dispatch import ladders, plan_of, unsupported_on
from kernelwright.toolchain import binary, nvrtc
from kernelwright.workbench import inspection
from kernelwright.workbench.verify import coverage

TYPES = ("float", "__half", "__nv_bfloat16")
HALF = "__nv_bfloat16"
OVERLAPPING = {
    "norm/layer_norm/cuda_parts.cu": [
        f"norm_bwd_parts<{w}, {v}, {16 // v}>" for w in TYPES for v in (1, 4)
    ],
    "random/dropout/cuda_vec16.cu": [f"dropout_bwd_parts<{w}>" for w in TYPES],
    "norm/layer_norm_residual_dropout_gelu/cuda_block.cu": [f"chain_bwd_parts<{w}>" for w in TYPES],
    "embedding/lookup/cuda_atomics.cu": [
        *(
            f"embedding_bwd_atomics<{w}, long long, {v}, 64, 256>"
            for w, v in (("float", 4), (HALF, 8))
        ),
        f"embedding_narrow<{HALF}, 256>",
    ],
    "embedding/lookup/cuda_order.cu": [
        *(f"embedding_{k}<long long, 8, 8, 256>" for k in ("count", "place")),
        "embedding_scan<256>",
        "embedding_starts<256>",
    ],
    "embedding/lookup/cuda_runs.cu": [
        "embedding_count<long long, 15, 64, 4, 256>",
        "embedding_place<long long, 256>",
        "embedding_order<256>",
    ],
    "embedding/lookup/cuda_scatter.cu": [
        f"embedding_fwd_scatter_pieces<{HALF}, long long, 8, 256>",
        f"embedding_fwd_scatter_rows<{HALF}, 8, 256>",
    ],
    "embedding/lookup/cuda_slots.cu": [
        f"embedding_bwd_slots_pieces<{HALF}, 8, 128>",
        f"embedding_bwd_slots_rows<{HALF}, 8, 128, 1, 1280, 128>",
    ],
    "embedding/lookup/cuda_sorted.cu": [
        f"embedding_bwd_pieces<{HALF}, 8, 64, 8, 256>",
        f"embedding_bwd_rows<{HALF}, 8, 64, 4, 256>",
    ],
}
OVERLAPPING |= {
    "index/index_add/cuda_atomics.cu": [
        "index_add_atomics<float, long long, 1, 256>",
        "index_add_narrow<__half, 256>",
    ],
    "index/index_add/cuda_ordered.cu": ["index_add_rows<float, 4, 128, 1, 1280, 128>"],
    "norm/batch_norm/cuda_channels_split.cu": [
        "group_norm_fwd_channels_split_apply<kw::SetNorm<float, float, false, true>, 1, 256, 4>"
    ],
    "norm/batch_norm/cuda_channels_split_backward.cu": [
        "group_norm_bwd_channels_split_apply<kw::SetNorm<float, float, false, true>, 1, 256, 2>"
    ],
    "norm/batch_norm/cuda_split.cu": [
        "group_norm_fwd_split_apply<kw::SetNorm<float, float, false, true>, 1, 256, 4>"
    ],
    "norm/batch_norm/cuda_split_backward.cu": [
        "group_norm_bwd_split_apply<kw::SetNorm<float, float, false, true>, 1, 256, 2>"
    ],
    "norm/group_norm/cuda_parameters.cu": ["group_norm_bwd_parameters<float, 8>"],
    "sort/histogram/cuda_global.cu": ["histogram_global<float, 4, 2, 256>"],
    "sort/sort/cuda_onesweep.cu": [
        "sort_onesweep<float, true, unsigned, true, false, 20, 384, 2>",
    ],
}
#: These read only the operator's arguments, which no launch writes, before they wait.
ARGUMENTS_FIRST = {
    "scan_lookback", "scan_tree_sums", "scan_tree_segments", "index_add_small", "sort_histogram",
    "histogram_runs", "histogram_shared", "paged_merge_bulk",
}  # fmt: skip
KERNELS = [(source, name) for source, names in OVERLAPPING.items() for name in names]
#: The first instance of each template, and the others.
FIRST = {(source, name.partition("<")[0]): (source, name) for source, name in reversed(KERNELS)}
INSTANCES = [
    pytest.param(*k, marks=() if k in FIRST.values() else pytest.mark.long) for k in KERNELS
]


def test_what_overlaps_is_known():
    """Every kernel that starts before the previous one ends is in the next test."""
    found = set()
    for lad in ladders():
        for rung in lad.rungs:
            for case in coverage.thorough_cases(lad) if rung.backend == "cuda" else ():
                call = inspection.specs_of(lad, case)
                if unsupported_on(rung, call, H200) is None:
                    steps = plan_of(lad, rung, call, config=rung.configs[0]).launches
                    found |= {_what(step.kernel.name) for step in steps if step.overlaps}
                    assert not steps[0].overlaps, f"{lad.name}.{rung.name}: nothing is before it"
    assert found == {_what(name) for _, name in KERNELS} | ARGUMENTS_FIRST


def _what(kernel: str) -> str:
    return kernel.partition("<")[0]


@pytest.mark.parametrize(("source", "name"), INSTANCES)
def test_what_overlaps_waits_before_it_reads(source, name):
    assert _waits_first(source, name, "sm_90a")


@pytest.mark.long
@pytest.mark.cover
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: _what(k[1]))
@pytest.mark.parametrize(("arch", "waits"), [("sm_100a", True), ("sm_80", False)])
def test_on_other_architectures(kernel, arch, waits):
    """On architectures without overlap, launches run one after another."""
    assert _waits_first(*kernel, arch) == waits


def _waits_first(source: str, name: str, arch: str) -> bool:
    """Whether a kernel waits for the previous one before its first read; False if it does not wait
    at all."""
    kernel = CudaKernel(Path(ops.__file__).parent / source, name)
    code = binary.sass(nvrtc.compile(kernel, arch)).splitlines()
    reads = [i for i, line in enumerate(code) if "LDG" in line]
    waits = [i for i, line in enumerate(code) if "ACQBULK" in line]
    assert len(waits) <= 1 and (not waits or waits[0] < reads[0]), (waits, reads)
    return bool(waits)
