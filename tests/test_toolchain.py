"""From source to launch: each part on inputs that make it fail, without a GPU."""

import ctypes
import os
import stat
import subprocess
import sys
import threading

import pytest
import torch

import kernelwright.ops  # noqa: F401
from kernelwright import dispatch, toolchain
from kernelwright.contract import (
    H200,
    CudaKernel,
    Launch,
    Operator,
    Plan,
    Scratch,
    TensorSpec,
    TritonKernel,
    f32,
    i32,
    i64,
)
from kernelwright.toolchain import (
    availability,
    binary,
    build,
    cache,
    compiled,
    driver,
    interpreter,
    memory,
    modes,
    native,
    nvrtc,
    progress,
    runner,
    settings,
    tools,
)
from kernelwright.workbench.inspect import inspect

CPU = torch.device("cpu")
no_gpu = pytest.mark.skipif(modes.has_gpu(), reason="a GPU is here: nothing is interpreted")


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("KW_CACHE", str(tmp_path / "cache"))
    settings.settings.cache_clear()
    yield tmp_path / "cache"
    settings.settings.cache_clear()


def scaling(name="scale", outputs=None, schema="(Tensor x, float a) -> (Tensor y)"):
    """An operator to plan for: y = a x."""
    return Operator(
        name=name,
        schema=schema,
        reference=lambda x, a: a * x,
        inputs=lambda c, device: {},
        cases=(),
        cost=lambda **k: None,
        outputs=outputs or (lambda x, a: (TensorSpec.contiguous(x.shape, x.dtype),)),
    )


CUDA_SOURCE = """
template <typename T>
__global__ void scale(const T *x, T *y, long long n, float a) {
  long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < n) y[i] = x[i] * T(a);
}
"""


@pytest.fixture
def cuda_source(tmp_path):
    path = tmp_path / "scale.cu"
    path.write_text(CUDA_SOURCE)
    return path


def cuda_plan(path, n, cluster=1, shared=0, grid=4):
    return Plan((
        Launch(
            CudaKernel(path, "scale<float>", cluster),
            grid=(grid, 1, 1),
            block=(256, 1, 1),
            args=("x", "y", i64(n), f32("a")),
            shared=shared,
        ),
    ))  # fmt: skip


# --- cache -------------------------------------------------------------------------------------


def test_cache_gives_back_what_was_put_and_keeps_others_out(cached):
    key = cache.key(["source", b"flags"])
    assert cache.get("cuda", key) is None
    cache.put("cuda", key, {"a": b"1", "b": b"2"})
    cache.put("cuda", key, {"a": b"another process was first"})
    assert cache.get("cuda", key) == {"a": b"1", "b": b"2"}
    assert stat.S_IMODE(cached.stat().st_mode) == 0o700
    assert not list(cached.rglob(".writing-*"))


def test_cache_key_knows_where_a_part_ends():
    assert cache.key(["ab", "c"]) != cache.key(["a", "bc"])


def test_cache_refuses_a_folder_that_others_may_write_to(cached):
    cached.mkdir(mode=0o700)
    cached.chmod(0o770)
    with pytest.raises(toolchain.ToolchainError, match="writable by others"):
        cache.root()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a folder away")
def test_cache_refuses_a_folder_of_somebody_else(cached):
    cached.mkdir(mode=0o700)
    os.chown(cached, 12345, -1)
    with pytest.raises(toolchain.ToolchainError, match="belongs to another user"):
        cache.root()


def test_cache_that_cannot_be_made_names_the_variable(cached, monkeypatch):
    cached.parent.mkdir(exist_ok=True)
    cached.write_text("a file")
    with pytest.raises(toolchain.ToolchainError, match="KW_CACHE"):
        cache.root()


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


def test_cuda_error_names_file_and_line(cached, cuda_source):
    cuda_source.write_text(CUDA_SOURCE.replace("x[i] * T(a)", "no_such_name"))
    with pytest.raises(toolchain.CompileError, match=r"scale\.cu\(5\): error: .*no_such_name"):
        nvrtc.compile(CudaKernel(cuda_source, "scale<float>"), "sm_90a")


