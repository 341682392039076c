"""CUDA C++ on the CPU: what is built, when, and what reaches it."""

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import kernelwright as kw
from kernelwright import emulator
from kernelwright.contract import CudaKernel
from kernelwright.dispatch import ladder
from kernelwright.emulator import build, compiler, messages
from kernelwright.support import settings
from kernelwright.support.errors import CompileError
from kernelwright.support.includes import INCLUDE
from kernelwright.workbench.verify import cuda_kernels, verify
from support.primitives import PRIMITIVES, build_together, ints, run

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU to run on")
pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


@pytest.fixture(scope="module", autouse=True)
def built():
    build_together()


def test_a_debug_build_runs():
    out = ints(2, 40)
    run("indices", out, grid=2, block=40, kind="debug", workers=1, patience=0)
    assert out[1, 39].item() == 10039


OBSERVER = """
#include "runtime.h"
using namespace kw::emulator;
static long long seen[8];
static const void *places[64];
extern "C" {
long long *counts() { return seen; }
const void **where() { return places; }
static void access(Thread &, const void *, unsigned bytes, unsigned kind, const void *at) {
  if (seen[0] < 64) places[seen[0]] = at;
  seen[0] += kind == kRead, seen[1] += kind == kWrite;
  seen[2] += (kind & kAtomic) != 0, seen[3] += bytes;
}
static void barrier(Block &b) { seen[4] += b.threads[0].wait == kBarrier; }
static void warp(Thread &, unsigned lanes) { seen[5] += __builtin_popcount(lanes); }
static void thread_exit(Thread &) { ++seen[6]; }
static void block_begin(Block &b) { seen[7] += b.shared_bytes > 0; }
extern const Observer observer;
const Observer observer = {nullptr, nullptr, block_begin, nullptr, nullptr, thread_exit,
                           barrier, warp, access, nullptr};
}
"""
WATCHED = """
__global__ void k(const float4 *in, float *out, int *count) {
  __shared__ float s[32];
  const float4 v = in[threadIdx.x];
  s[threadIdx.x] = v.x + v.w;
  __syncthreads();
  out[threadIdx.x] = s[31 - threadIdx.x];
  if (__any_sync(0xffffffffu, threadIdx.x == 3)) atomicAdd(count, 1);
}
"""


@pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")
def test_an_observer_sees_each_access(tmp_path):
    (tmp_path / "observer.cpp").write_text(OBSERVER)
    library = tmp_path / "observer.so"
    command = [*compiler.command(), *compiler.LANGUAGE, f"-I{compiler.HERE}", "-shared"]
    subprocess.run([*command, str(tmp_path / "observer.cpp"), "-o", str(library)], check=True)
    observer = ctypes.CDLL(str(library))
    source = tmp_path / "watched.cu"
    source.write_text(WATCHED)
    x, out, count = torch.rand(32, 4), torch.empty(32), ints(1)
    address = ctypes.addressof(ctypes.c_char.in_dll(observer, "observer"))
    run("k", x, out, count, source=source, kind="watched", workers=1, observer=address)
    assert torch.equal(out, (x[:, 0] + x[:, 3]).flip(0))
    observer.counts.restype = ctypes.POINTER(ctypes.c_longlong)
    reads, writes, atomics, bytes_, barriers, lanes, exits, blocks = observer.counts()[:8]
    assert (atomics, barriers, lanes, exits, blocks) == (32, 1, 32, 32, 1)
    assert writes == 64
    assert (reads, bytes_) == (64, 32 * (16 + 4 + 4 + 4 + 4))
    observer.where.restype = ctypes.POINTER(ctypes.c_void_p)
    assert messages.line_of(observer.where()[0]) == "watched.cu:4"


# through plans and verify


def test_a_public_call_reaches_the_named_rung():
    x = torch.randn(3, 1000)
    seen = []
    with kw.use(softmax="cuda_warp"), emulator.mode(before=lambda step, values: seen.append(step)):
        y = kw.softmax(x, -1)
    torch.testing.assert_close(y, torch.softmax(x, -1))
    assert [step.kernel.name.split("<")[0] for step in seen] == ["softmax_fwd_warp"]


def test_several_threads_launch_at_once():
    def work(_):
        x = torch.randn(8, 3000)
        return all(
            torch.allclose(kw.softmax(x, -1), torch.softmax(x, -1), atol=1e-6) for _ in range(20)
        )

    with kw.use(softmax="cuda_block"), ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@no_gpu
def test_clusters_are_compiled_for_each_architecture_that_has_them():
    softmax = ladder("softmax")
    rung, config = softmax.rung("cuda_cluster"), {"vectors": 8, "blocks": 2}
    outcome, why = cuda_kernels.compile_rung(softmax, rung, config)
    assert outcome == "compiled", why
    assert "for sm_90a, 1 for sm_100a, 1 for sm_120a; " in why
    assert "sm_80" not in why


