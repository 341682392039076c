"""Profiles: trees of calls, kernels by operator, flame graphs, swapped rungs, Nsight Compute."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from kernelwright.contract import UnknownRung
from kernelwright.support.errors import ToolchainError, UsageError
from kernelwright.workbench.profile import flame, ncu, profile, swap, trace, workload

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("few_threads")


@pytest.fixture(scope="module")
def training():
    return workload.make("train", "gpt2-tiny", 2, 16, CPU)


@pytest.fixture(scope="module")
def traced(training):
    return trace.record(training.step, CPU, warm_up=1)


def test_operators_are_those_of_the_model_and_of_their_gradients(traced):
    found = {row.operator: row for row in traced.operators()}
    for name in ("linear", "add_layer_norm", "gelu_after_linear", "linear_cross_entropy"):
        assert {name, f"{name}.backward"} <= found.keys()
    kernels = {(r.kernel, r.operator): r.count for r in traced.rows()}
    assert kernels["aten::addmm", "linear"] == 12  # with a bias: three per layer
    assert kernels["aten::native_layer_norm", "add_layer_norm"] == 9
    assert kernels["aten::native_layer_norm_backward", "add_layer_norm.backward"] == 9
    whole = sum(r.us for r in traced.operators())
    assert whole == pytest.approx(sum(r.us for r in traced.rows()))
    step = traced.roots[0]
    assert 0 < whole <= step.us


def test_calls_nest_and_other_threads_are_left_out(traced):
    step, *others = traced.roots
    assert not others
    for node in step.down():
        assert all(child.begin >= node.begin for child in node.children)
    names = {n.name.rpartition(": ")[2] for n in step.down()}
    assert {"hidden", "_mlp", "add_layer_norm"} <= names


def test_kernels_of_a_gpu_are_of_the_operator_that_launched_them():
    def event(cat, name, ts, dur, tid=1, **args):
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid,
                "args": args}  # fmt: skip

    events = [
        event("user_annotation", "kernelwright: the step", 0, 100),
        event("cpu_op", "kernelwright::softmax", 10, 20, **{"Sequence number": 7}),
        event("cuda_driver", "cuLaunchKernel", 15, 5, correlation=1),
        event("cpu_op", "autograd::engine::evaluate_function: MulBackward0", 50, 20, 2),
        event("cpu_op", "MulBackward0", 51, 18, 2, **{"Sequence number": 7}),
        event("cuda_runtime", "cudaLaunchKernel", 55, 5, 2, correlation=2),
        event("cpu_op", "kernelwright::softmax_backward", 72, 8, 2),
        event("cuda_driver", "cuLaunchKernel", 75, 3, 2, correlation=3),
        event("python_function", "threading.py(1): idle", 0, 100, 3),
        event("kernel", "softmax_fwd", 30, 11, 9, correlation=1),
        event("kernel", "mul", 70, 13, 9, correlation=2),
        event("kernel", "softmax_bwd", 90, 17, 9, correlation=3),
        event("gpu_memset", "Memset", 95, 1, 9, correlation=99),
    ]
    found = trace.read({"traceEvents": events})
    assert [(k.name, k.operator, k.us) for k in found.kernels] == [
        ("softmax_fwd", "softmax", 11), ("mul", "softmax.backward", 13),
        ("softmax_bwd", "softmax.backward", 17), ("Memset", "unknown", 1),
    ]  # fmt: skip
    assert flame.frames(found).us == 41
    assert not any("idle" in n.name for root in found.roots for n in root.down())


def test_a_flame_graph_is_one_page_of_escaped_names(traced):
    longest = max(traced.roots[0].children, key=lambda n: n.us)
    longest.name = "<script>alert('x')</script>"
    page = flame.page(traced, "a <b>")
    assert "&lt;script&gt;alert" in page and "<script>alert" not in page
    assert "http" not in page.replace('http-equiv="', "")
    assert page.count("data-x=") > 30


def test_a_profile_leaves_its_files(training, tmp_path):
    found = profile.profile(training, CPU, tmp_path / "new")
    assert [p.name for p in found.files] == ["trace.json", "flame.html", "memory.svg"]
    assert json.loads(found.files[0].read_text())["traceEvents"]
    assert found.peak_bytes > 100_000
    assert "<path" in found.files[2].read_text()


@pytest.mark.parametrize("what", ["generate", "layer_norm", "layer_norm.backward"])
def test_other_workloads(what, tmp_path):
    found = profile.profile(workload.make(what, "llama-tiny", 2, 0, CPU), CPU, tmp_path)
    wanted = {"generate": "swiglu"}.get(what, what)
    assert any(row.operator == wanted for row in found.operators)


def test_a_rung_is_swapped():
    def make():
        return workload.make("train", "gpt2-tiny", 1, 8, CPU)

    found = swap.measure(make, *swap.parsed("add_layer_norm=manual"), CPU)
    assert len(found.losses[0]) == swap.STEPS
    assert found.losses[1] == pytest.approx(found.losses[0], abs=1e-4)
    with pytest.raises(UnknownRung):
        swap.measure(make, "add_layer_norm", "none_such", CPU)
    with pytest.raises(UsageError, match="is not OP=RUNG"):
        swap.parsed("add_layer_norm")


CSV = """==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","a","gpu__time_duration.sum","ns","1,000"
"0","a","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","80"
"0","a","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","10"
"0","a","sm__warps_active.avg.pct_of_peak_sustained_active","%","50"
"0","a","launch__registers_per_thread","register/thread","32"
"1","a","gpu__time_duration.sum","ns","3000"
"1","a","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","40"
"1","a","sm__throughput.avg.pct_of_peak_sustained_elapsed","%","10"
"1","a","sm__warps_active.avg.pct_of_peak_sustained_active","%","50"
"1","a","launch__registers_per_thread","register/thread","40"
"""


def installed(folder: Path, text: str, code: int, monkeypatch) -> None:
    """A program named ncu that prints a text."""
    (folder / "answer").write_text(text)
    script = folder / "ncu"
    script.write_text(f"#!/bin/sh\ncat {folder / 'answer'}\nexit {code}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_counters_of_nsight_compute_are_added_up(tmp_path, monkeypatch):
    installed(tmp_path, CSV, 0, monkeypatch)
    (found,) = ncu.measure("train", "gpt2-tiny", 1, 0)
    assert found == ncu.Counters("a", 2, 4.0, 50.0, 10.0, 50.0, 40)


def test_nsight_compute_that_fails_or_is_missing_says_so(tmp_path, monkeypatch):
    installed(tmp_path, "==ERROR== ERR_NVGPUCTRPERM - no permission\n", 1, monkeypatch)
    with pytest.raises(ncu.NcuError, match="ERR_NVGPUCTRPERM"):
        ncu.measure("train", "gpt2-tiny", 1, 0)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    with pytest.raises(ncu.NcuError, match="is not installed"):
        ncu.measure("train", "gpt2-tiny", 1, 0)


def test_a_profile_without_kernels_is_an_error(monkeypatch):
    """The profiler may miss the GPU's kernels; a CPU's table would be shown as the GPU's."""
    monkeypatch.setattr(trace.profiler, "prepare", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with pytest.raises(ToolchainError, match="reports no kernel on the GPU"):
        trace.record(lambda: torch.ones(3, device="cpu").exp(), torch.device("cuda"))