def test_incomplete_headers_are_named(monkeypatch, tmp_path):
    (tmp_path / "cuda_fp16.h").touch()
    monkeypatch.setattr(nvrtc, "_candidates", lambda: [tmp_path])
    with pytest.raises(toolchain.ToolchainError, match=r"lacks .*nv/target.*pip install"):
        nvrtc.include_folders.__wrapped__()


def test_a_plan_whose_arguments_are_not_the_kernels_is_refused(cached, cuda_source):
    op, specs = scaling(), {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    step = cuda_plan(cuda_source, 8).launches[0]
    wrong = Launch(step.kernel, step.grid, ("x", "y", i32(8), f32("a")), step.block)
    tensors = build.Tensors(Plan((wrong,)), op, specs)
    with pytest.raises(toolchain.ToolchainError, match=r"takes \(u64, u64, u64, f32\)"):
        build.compile(wrong, tensors, "sm_90a")
    with pytest.raises(toolchain.ToolchainError, match="'z', which is no tensor"):
        tensors["z"]


def test_hidden_parameters_are_counted_and_must_be_pointers():
    def made(parameters):
        ptx = f".visible .entry k(\n{parameters}\n)\n{{"
        return compiled.Compiled("k", "sm_90a", b"", ptx)

    triton = ".param .u64 .ptr .global .align 1 k_0,\n.param .u32 k_1,\n.param .u64 .ptr k_2"
    assert compiled.hidden_parameters(made(triton), ("pointer", "i32")) == 1
    with pytest.raises(toolchain.ToolchainError):
        compiled.hidden_parameters(made(triton + ",\n.param .f32 k_3"), ("pointer", "i32"))
    with pytest.raises(toolchain.ToolchainError):
        compiled.hidden_parameters(made(".param .u64 k_0"), ("pointer", "i32"))


# --- the interpreter ---------------------------------------------------------------------------


@no_gpu
class TestInterpreter:
    """Each of these is wrong in triton 3.6 without the repairs."""

    @pytest.fixture
    def kernels(self):
        toolchain.prepare("triton")
        import interpreted_kernels

        return interpreted_kernels

    @staticmethod
    def run(fn, *values, grid=(1, 1, 1), **constexprs):
        kernel = TritonKernel(fn, constexprs)
        interpreter.launch(kernel, Launch(kernel, grid, ()), list(values))

    def test_bfloat16_arithmetic(self, kernels):
        x = torch.randn(64).bfloat16()
        y = torch.empty_like(x)
        self.run(kernels.bfloat16_arithmetic, x, y, N=64)
        square = (x * x).float()  # each step rounds, as on a GPU
        assert torch.equal(y, (torch.where(x > 0.5, square, -x.float()).bfloat16() + 1))

    @pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.float16, torch.int32])
    def test_casts_round_to_nearest_even(self, kernels, source):
        x = (100 * torch.randn(512)).to(source)
        if source == torch.float32:
            x[:4] = torch.tensor([float("nan"), float("inf"), 1 + 2**-8, 1 + 3 * 2**-8])
        y = torch.empty(512, dtype=torch.bfloat16)
        self.run(kernels.cast, x, y, N=512)
        assert torch.equal(y.nan_to_num(7), x.bfloat16().nan_to_num(7))

    @pytest.mark.parametrize("target", [torch.float8_e4m3fn, torch.float8_e5m2])
    def test_casts_to_fp8(self, kernels, target):
        x = 50 * torch.randn(512)
        y = torch.empty(512, dtype=target)
        self.run(kernels.cast, x, y, N=512)
        assert torch.equal(y.float(), x.to(target).float())

    def test_bfloat16_dot(self, kernels):
        a, b = torch.randn(2, 16, 16).bfloat16()
        c = torch.empty(16, 16)
        self.run(kernels.dot, a, b, c, N=16)
        torch.testing.assert_close(c, a.float() @ b.float())

    def test_maximum_drops_nan_as_a_gpu_does(self, kernels):
        x = torch.tensor([float("nan"), -3.0, 2.0, float("nan")])
        y = torch.empty(4)
        self.run(kernels.relu, x, y, N=4)
        assert y.tolist() == [0, 0, 2, 0]

    def test_fma_rounds_once(self, kernels):
        x = torch.full((4,), 1 + 2**-23)
        y = torch.empty(4)
        self.run(kernels.fma, x, y, N=4)  # x * x - 1
        assert torch.equal(y.double(), (x.double() ** 2 - 1).float().double())

    def test_autotune_runs_the_first_config(self, kernels):
        x, y = torch.ones(16), torch.empty(16)
        self.run(kernels.autotuned, x, y)
        assert (y == 1).all()

    def test_scalars_have_the_planned_type(self, kernels):
        out = torch.empty(2)
        self.run(kernels.scalars, out, f32(0.1), i64(3))
        # 0.1 as float32, and 3 << 40, which an int32 has no room for
        assert out.tolist() == [torch.tensor(0.1).item(), float(3 << 40)]

    def test_plan_runs_like_on_a_gpu(self, kernels):
        """Copies, scratch, float arguments read at the call, mutated arguments written back."""
        op = scaling(schema="(Tensor(m!) m, float a) -> (Tensor y)",
                     outputs=lambda m, a: (TensorSpec.contiguous(m.shape, m.dtype),))  # fmt: skip
        kernel = TritonKernel(kernels.scale_and_count, {"N": 8})
        step = Launch(kernel, (1, 1, 1), ("m", "y", "work", f32("a")))
        plan = Plan((step,), {"work": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True)})
        m = torch.arange(16.0)[::2]
        specs = {"m": TensorSpec.contiguous((8,), torch.float32), "a": 0.0}
        run = toolchain.bind(plan, op, specs, ("m",), CPU)
        for a in (2.0, 3.0):
            m.copy_(torch.arange(8.0))
            assert torch.equal(run(m, a), a * torch.arange(8.0))
            assert torch.equal(m, torch.arange(8.0) + 1)

    def test_cuda_on_a_cpu_says_so(self, cuda_source):
        specs = {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
        with pytest.raises(toolchain.ToolchainError, match="runs on GPUs only"):
            toolchain.bind(cuda_plan(cuda_source, 8), scaling(), specs, (), CPU)

    def test_compiling_here_says_how(self):
        with pytest.raises(toolchain.ToolchainError, match="interprets"):
            toolchain.compile_only()


@no_gpu
@pytest.mark.parametrize("language, variable", [("triton", "TRITON_INTERPRET"),
                                                ("numba", "NUMBA_ENABLE_CUDASIM")])  # fmt: skip
def test_a_language_imported_too_early_says_how(language, variable):
    code = (
        f"import {language}, torch; from kernelwright import toolchain;"
        f"print(toolchain.missing('{language}', torch.device('cpu')));"
        f"toolchain.prepare('{language}')"
    )
    env = {k: v for k, v in os.environ.items() if k != variable}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert variable in done.stdout and done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert "imported in its compiling mode" in last and f"set {variable}=1" in last


# --- the launcher ------------------------------------------------------------------------------

FAKE_DRIVER = r"""
#include <stdint.h>
#include <stdio.h>
#include <string.h>
typedef struct { int id; char pad[4]; int value[16]; } Attribute;
typedef struct { unsigned grid[3], block[3], shared; void *stream; Attribute *attributes;
                 unsigned count; } Config;
static __thread void *stack[8];
static __thread int depth;
static int failure;
Config last; Attribute attributes[2]; void *last_function, *last_context;
uint64_t words[16]; int pushes, pops, launches, loads, allowed_shared, allowed_cluster;
uint64_t capture;
void fail_next(int code) { failure = code; }
void set_context(void *c) { depth = 1; stack[0] = c; }
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(uintptr_t)(0xC0 + d); return 0; }
int cuCtxGetCurrent(void **c) { *c = depth ? stack[depth - 1] : 0; return 0; }
int cuCtxPushCurrent_v2(void *c) { stack[depth++] = c; pushes++; return 0; }
int cuCtxPopCurrent_v2(void **c) { *c = stack[--depth]; pops++; return 0; }
int cuModuleLoadData(void **m, const char *image) {
  loads++; *m = (void *)0x30; return memcmp(image, "\x7f" "ELF", 4) ? 200 : 0; }
int cuModuleGetFunction(void **f, void *m, const char *name) {
  *f = (void *)(uintptr_t)(0x1000 + loads); return 0; }
int cuFuncGetAttribute(int *v, int a, void *f) { *v = 1024; return 0; }
int cuFuncSetAttribute(void *f, int a, int v) {
  if (a == 8) allowed_shared = v;
  if (a == 14) allowed_cluster = v;
  return 0; }
int cuGetErrorName(int e, const char **s) {
  *s = e == 1 ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_INVALID_IMAGE"; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "invalid argument"; return 0; }
int cuStreamGetCaptureInfo_v2(void *s, int *status, uint64_t *id, void *g, void *d, void *n) {
  *status = capture != 0; *id = capture; return 0; }
int cuLaunchKernelEx(const Config *c, void *f, void **p, void **extra) {
  if (failure) { int e = failure; failure = 0; return e; }
  launches++; last = *c; last_function = f; last_context = depth ? stack[depth - 1] : 0;
  memcpy(attributes, c->attributes, c->count * sizeof(Attribute));
  for (int i = 0; i < 4; i++) words[i] = 0;
  memcpy(&words[0], p[0], 8); memcpy(&words[1], p[1], 8);
  memcpy(&words[2], p[2], 8); memcpy(&words[3], p[3], 4);
  return 0; }
"""


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]  # fmt: skip


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory):
    """A driver that remembers what it was asked for. Its kernels take (8, 8, 8, 4) bytes."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(FAKE_DRIVER)
    out = folder / "libcuda.so.1"
    command = [*(native.compiler() or ()), "-shared", "-fPIC", str(folder / "driver.c")]
    subprocess.run([*command, "-o", str(out)], check=True, capture_output=True)
    return out


@pytest.fixture
def fake(fake_library, monkeypatch):
    """The fake driver in the real one's place."""
    if modes.has_gpu():
        pytest.skip("the real driver is here; the GPU's own tests run")
    real = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: real(str(fake_library)))
    remembered = (driver.library, driver.launchers, driver.context)
    for f in remembered:
        f.cache_clear()
    driver._functions.clear()
    lib = driver.library()
    lib.set_context.argtypes = [ctypes.c_void_p]
    lib.set_context(0xC0)
    yield lib
    for f in remembered:
        f.cache_clear()


