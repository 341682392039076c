"""From source to binary: each part on inputs that make it fail, without a GPU."""

import os
import subprocess
import sys
import threading

import pytest
import torch

from kernelwright import dispatch, toolchain
from kernelwright.contract import CudaKernel, Launch, Plan, TensorSpec, f32, i32
from kernelwright.emulator import build as emulated
from kernelwright.emulator.program import headers as program_headers
from kernelwright.support import cuda_headers, includes, progress, settings
from kernelwright.support.errors import CompileError, ToolchainError
from kernelwright.toolchain import availability, binary, build, compiled, nvrtc, tools
from kernelwright.workbench.inspection import inspect
from support.planning import CUDA_SOURCE, cuda_plan, no_gpu, own_cache, scale_cu, scaling  # noqa: F401

# --- NVRTC -------------------------------------------------------------------------------------


def test_cuda_kernel_compiles_and_the_cache_serves_it(cached, cuda_source, monkeypatch):
    kernel = CudaKernel(cuda_source, "scale<float>")
    made = nvrtc.compile(kernel, "sm_90a")
    assert made.cubin[:4] == b"\x7fELF" and ".target sm_90a" in made.ptx
    monkeypatch.setattr(nvrtc, "_compile", None)  # calling it would fail
    assert nvrtc.compile(kernel, "sm_90a") == made


def test_a_changed_header_changes_the_key(cached, cuda_source):
    header = cuda_source.with_name("factor.cuh")
    header.write_text("#define FACTOR 1\n")
    cuda_source.write_text('#include "factor.cuh"\n' + CUDA_SOURCE.replace("T(a)", "T(FACTOR)"))
    kernel = CudaKernel(cuda_source, "scale<float>")
    first = nvrtc.compile(kernel, "sm_80").ptx
    header.write_text("#define FACTOR 2\n")
    assert nvrtc.compile(kernel, "sm_80").ptx != first


def test_a_header_of_a_header_changes_the_keys_of_both_compilers(cached, cuda_source):
    folder = cuda_source.parent / "parts"
    folder.mkdir()
    (folder / "near.cuh").write_text('#include "far.cuh"\n')
    cuda_source.write_text('#include "parts/near.cuh"\n' + CUDA_SOURCE)
    kernel, keys = CudaKernel(cuda_source, "scale<float>"), []
    for number in (1, 2):
        (folder / "far.cuh").write_text(f"#define FACTOR {number}\n")
        keys.append((includes.texts(cuda_source), emulated._note_key(kernel, "fast")))
    assert all(one != other for one, other in zip(*keys, strict=True))


def test_a_header_that_a_macro_names_is_refused(cached, cuda_source):
    cuda_source.write_text("#define WHICH <kw/types.cuh>\n#include WHICH\n" + CUDA_SOURCE)
    with pytest.raises(CompileError, match=r"#include WHICH: write the header's name"):
        nvrtc.compile(CudaKernel(cuda_source, "scale<float>"), "sm_90a")


def test_cuda_error_names_file_and_line(cached, cuda_source):
    cuda_source.write_text(CUDA_SOURCE.replace("x[i] * T(a)", "no_such_name"))
    with pytest.raises(CompileError, match=r"scale\.cu\(5\): error: .*no_such_name"):
        nvrtc.compile(CudaKernel(cuda_source, "scale<float>"), "sm_90a")


def test_incomplete_headers_are_named(monkeypatch, tmp_path):
    (tmp_path / "cuda_fp16.h").touch()
    monkeypatch.setattr(cuda_headers, "candidates", lambda: [tmp_path])
    with pytest.raises(ToolchainError, match=r"lacks .*nv/target.*pip install"):
        cuda_headers.complete.__wrapped__()


def test_an_incomplete_set_of_headers_is_passed_over(monkeypatch, tmp_path):
    """A wheel of the runtime without that of its crt headers, beside a toolkit."""
    whole, partial = tmp_path / "toolkit", tmp_path / "wheel"
    for folder, names in ((whole, cuda_headers.NEEDED), (partial, cuda_headers.NEEDED[:3])):
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).touch()
    monkeypatch.setattr(cuda_headers, "candidates", lambda: [partial, whole])
    monkeypatch.setattr(cuda_headers, "complete", cuda_headers.complete.__wrapped__)
    assert cuda_headers.complete() == ((whole,),)
    assert program_headers.toolkit_folders.__wrapped__() == (whole,)
    assert nvrtc.include_folders.__wrapped__() == (whole,)


