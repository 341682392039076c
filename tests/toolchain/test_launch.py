"""From binary to launch, without a GPU: a fake driver records the calls."""

import ctypes
import subprocess
import threading
import traceback
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kernelwright.contract import H200, CudaKernel, Launch, Plan, Scratch, TensorSpec, f32, i64
from kernelwright.support.errors import CompiledDuringCapture, ToolchainError
from kernelwright.toolchain import (
    availability,
    build,
    c_extensions,
    compiled,
    driver,
    gpu_executor,
    inductor,
    modes,
    nvrtc,
    redzones,
)
from support.paths import TESTS
from support.planning import CPU, cuda_plan, no_gpu, own_cache, scale_cu, scaling  # noqa: F401

HERE = Path(__file__).parent

# --- the launcher ------------------------------------------------------------------------------


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]  # fmt: skip


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    out = folder / "libcuda.so.1"
    command = [
        *(c_extensions.compiler() or ()),
        "-shared",
        "-fPIC",
        str(TESTS / "support" / "fake_driver.c"),
    ]
    subprocess.run([*command, "-o", str(out)], check=True, capture_output=True)
    return out


@pytest.fixture(name="fake")
def fake_driver(fake_library, monkeypatch):
    """The fake driver in the real one's place."""
    if modes.has_gpu():
        pytest.skip("the real driver is here; the GPU's own tests run")
    real = ctypes.CDLL

    def load(name, *args, **options):  # NVRTC's loader comes this way too
        return real(str(fake_library) if "libcuda." in str(name) else name, *args, **options)

    monkeypatch.setattr(ctypes, "CDLL", load)
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


def make(cluster=1, parameters=None, shared=0, overlaps=False):
    parameters = parameters or (("p", None), ("l", 1 << 40), ("p", None), ("f", None))
    return driver.launchers().Launcher(
        "scale", 0x1234, 0xC0, (5, 2, 1), (256, 1, 1), shared, cluster, overlaps, parameters
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


def test_a_launch_may_start_before_the_last_one_ends(fake):
    make(cluster=4, overlaps=True)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 3
    all_three = (ctypes.c_int * 54).in_dll(fake, "attributes")
    assert [all_three[i] for i in (0, 18, 36)] == [4, 5, 6] and all_three[38] == 1
    make(overlaps=True)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 1 and (all_three[0], all_three[2]) == (6, 1)


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
    with pytest.raises(ToolchainError, match="k: loading its sm_90a cubin: CUDA_ERROR_I"):
        driver.function(compiled.Compiled("k", "sm_90a", b"garbage", ""), 0, 0, 1)


def test_no_driver_has_a_message(monkeypatch):
    if modes.has_gpu():
        pytest.skip("the real driver is here")
    with pytest.raises(ToolchainError, match="no NVIDIA driver"):
        driver.library.__wrapped__()


def test_no_compiler_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no C compiler: install gcc"):
        c_extensions._built()


def test_no_python_headers_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ToolchainError, match="install Python's development headers"):
        c_extensions._built()


def test_missing_driver_newer_compiler_and_old_triton(monkeypatch, fake):
    fresh = availability.missing.__wrapped__
    monkeypatch.setattr(nvrtc, "version", lambda: (14, 1))
    assert (
        'driver supports CUDA 13.0: update the driver, or pip install "nvidia-cuda-nvrtc<14"'
        in (fresh("cuda", "cuda") or "")
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: "3.5.1")
    assert fresh("triton", "cpu") == "triton 3.5.1 is too old: 3.6 or newer is needed"


# --- the runner --------------------------------------------------------------------------------


@pytest.fixture(name="gpu")
def fake_gpu(fake, cached, monkeypatch):
    """Everything that `gpu_executor` takes from torch.cuda, on the CPU; streams are numbers."""
    guards = torch._C._dynamo.guards
    state = {"stream": 0x55, "device": 0, "devices": 1}
    fakes = {
        (torch._C, "_cuda_getCurrentRawStream"): lambda i: state["stream"],
        (torch._C, "_cuda_getDevice"): lambda: state["device"],
        (guards, "_empty_strided_cuda"): guards._empty_strided_cpu,
        (torch.cuda, "device_count"): lambda: state["devices"],
        (gpu_executor, "gpu_of"): lambda device: H200,
    }
    for (owner, name), f in fakes.items():
        monkeypatch.setattr(owner, name, f, raising=False)
    return state


def bound(plan, op=None, copies=(), n=8):
    specs = {"x": TensorSpec.contiguous((n,), torch.float32), "a": 2.0}
    return gpu_executor.executor(plan, op or scaling(), specs, copies, torch.device("cuda", 0))


def test_an_error_in_a_call_shows_the_generated_line(gpu, cuda_source):
    run = bound(cuda_plan(cuda_source, 8))
    with pytest.raises(AttributeError) as e:
        run(None, 2.0)
    assert "in run\n    launch0(stream, x.data_ptr()" in "".join(
        traceback.format_exception(e.value)
    )