def value(lib, name, kind=ctypes.c_int):
    return kind.in_dll(lib, name).value


def make(cluster=1, parameters=None, shared=0):
    parameters = parameters or (("p", None), ("l", 1 << 40), ("p", None), ("f", None))
    return driver.launchers().Launcher(
        "scale", 0x1234, 0xC0, (5, 2, 1), (256, 1, 1), shared, cluster, parameters
    )


def test_launcher_packs_its_parameters(fake):
    make(shared=4096)(0x77, 0xDEAD, 0xBEEF, 0.1)
    last = Config.in_dll(fake, "last")
    words = (ctypes.c_uint64 * 16).in_dll(fake, "words")
    assert words[:3] == [0xDEAD, 1 << 40, 0xBEEF]
    assert ctypes.c_float.from_buffer(ctypes.c_uint32(words[3])).value == ctypes.c_float(0.1).value
    assert (list(last.grid), list(last.block), last.shared) == ([5, 2, 1], [256, 1, 1], 4096)
    assert last.stream == 0x77 and last.count == 0
    assert value(fake, "last_function", ctypes.c_void_p) == 0x1234


def test_launcher_packs_every_kind(fake):
    kinds = (("i", -5), ("l", None), ("d", None), ("i", None))
    make(parameters=kinds)(0, -7, 2.5, -9)
    words = (ctypes.c_uint64 * 16).in_dll(fake, "words")
    assert ctypes.c_int32(words[0] & 0xFFFFFFFF).value == -5
    assert ctypes.c_int64(words[1]).value == -7
    assert ctypes.c_double.from_buffer(ctypes.c_uint64(words[2])).value == 2.5
    assert ctypes.c_int32(words[3]).value == -9


