"""CUDA C++ on the CPU: what goes wrong, in words."""

import resource

import pytest
import torch

from kernelwright import emulator
from kernelwright.contract import CudaKernel, Launch, i32, i64
from kernelwright.emulator import EmulationError, build, compiler, launch
from kernelwright.support.errors import CompileError, ToolchainError
from support.primitives import PRIMITIVES, build_together, ints, run

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


@pytest.fixture(scope="module", autouse=True)
def built():
    build_together()


def line(text):
    """primitives.cu:17 for the line that holds `text`."""
    lines = PRIMITIVES.read_text().splitlines()
    return f"primitives.cu:{1 + next(i for i, x in enumerate(lines) if text in x)}"


def failure(name, *args, **how):
    with pytest.raises(EmulationError) as caught:
        run(name, *args, **how)
    return str(caught.value)


def test_an_assertion_names_thread_and_line():
    said = failure("asserts", torch.arange(8).int(), block=8)
    assert "asserts: thread (5, 0, 0) of block (0, 0, 0)" in said
    assert f"assertion `in[threadIdx.x] < 5` failed at {line('assert(')}" in said


def test_a_trap_names_thread_and_line():
    said = failure("stops", grid=3, block=(2, 2), workers=1)
    assert f"thread (0, 1, 0) of block (0, 0, 0): __trap() was called at {line('__trap')}" in said


def test_a_deadlock_says_who_waits_where():
    said = failure("waits_for_ever", block=32)
    assert "block (0, 0, 0) is deadlocked:" in said
    assert (
        f"threads 0 to 15 in __syncwarp for the lanes 0xffffffff at {line('__syncwarp();')}"[:58]
        in said
    )
    assert "threads 16 to 31 in __syncthreads at primitives.cu:" in said


def test_an_endless_loop_ends():
    said = failure("loops_for_ever", ints(1), block=2, patience=0.2)
    assert "thread (0, 0, 0) of block (0, 0, 0) has been at" in said or "thread (1, 0, 0)" in said
    assert line("while (*x == 0)") in said


def test_an_address_that_is_none():
    said = failure("reaches_nowhere", ints(1))
    assert "thread (3, 0, 0) of block (0, 0, 0) touches" in said
    assert line("1ll << 44") in said


def test_division_by_zero():
    said = failure("divides", ints(2), block=1)
    assert f"divides an integer by zero at {line('void divides')}" in said


def test_a_misaligned_vector():
    said = failure("misaligned", torch.zeros(16), block=1)
    assert "touches a misaligned address at primitives.cu:" in said


def test_a_lane_outside_of_its_mask():
    said = failure("not_in_its_mask", block=32)
    assert "thread (16, 0, 0)" in said
    assert "lane 16, which its own mask 0x0000ffff does not name, in a shuffle" in said


def test_a_stack_that_is_too_small():
    said = failure("overflows_its_stack", ints(2), block=1)
    assert "uses more than its stack of 256 KiB" in said


def test_the_next_launch_after_a_failure_works():
    failure("waits_for_ever", block=32)
    out = ints(1, 40)
    run("indices", out, grid=1, block=40)
    assert out[0, 39].item() == 39


def refused(tmp_path, text, name="k"):
    source = tmp_path / "rung.cu"
    source.write_text(text)
    with pytest.raises(CompileError) as caught:
        build.library_of(CudaKernel(source, name), "fast")
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('__global__ void k() {\n  asm volatile("bar.sync 0;");\n}', "rung.cu:2: inline PTX"),
        ("#include <cub/cub.cuh>\n", "rung.cu:1: the emulator has no header <cub/cub.cuh>; it has"),
        (
            "\n__global__ void k() {\n  __wgmma_fence();\n}",
            "rung.cu:3: the emulator does not know __wgmma_fence",
        ),
        ("__global__ void k() {\n  int x = ;\n}", "rung.cu:2: expected "),
        ("template <int N> __global__ void k() {}", "rung.cu, k: "),
    ],
)
def test_what_it_does_not_know_is_named_with_its_line(tmp_path, text, said):
    assert said in refused(tmp_path, text)


def test_arguments_that_are_not_the_kernels():
    step = Launch(CudaKernel(PRIMITIVES, "says"), (1, 1, 1), (i64(2),))
    with pytest.raises(ToolchainError, match=r"says takes \(i32\), but its plan passes \(i64\)"):
        launch.bound(step)


def test_blocks_and_shared_memory_beyond_any_gpu():
    kernel = CudaKernel(PRIMITIVES, "says")
    with pytest.raises(ToolchainError, match="a block of 2048 threads; 1024 are the most"):
        launch.bound(Launch(kernel, (1, 1, 1), (i32(2),), (1024, 2, 1)))
    with pytest.raises(ToolchainError, match="300000 bytes of dynamic shared memory"):
        launch.bound(Launch(kernel, (1, 1, 1), (i32(2),), shared=300_000))


def test_no_compiler(monkeypatch):
    compiler.command.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiler.missing() == "CXX is no-such-compiler, and there is no such program"
    compiler.command.cache_clear()
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    assert "install g++ or set CXX" in compiler.missing()
    compiler.command.cache_clear()


@pytest.mark.parametrize("name", ["meets", "scales"])
def test_blocks_share_stacks_and_threads(name):
    """Of a launch of 3,907 blocks: a stack mapped anew is a page fault, a thread started anew gives
    up the processor."""
    n = 1_000_000
    x, y = torch.rand(n), torch.empty(n)

    def counts():
        before = resource.getrusage(resource.RUSAGE_SELF)
        run(name, x, y, i32(n), grid=n // 256 + 1, block=256, workers=2)
        after = resource.getrusage(resource.RUSAGE_SELF)
        return after.ru_minflt - before.ru_minflt, after.ru_nvcsw - before.ru_nvcsw

    counts()
    faults, waits = counts()
    assert faults < 1000 and waits < 1000
