"""Running rungs under NVIDIA's tools: announcements of calls, and parsing of the output."""

import json
import subprocess
import sys

import pytest
import torch

from kernelwright.dispatch import ladder
from kernelwright.workbench.sanitize import compute_sanitizer, tool_runner
from kernelwright.workbench.verify.candidate import same_bits
from tools import counters

ANNOUNCED = tool_runner.MARK + json.dumps(
    {"operator": "softmax", "rung": "cuda_warp", "config": {}, "case": "5x33", "launches": 1}
)
SANITIZED = f"""\
========= COMPUTE-SANITIZER
{ANNOUNCED}
========= Invalid __global__ write of size 4 bytes
=========     at softmax_fwd_warp(float *)+0x90 in cuda_warp.cu:12
=========     by thread (1,0,0) in block (0,0,0)
=========     Access at 0x7f0000000400 is out of bounds
=========
========= Error: Race reported between Write access at f(float *)+0x10 in reduce.cuh:9
=========     and Read access at f(float *)+0x40 in reduce.cuh:11 [32 hazards]
=========
{ANNOUNCED}
========= ERROR SUMMARY: 2 errors
"""
COUNTED = """\
==PROF== Connected to process 559
kernelwright-runs {}
"ID","Kernel Name","smsp__inst_executed.sum","dram__bytes_read.sum"
"","","inst","byte"
"0","sum_strided(const T1 *)","4,197,632","1,024.5"
"""


def test_a_finding_has_its_place_and_belongs_to_the_call_before_it():
    (what, first), (_, second) = compute_sanitizer.sections(SANITIZED)
    assert what["rung"] == "cuda_warp"
    assert compute_sanitizer.findings(first) == [
        "Invalid __global__ write of size 4 bytes, at softmax_fwd_warp(float *)+0x90 in "
        "cuda_warp.cu:12, by thread (1,0,0) in block (0,0,0)",
        "Error: Race reported between Write access at f(float *)+0x10 in reduce.cuh:9, "
        "and Read access at f(float *)+0x40 in reduce.cuh:11 [32 hazards]",
    ]
    assert compute_sanitizer.findings(second) == []


@pytest.mark.parametrize(
    ("calls", "found", "outcome"),
    [(3, [], "pass"), (3, ["5x33: Invalid"], "wrong"), (0, [], "unsupported")],
)
def test_a_watched_rung_passes_only_if_it_ran_and_nothing_was_found(calls, found, outcome):
    row = compute_sanitizer.Watched(
        "softmax", "cuda_warp", "bounds", "hash", "memcheck", calls, findings=found
    )
    record = row.record("nvidia-h200", "run")
    assert (record.outcome, record.case) == (outcome, "check:bounds")
    assert "memcheck" in record.why


def test_counters_are_read_from_ncus_table():
    (row,) = counters._rows(COUNTED.splitlines())
    assert row["Kernel Name"] == "sum_strided(const T1 *)"
    assert counters._number(row["smsp__inst_executed.sum"]) == 4197632
    assert counters._number(row["dram__bytes_read.sum"]) == 1024.5


def test_counters_are_merged_by_launch(tmp_path):
    def counted(value):
        return counters.Counted("sum", "cuda_strided", "h", "c", 0, "k", {"instructions": value})

    counters.save([counted(1)], "nvidia-h200", tmp_path)
    counters.save([counted(2)], "nvidia-h200", tmp_path)
    assert counters.load("nvidia-h200", tmp_path) == [counted(2)]


@pytest.mark.parametrize("layout", ["sliced", "permuted", "offset", "expanded"])
def test_a_copied_argument_keeps_strides_and_alignment(layout):
    from kernelwright.contract import case
    from kernelwright.contract.inputs import tensor

    t = tensor(case((6, 40), torch.float16, layout=layout), "x")
    copy = tool_runner.apart(t, "cpu")
    assert copy.stride() == t.stride() and copy.data_ptr() % 16 == t.data_ptr() % 16
    assert same_bits(copy, t)


@pytest.mark.skipif(
    torch.cuda.is_available(), reason="Triton's interpreter needs a machine without a GPU"
)
def test_a_process_of_its_own_announces_what_it_runs():
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.workbench.sanitize.tool_runner", "cpu",
         "softmax.triton_row", "--case", "5x33-f32-dim=-1"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (line,) = [t for t in done.stdout.splitlines() if t.startswith(tool_runner.MARK)]
    assert json.loads(line.removeprefix(tool_runner.MARK))["launches"] == 1


def test_watched_cases_span_several_blocks():
    largest = max(tool_runner.watched_cases(ladder("sum")), key=lambda c: c.numel)
    assert largest.numel >= 4000, largest.id