def test_launcher_asks_for_clusters(fake):
    make(cluster=4)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 2
    both = (ctypes.c_int * 36).in_dll(fake, "attributes")
    assert (both[0], both[2:5]) == (4, [4, 1, 1]) and (both[18], both[20]) == (5, 1)


def test_launcher_enters_and_leaves_its_context(fake):
    launch = make()
    before = value(fake, "pushes")
    launch(0, 1, 2, 0.0)
    assert value(fake, "pushes") == before  # the current context is the right one
    fake.set_context(0xC1)
    launch(0, 1, 2, 0.0)
    assert value(fake, "last_context", ctypes.c_void_p) == 0xC0
    thread = threading.Thread(target=launch, args=(0, 1, 2, 0.0))  # has no context at all
    thread.start()
    thread.join()
    assert value(fake, "last_context", ctypes.c_void_p) == 0xC0
    assert value(fake, "pushes") == before + 2 and value(fake, "pops") >= 2


def test_launcher_reports_the_drivers_error(fake):
    fake.fail_next(1)
    with pytest.raises(RuntimeError, match=r"^scale: CUDA_ERROR_INVALID_VALUE \(invalid argument"):
        make()(0, 1, 2, 0.0)


@pytest.mark.parametrize(
    "arguments, error",
    [((0, 1, 2), TypeError), ((0, 1, 2, 0.0, 4), TypeError), ((0, 1, 2, "x"), TypeError),
     ((0, -1, 2, 0.0), OverflowError), (("s", 1, 2, 0.0), TypeError)],
)  # fmt: skip
def test_launcher_refuses_wrong_arguments(fake, arguments, error):
    before = value(fake, "launches")
    with pytest.raises(error):
        make()(*arguments)
    assert value(fake, "launches") == before