def test_a_plan_whose_arguments_are_not_the_kernels_is_refused(cached, cuda_source):
    op, specs = scaling(), {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    step = cuda_plan(cuda_source, 8).launches[0]
    wrong = Launch(step.kernel, step.grid, ("x", "y", i32(8), f32("a")), step.block)
    tensors = build.Tensors(Plan((wrong,)), op, specs)
    with pytest.raises(ToolchainError, match=r"takes \(u64, u64, u64, f32\)"):
        build.compile(wrong, tensors, "sm_90a")
    with pytest.raises(ToolchainError, match="'z', which is not a tensor"):
        tensors["z"]


def test_hidden_parameters_are_counted_and_must_be_pointers():
    def made(parameters):
        ptx = f".visible .entry k(\n{parameters}\n)\n{{"
        return compiled.Compiled("k", "sm_90a", b"", ptx)

    triton = ".param .u64 .ptr .global .align 1 k_0,\n.param .u32 k_1,\n.param .u64 .ptr k_2"
    assert compiled.hidden_parameters(made(triton), ("pointer", "i32")) == 1
    with pytest.raises(ToolchainError):
        compiled.hidden_parameters(made(triton + ",\n.param .f32 k_3"), ("pointer", "i32"))
    with pytest.raises(ToolchainError):
        compiled.hidden_parameters(made(".param .u64 k_0"), ("pointer", "i32"))


# --- what a binary is --------------------------------------------------------------------------

BUSY_SOURCE = """
extern __shared__ float dynamic[];
template <int N> __global__ void busy(const float4 *x, float4 *y, int n) {
  __shared__ float s[256];
  float4 v = x[threadIdx.x];
  s[threadIdx.x] = v.x + dynamic[threadIdx.x];
  __syncthreads();
  v.y = exp2f(s[255 - threadIdx.x]) + __shfl_xor_sync(~0u, v.z, 1);
  if (N > 1) {
    float a[N];
    for (int i = 0; i < N; i++) a[i] = x[i * n].x;
    for (int i = 0; i < N; i++) v.z += a[(i * n) % N];
  }
  atomicAdd(&y[n].x, v.w);
  y[threadIdx.x] = v;
}
"""


def test_binary_reads_resources_and_instructions(cached, tmp_path):
    source = tmp_path / "busy.cu"
    source.write_text(BUSY_SOURCE)
    made = nvrtc.compile(CudaKernel(source, "busy<1>"), "sm_90a")
    found = binary.resources(made)
    assert found.static_shared == 1024 and found.registers < 64 and found.stack == 0
    mix = binary.instructions(binary.sass(made))
    assert mix.global_loads == {128: 1} and mix.global_stores == {128: 1}
    assert mix.shared_stores == 1 and mix.shared_loads == 2 and mix.barriers == 1
    assert mix.shuffles == 1 and mix.atomics == 1 and mix.special == {"EX2": 1}
    assert mix.tensor_core == 0 and mix.local == 0 and mix.total > 20
    indexed = nvrtc.compile(CudaKernel(source, "busy<32>"), "sm_90a")
    assert binary.resources(indexed).stack == 128
    assert binary.instructions(binary.sass(indexed)).local > 0


def test_binary_counts_by_width_and_unit():
    mix = binary.instructions("""
        /*0000*/                   LDG.E.U16 R4, desc[UR8][R4.64] ;
        /*0010*/             @!P0  LDG.E.64.CONSTANT R4, desc[UR8][R4.64] ;
        /*0020*/              @P1  LDG.E R4, desc[UR8][R4.64] ;
        /*0030*/             @!UP1 STG.E.U8 desc[UR8][R4.64], R2 ;
        /*0040*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR4], !UPT ;
        /*0050*/                   LDGSTS.E.BYPASS.128 [R5], desc[UR4][R2.64] ;
        /*0060*/                   NOP ;
    """)
    assert mix.global_loads == {16: 1, 32: 1, 64: 1} and mix.global_stores == {8: 1}
    assert (mix.tensor_core, mix.async_copies, mix.total) == (1, 1, 6)


@pytest.mark.parametrize(
    "arch, threads, registers, shared, expected",
    [
        ("sm_90a", 128, 32, 0, (16, 1.0, "warps")),
        ("sm_90a", 32, 32, 0, (32, 0.5, "blocks")),
        ("sm_90a", 256, 128, 0, (2, 0.25, "registers")),
        ("sm_90a", 256, 32, 100 * 1024, (2, 0.25, "shared memory")),
        ("sm_90a", 256, 32, 228 * 1024, (0, 0.0, "shared memory")),
        ("sm_120a", 256, 40, 0, (6, 1.0, "warps")),
        ("sm_80", 1024, 33, 0, (1, 0.5, "registers")),
    ],
)
def test_occupancy(arch, threads, registers, shared, expected):
    found = binary.occupancy(arch, threads, registers, shared)
    assert (found.blocks, found.fraction, found.limit) == expected


def test_unknown_architectures_are_named():
    with pytest.raises(ValueError, match="arch: 'hopper' is not an architecture"):
        binary.capability("hopper")
    with pytest.raises(ValueError, match="arch: the limits of sm_70 are not known"):
        binary.sm_limits("sm_70")


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(tools, "_candidates", lambda name: [])
    with pytest.raises(ToolchainError, match="nvdisasm is not on this machine"):
        tools.find.__wrapped__("nvdisasm")


@no_gpu
def test_inspect_compiles_triton_beside_the_interpreter():
    toolchain.prepare("triton")
    (found,) = inspect(dispatch.ladder("softmax"), "triton_row", arch="sm_90a")
    assert found.backend == "triton" and found.arch == "sm_90a" and found.ttgir and found.ptx
    assert 128 in found.instructions["global_loads"] and found.resources["registers"] > 8
    assert "sass" not in found.as_json() and found.as_json(texts=True)["sass"] == found.sass


def test_inspect_refuses_pytorch_rungs():
    with pytest.raises(ValueError, match=r"softmax\.native is a PyTorch rung"):
        inspect(dispatch.ladder("softmax"), "native")


# --- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend, device, words",
    [("cuda", "mps", "not on mps"), ("triton", "mps", "not on mps"), ("torch", "mps", None)],
)
def test_missing_says_why(backend, device, words):
    found = availability.missing(backend, device)
    assert found is None if words is None else words in found