@no_gpu
def test_a_rung_that_does_not_build_is_an_error_and_tried_once(monkeypatch):
    total = ladder("sum")
    rung = total.rung("cuda_rows")
    tried = []

    def refuse(wanted):
        tried.append(wanted)
        raise CompileError("cuda_rows.cu:7: the emulator does not know wgmma")

    monkeypatch.setattr(emulator, "ensure", refuse)
    cuda_kernels.refusal.cache_clear()
    for case in verify.thorough_cases(total)[:2]:
        outcome = verify.verify_case(total, rung, rung.configs[0], case)
        assert outcome.outcome == "error"
        assert outcome.why == "CompileError: cuda_rows.cu:7: the emulator does not know wgmma"
    assert len(tried) == 1
    cuda_kernels.refusal.cache_clear()


@pytest.mark.long
def test_two_processes_build_the_same_at_once(tmp_path):
    source = tmp_path / "rung.cu"
    source.write_text("__global__ void k(int *x) { x[threadIdx.x] = 7; }")
    code = (
        "import sys; from pathlib import Path; from kernelwright.contract import CudaKernel; "
        "from kernelwright.emulator import launch; "
        "print(launch.load(CudaKernel(Path(sys.argv[1]), 'k')).kinds)"
    )
    environment = {**os.environ, "KW_CACHE": str(tmp_path / "cache")}
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(source)], env=environment, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for child in children:
        assert child.communicate()[0].decode().strip() == "('pointer',)"


@pytest.fixture
def builds_with(tmp_path, monkeypatch):
    """`builds_with(compiler, *programs)`: builds are another compiler's, in a cache of their own;
    skips where this machine lacks one of the programs."""
    known = (settings.settings, compiler.command, compiler.version, compiler.flags, build.runtime,
             build.prelude, build.emulator_key)  # fmt: skip

    def use(*programs):
        lacking = [p for p in programs if not shutil.which(p)]
        if lacking:
            pytest.skip(f"no {' and no '.join(lacking)} on this machine")
        monkeypatch.setenv("CXX", programs[0])
        monkeypatch.setenv("KW_CACHE", str(tmp_path / "cache"))
        for f in known:
            f.cache_clear()

    yield use
    monkeypatch.undo()
    for f in known:
        f.cache_clear()


@pytest.mark.long
def test_clang_runs_kernels_and_watches_none(builds_with):
    builds_with("clang++")
    assert compiler.missing() is None
    assert "the checks need g++" in str(compiler.missing("watched"))
    files = [str(Path(__file__).with_name(f"test_{name}.py")) for name in ("emulator", "faults")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_a_kernel_runs_on_aarch64(builds_with, tmp_path, monkeypatch):
    builds_with("aarch64-linux-gnu-g++", "qemu-aarch64")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    source, program = PRIMITIVES.with_name("elsewhere.cu"), tmp_path / "program"
    library, number = build.library_of(CudaKernel(source, "elsewhere"), "fast")
    assert number == 0
    libraries = [str(library), str(build.runtime())]
    command = [*compiler.command(), *compiler.LANGUAGE, f"-I{compiler.HERE}"]
    command += [str(source.with_suffix(".cpp")), *libraries, "-o", str(program)]
    command += [f"-Wl,-rpath,{Path(p).parent}" for p in libraries]
    subprocess.run(command, check=True)
    run_it = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program]
    done = subprocess.run(run_it, capture_output=True, text=True, timeout=100)
    x = (torch.arange(6 * 128) % 97 * 0.25).view(6, 128)
    assert done.stdout.split() == [f"{v:g}" for v in x.sum(1).tolist()] * 5, done


PACKAGE = INCLUDE.parent
#: Those of Hopper's tensor cores are translated with the kernels that include them.
HEADERS = [str(p.relative_to(PACKAGE)) for p in sorted(PACKAGE.rglob("*.cuh"))
           if p.parent.name != "hopper"]  # fmt: skip


@pytest.mark.parametrize("header", HEADERS)
def test_our_headers_have_cpu_bodies(header, tmp_path):
    source = tmp_path / "rung.cu"
    source.write_text(f'#include "{PACKAGE / header}"\n__global__ void k(float *x) {{ *x = 8; }}\n')
    x = torch.zeros(1)
    run("k", x, source=source, block=1)
    assert x.item() == 8


def test_a_line_is_the_programs_not_that_of_the_file_that_includes_it():
    frames = ("k", "/tmp/own.cu", 12), ("", f"/tmp/{compiler.UNIT}", 2)
    assert messages.format_frames(frames, "0x1") == "own.cu:12"
    assert messages.format_frames(frames[1:], "0x1") == "0x1"