def test_launcher_refuses_wrong_parameters(fake):
    with pytest.raises(ValueError, match="unknown parameter kind"):
        make(parameters=(("q", 1),))
    with pytest.raises(OverflowError):
        make(parameters=(("i", 1 << 31),))
    with pytest.raises(ValueError, match="300 parameters"):
        make(parameters=(("p", None),) * 300)


def test_launcher_leaks_nothing(fake):
    import tracemalloc

    launch = make()
    launch(0, 1, 2, 0.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        launch(0, 1 << 40, 1 << 41, 0.5)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000


def test_capture_id(fake):
    capture_id = driver.launchers().capture_id
    assert capture_id(5) == 0
    ctypes.c_uint64.in_dll(fake, "capture").value = 9
    assert capture_id(5) == 9
    assert capture_id(0) == 0  # the default stream is not asked about
    ctypes.c_uint64.in_dll(fake, "capture").value = 0


def test_driver_allows_large_shared_memory_and_clusters(fake, cuda_source, cached):
    made = nvrtc.compile(CudaKernel(cuda_source, "scale<float>"), "sm_90a")
    driver.function(made, 0, 40 * 1024, 1)
    assert value(fake, "allowed_shared") == 0  # static 1 KiB + 40 KiB need no asking
    driver.function(made, 0, 100 * 1024, 16)
    driver.function(made, 0, 60 * 1024, 1)  # must not take back what another launch needs
    assert value(fake, "allowed_shared") == 100 * 1024 and value(fake, "allowed_cluster") == 1
    loads = value(fake, "loads")
    driver.function(made, 0, 0, 1)
    assert value(fake, "loads") == loads


def test_driver_refuses_a_bad_cubin(fake):
    with pytest.raises(toolchain.ToolchainError, match="k: loading its sm_90a cubin: CUDA_ERROR_I"):
        driver.function(compiled.Compiled("k", "sm_90a", b"garbage", ""), 0, 0, 1)


def test_no_driver_has_a_message(monkeypatch):
    if modes.has_gpu():
        pytest.skip("the real driver is here")
    with pytest.raises(toolchain.ToolchainError, match="no NVIDIA driver"):
        driver.library.__wrapped__()


def test_no_compiler_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(toolchain.ToolchainError, match="no C compiler: install gcc"):
        native._built()


def test_no_python_headers_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(toolchain.ToolchainError, match="install Python's development headers"):
        native._built()


# --- the runner --------------------------------------------------------------------------------


@pytest.fixture
def gpu(fake, cached, monkeypatch):
    """Everything that `runner.bind` takes from torch.cuda, on the CPU; streams are numbers."""
    guards = torch._C._dynamo.guards
    state = {"stream": 0x55, "device": 0, "devices": 1}
    fakes = {
        (torch._C, "_cuda_getCurrentRawStream"): lambda i: state["stream"],
        (torch._C, "_cuda_getDevice"): lambda: state["device"],
        (guards, "_empty_strided_cuda"): guards._empty_strided_cpu,
        (torch.cuda, "device_count"): lambda: state["devices"],
        (runner, "gpu_of"): lambda device: H200,
    }
    for (owner, name), f in fakes.items():
        monkeypatch.setattr(owner, name, f, raising=False)
    return state


def bound(plan, op=None, copies=(), n=8):
    specs = {"x": TensorSpec.contiguous((n,), torch.float32), "a": 2.0}
    return runner.bind(plan, op or scaling(), specs, copies, torch.device("cuda", 0))


def words_of(lib):
    return list((ctypes.c_uint64 * 16).in_dll(lib, "words")[:4])


def test_runner_launches_a_plan(gpu, fake, cuda_source):
    run = bound(cuda_plan(cuda_source, 8, shared=128))
    x = torch.randn(8)
    y = run(x, 0.5)
    last = Config.in_dll(fake, "last")
    assert y.shape == x.shape and y.dtype == x.dtype
    assert words_of(fake)[:3] == [x.data_ptr(), y.data_ptr(), 8]
    assert words_of(fake)[3] == 0x3F000000  # 0.5f
    assert (last.stream, last.grid[0], last.block[0], last.shared) == (0x55, 4, 256, 128)


def test_runner_copies_what_is_named(gpu, fake, cuda_source):
    run = bound(cuda_plan(cuda_source, 8), copies=("x",))
    x = torch.randn(16)[::2]
    y = run(x, 1.0)
    assert words_of(fake)[0] not in (x.data_ptr(), y.data_ptr())


def test_runner_goes_to_its_device_and_back(gpu, fake, cuda_source, monkeypatch):
    gpu.update(devices=2, device=1)
    entered = []

    class On:
        def __init__(self, index):
            self.index = index

        def __enter__(self):
            entered.append(self.index)
            gpu["device"] = self.index

        def __exit__(self, *_):
            gpu["device"] = 1

    monkeypatch.setattr(torch.cuda, "device", On)
    bound(cuda_plan(cuda_source, 8))(torch.randn(8), 1.0)
    assert entered == [0] and gpu["device"] == 1


def test_runner_source_holds_only_what_changes(gpu, cuda_source):
    op, specs = scaling(), {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    plan = cuda_plan(cuda_source, 8)
    source = runner.source_of(
        plan, op, build.Tensors(plan, op, specs), (), 0, several=False, guarded=False
    )
    assert source == (
        "def run(x, a):\n"
        "    y = empty((8,), (1,), dtype_y)\n"
        "    stream = current_stream(0)\n"
        "    launch0(stream, x.data_ptr(), y.data_ptr(), a)\n"
        "    return y\n"
    )


def test_runner_returns_nothing_for_an_operator_without_results(gpu, fake, cuda_source):
    op = scaling(schema="(Tensor x, Tensor(m!)[] ms, float a) -> ()", outputs=lambda **k: ())
    step = cuda_plan(cuda_source, 8).launches[0]
    plan = Plan((Launch(step.kernel, step.grid, ("x", "ms[1]", i64(8), f32("a")), step.block),))
    spec = TensorSpec.contiguous((8,), torch.float32)
    specs = {"x": spec, "ms": [spec, spec], "a": 2.0}
    run = runner.bind(plan, op, specs, (), torch.device("cuda", 0))
    x, ms = torch.randn(8), [torch.randn(8), torch.randn(8)]
    assert run(x, ms, 1.0) is None
    assert words_of(fake)[:2] == [x.data_ptr(), ms[1].data_ptr()]


def test_runner_gives_each_stream_and_each_capture_its_zeros(gpu, fake, cuda_source, monkeypatch):
    from kernelwright.toolchain import scratch

    made = []
    zeros = torch.zeros

    def on_cpu(*args, device=None, **options):
        made.append(zeros(*args, **options))
        return made[-1]

    monkeypatch.setattr(torch, "zeros", on_cpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: type("S", (), {"synchronize": int}))
    monkeypatch.setattr(scratch, "_arenas", {})
    step = cuda_plan(cuda_source, 8).launches[0]
    plan = Plan(
        (Launch(step.kernel, step.grid, ("x", "work", i64(8), f32("a")), step.block),),
        {"work": Scratch(TensorSpec.contiguous((100,), torch.int32), zero=True)},
    )
    run, x, used = bound(plan), torch.randn(8), []
    capture = ctypes.c_uint64.in_dll(fake, "capture")
    for stream, graph in ((1, 0), (2, 0), (1, 0), (1, 7), (1, 7), (1, 8)):
        gpu["stream"], capture.value = stream, graph
        run(x, 1.0)
        used.append(words_of(fake)[1])
    capture.value = 0
    one, two, again, first, same, second = used
    assert one == again and first == same and len({one, two, first, second}) == 4
    arena = made[0]
    places = [p - arena.data_ptr() for p in (first, second)]
    assert all(0 <= p <= arena.numel() - 400 for p in places) and abs(places[0] - places[1]) >= 400
    assert len(made) == 3  # the arena, and one for each stream


def test_runner_guards_its_outputs(gpu, fake, cuda_source, monkeypatch):
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda *a, device=None, **k: full(*a, **k))
    with memory.guarded() as guard:
        run = bound(cuda_plan(cuda_source, 8))
    run(torch.randn(8), 1.0)  # the fake driver writes nothing
    assert guard.check() == "y: 8 of 8 elements never written, first 0"


def test_a_grid_that_clusters_do_not_divide_is_refused(gpu, cuda_source):
    with pytest.raises(toolchain.ToolchainError, match=r"grid of 5 blocks .* clusters of 2"):
        bound(cuda_plan(cuda_source, 8, cluster=2, grid=5))


def test_nothing_is_compiled_during_capture(gpu, cuda_source, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(toolchain.CompiledDuringCapture, match="call kw"):
        bound(cuda_plan(cuda_source, 8))
    with pytest.raises(toolchain.CompiledDuringCapture, match="call kw"):
        toolchain.inductor.bind(lambda x: x, CPU)


# --- inductor ----------------------------------------------------------------------------------


def test_inductor_compiles_each_bind_afresh(monkeypatch):
    """torch counts recompilations by code object, and past 8 runs eagerly without a word."""
    seen = []

    def compiler(graph, inputs):
        seen.append(graph)
        return graph.forward

    real = torch.compile
    monkeypatch.setattr(torch, "compile", lambda f, **k: real(f, backend=compiler, **k))

    def double(x):
        return 2 * x

    for n in range(1, 13):
        run = toolchain.inductor.bind(double, CPU)
        assert torch.equal(run(torch.ones(n)), 2 * torch.ones(n))
        run(torch.ones(n))
    assert len(seen) == 12


# --- memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8]
)
def test_guard_sees_every_wrong_write(dtype):
    with memory.guarded() as guard:
        pass
    spec = TensorSpec.contiguous((3, 5), dtype)

    def after(change):
        t = guard.empty("y", spec, CPU)
        if dtype.is_floating_point:
            assert t.isnan().all() and t.data_ptr() % 16 == 0
        change(t)
        return guard.check()

    base = torch.Tensor.untyped_storage
    assert after(lambda t: t.fill_(1)) is None
    assert "never written, first 0" in after(lambda t: None)
    if dtype != torch.uint8:
        assert "1 of 15 elements never written, first 14" in after(lambda t: t[:, :4].fill_(1) + t[:2, 4].fill_(1).sum())  # fmt: skip  # noqa: E501

    def beyond(t):
        t.fill_(1)
        base(t)[memory.ZONE + 15 * dtype.itemsize + 2] = 1

    def ahead(t):
        t.fill_(1)
        base(t)[memory.ZONE - 1] = 1

    assert "y: " in after(beyond) and "written after its end" in after(beyond)
    assert "written before its start" in after(ahead)
    assert guard.check() is None  # each allocation is judged once


def test_guard_wants_zero_scratch_left_zero():
    with memory.guarded() as guard:
        work = guard.empty("w", TensorSpec.contiguous((4,), torch.int32), CPU, result=False,
                           zero=True)  # fmt: skip
    assert not work.any() and guard.check() is None
    work = guard.empty("w", TensorSpec.contiguous((4,), torch.int32), CPU, result=False, zero=True)
    work[2] = 1
    assert guard.check() == "w: scratch that must be left zero is not"


@no_gpu
def test_guard_judges_a_rung(monkeypatch):
    ladder, x = dispatch.ladder("softmax"), torch.randn(4, 30)
    with memory.guarded() as guard:
        run = dispatch.launcher(ladder, {"x": x, "dim": -1}, "triton_row")
    run(x, -1)
    assert guard._given and guard.check() is None and memory.active is None
    with memory.guarded() as second:
        run(x, -1)
    assert second._given and not guard._given


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
    with pytest.raises(ValueError, match="arch: 'hopper' is no architecture"):
        binary.capability("hopper")
    with pytest.raises(ValueError, match="arch: the limits of sm_70 are not known"):
        binary.limits("sm_70")


def test_missing_tools_are_named(monkeypatch):
    monkeypatch.setattr(tools, "_candidates", lambda name: [])
    with pytest.raises(toolchain.ToolchainError, match="nvdisasm is not on this machine"):
        tools.find.__wrapped__("nvdisasm")


@no_gpu
def test_inspect_compiles_triton_beside_the_interpreter():
    toolchain.prepare("triton")
    (found,) = inspect(dispatch.ladder("softmax"), "triton_row", arch="sm_90a")
    assert found.backend == "triton" and found.arch == "sm_90a" and found.ttgir and found.ptx
    assert 128 in found.instructions["global_loads"] and found.resources["registers"] > 8
    assert "sass" not in found.as_json() and found.as_json(texts=True)["sass"] == found.sass


def test_inspect_has_nothing_to_say_about_pytorch():
    with pytest.raises(ValueError, match="native is PyTorch"):
        inspect(dispatch.ladder("softmax"), "native")


# --- messages ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "backend, device, words",
    [("cuda", "cpu", "GPUs only"), ("triton", "mps", "not on mps"), ("torch", "mps", None)],
)
def test_missing_says_why(backend, device, words):
    found = availability.missing(backend, device)
    assert found is None if words is None else words in found