def words_of(lib):
    return list((ctypes.c_uint64 * 16).in_dll(lib, "words")[:4])


@pytest.mark.parametrize(
    ("version", "capability", "count"),
    [((12, 3), (9, 0), 1), ((12, 2), (9, 0), 0), ((13, 0), (8, 0), 0)],
)
def test_runner_overlaps_where_it_can(
    gpu, fake, cuda_source, monkeypatch, version, capability, count
):
    monkeypatch.setattr(driver, "version", lambda: version)
    monkeypatch.setattr(gpu_executor, "gpu_of", lambda device: replace(H200, capability=capability))
    plan = cuda_plan(cuda_source, 8)
    (launch,) = plan.launches
    run = bound(replace(plan, launches=(replace(launch, overlaps=True),)))
    run(torch.randn(8), 0.5)
    assert Config.in_dll(fake, "last").count == count


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


def source_of(plan):
    op, specs = scaling(), {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    tensors = build.Tensors(plan, op, specs)
    return gpu_executor.source_of(plan, op, tensors, (), 0, several=False, guarded=False)


def test_runner_source_holds_only_what_changes(gpu, cuda_source):
    assert source_of(cuda_plan(cuda_source, 8)) == (
        "def run(x, a):\n"
        "    y = empty((8,), (1,), dtype_y)\n"
        "    stream = current_stream(0)\n"
        "    launch0(stream, x.data_ptr(), y.data_ptr(), a)\n"
        "    return y\n"
    )


def test_runner_allocates_workspace_once(gpu, cuda_source):
    kernel = cuda_plan(cuda_source, 8).launches[0].kernel
    steps = [
        Launch(kernel, (1, 1, 1), (source, target, i64(8), f32("a")), (32, 1, 1))
        for source, target in (("x", "sums"), ("sums", "counts"), ("counts", "y"))
    ]
    odd = {n: TensorSpec.contiguous((k,), torch.float16) for n, k in (("sums", 3), ("counts", 200))}
    plan = Plan(tuple(steps), {n: Scratch(spec) for n, spec in odd.items()})
    # 16-byte vectors reach every tensor of it: 6 bytes take 256, 400 take 512
    assert source_of(plan) == (
        "def run(x, a):\n"
        "    y = empty((8,), (1,), dtype_y)\n"
        "    workspace = empty((768,), (1,), byte)\n"
        "    start = workspace.data_ptr()\n"
        "    stream = current_stream(0)\n"
        "    launch0(stream, x.data_ptr(), start + 0, a)\n"
        "    launch1(stream, start + 0, start + 256, a)\n"
        "    launch2(stream, start + 256, y.data_ptr(), a)\n"
        "    return y\n"
    )


def test_runner_returns_nothing_for_an_operator_without_results(gpu, fake, cuda_source):
    op = scaling(schema="(Tensor x, Tensor(m!)[] ms, float a) -> ()", outputs=lambda **k: ())
    step = cuda_plan(cuda_source, 8).launches[0]
    plan = Plan((Launch(step.kernel, step.grid, ("x", "ms[1]", i64(8), f32("a")), step.block),))
    spec = TensorSpec.contiguous((8,), torch.float32)
    specs = {"x": spec, "ms": [spec, spec], "a": 2.0}
    run = gpu_executor.executor(plan, op, specs, (), torch.device("cuda", 0))
    x, ms = torch.randn(8), [torch.randn(8), torch.randn(8)]
    assert run(x, ms, 1.0) is None
    assert words_of(fake)[:2] == [x.data_ptr(), ms[1].data_ptr()]


def test_runner_gives_each_stream_and_each_capture_its_zeros(gpu, fake, cuda_source, monkeypatch):
    from kernelwright.toolchain import workspace

    made = []
    zeros = torch.zeros

    def on_cpu(*args, device=None, **options):
        made.append(zeros(*args, **options))
        return made[-1]

    monkeypatch.setattr(torch, "zeros", on_cpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: type("S", (), {"synchronize": int}))
    monkeypatch.setattr(workspace, "_arenas", {})
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
    with redzones.guarded() as guard:
        run = bound(cuda_plan(cuda_source, 8))
    run(torch.randn(8), 1.0)  # the fake driver writes nothing
    assert guard.check() == "y: 8 of 8 elements never written, first 0"


def test_a_grid_that_clusters_do_not_divide_is_refused(gpu, cuda_source):
    with pytest.raises(ToolchainError, match=r"grid of 5 blocks .* clusters of 2"):
        bound(cuda_plan(cuda_source, 8, cluster=2, grid=5))


def test_nothing_is_compiled_during_capture(gpu, cuda_source, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CompiledDuringCapture, match="call kw"):
        bound(cuda_plan(cuda_source, 8))
    with pytest.raises(CompiledDuringCapture, match="call kw"):
        inductor.compiled(lambda x: x, CPU)


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
        run = inductor.compiled(double, CPU)
        assert torch.equal(run(torch.ones(n)), 2 * torch.ones(n))
        run(torch.ones(n))
    assert len(seen) == 12