def test_a_long_wait_is_announced(monkeypatch, capfd):
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with progress.waiting("compiling k for sm_90a"):
        for timer in [t for t in threading.enumerate() if isinstance(t, threading.Timer)]:
            timer.join()
    assert capfd.readouterr().err == "kernelwright: compiling k for sm_90a (once, then cached)\n"
    monkeypatch.setattr(progress, "PATIENCE", 60.0)
    with progress.waiting("something quick"):
        pass
    assert capfd.readouterr().err == ""


def test_settings_read_the_environment_once(cached, monkeypatch):
    assert settings.settings().cache == cached
    monkeypatch.setenv("KW_CACHE", "/elsewhere")
    assert settings.settings().cache == cached


def test_importing_dispatch_and_the_toolchain_loads_no_kernel_language():
    code = (
        "import sys, torch; before = set(sys.modules);"
        "from kernelwright import dispatch, toolchain;"
        "print(sorted({'triton', 'numba', 'cuda.bindings.nvrtc'} & {*sys.modules} - before))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_tools_and_headers_of_cuda_home_are_found(tmp_path):
    for name in ("bin/nvdisasm", "include/cuda_runtime.h", "include/cuda_fp16.h"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch(0o755)
    code = (
        "from kernelwright.support import cuda_headers;"
        "from kernelwright.toolchain import tools;"
        "print(*tools._candidates('nvdisasm')); print(*cuda_headers.candidates())"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_HOME": str(tmp_path)}
    env.pop("CUDA_PATH", None)
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    binaries, headers = map(str.split, done.stdout.splitlines())
    assert str(tmp_path / "bin/nvdisasm") in binaries, done.stderr
    assert str(tmp_path / "include") in headers
    assert any("triton/backends" in b for b in binaries)


def test_without_cuda_pathfinder_the_reason_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.delattr("cuda.pathfinder", raising=False)
    with pytest.raises(ToolchainError, match="pip install cuda-pathfinder"):
        cuda_headers.pathfinder()