def test_missing_driver_newer_compiler_and_old_triton(monkeypatch, fake):
    fresh = availability.missing.__wrapped__
    monkeypatch.setattr(nvrtc, "version", lambda: (14, 1))
    assert (
        'driver supports CUDA 13.0: update the driver, or pip install "nvidia-cuda-nvrtc<14"'
        in (fresh("cuda", "cuda") or "")
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: "3.5.1")
    assert fresh("triton", "cpu") == "triton 3.5.1 is too old: 3.6 or newer is needed"


def test_a_long_wait_has_a_word(monkeypatch, capfd):
    monkeypatch.setattr(progress, "PATIENCE", 0.01)
    with progress.waiting("compiling k for sm_90a"):
        threading.Event().wait(0.1)
    assert (
        capfd.readouterr().err
        == "kernelwright: compiling k for sm_90a (once; kept for next time)\n"
    )
    with progress.waiting("something quick"):
        pass
    assert capfd.readouterr().err == ""


def test_settings_read_the_environment_once(cached, monkeypatch):
    assert settings.settings().cache == cached
    monkeypatch.setenv("KW_CACHE", "/elsewhere")
    assert settings.settings().cache == cached


def test_importing_the_toolchain_loads_no_kernel_language():
    code = (
        "import sys, torch; before = set(sys.modules); from kernelwright import toolchain;"
        "print(sorted({'triton', 'numba', 'cuda.bindings.nvrtc'} & {*sys.modules} - before))"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
