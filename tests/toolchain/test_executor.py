"""Executors without a GPU: the launches, allocations and errors of `gpu_executor`; Inductor."""

import ctypes
import traceback
from dataclasses import replace

import pytest
import torch

from kernelwright.contract import H200, Launch, Plan, Scratch, TensorSpec, f32, i64
from kernelwright.contract.symbolic_int import Trace
from kernelwright.support.errors import CompiledDuringCapture, ToolchainError
from kernelwright.toolchain import (
    build,
    driver,
    gpu_executor,
    inductor,
    redzones,
    workspace,
)
from support.fake_driver import Config, fake_driver, fake_gpu, fake_library, value, words_of  # noqa: F401
from support.planning import CPU, cuda_plan, own_cache, scale_cu, scaling  # noqa: F401


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
    # all its tensors are aligned for 16-byte vectors: 6 bytes take 256, 400 take 512
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


@pytest.fixture
def zeroed(monkeypatch):
    """The zeroed allocations."""
    made, zeros = [], torch.zeros

    def on_cpu(*args, device=None, **options):
        made.append(zeros(*args, **options))
        return made[-1]

    monkeypatch.setattr(torch, "zeros", on_cpu)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: type("S", (), {"synchronize": int}))
    monkeypatch.setattr(workspace, "_arenas", {})
    return made


def test_zeroed_workspace_of_an_open_size(gpu, fake, cuda_source, zeroed):
    trace = Trace({"n0": 100})
    n = trace.size("n0")
    step = cuda_plan(cuda_source, 8).launches[0]
    words = [Scratch(TensorSpec.contiguous((k,), torch.int32), zero=True) for k in (n, 3 * n)]
    launch = Launch(step.kernel, step.grid, ("first", "second", i64(8), f32("a")), step.block)
    plan = Plan((launch,), dict(zip(("first", "second"), words, strict=True)))
    specs = {"x": TensorSpec.contiguous((8,), torch.float32), "a": 2.0}
    device = torch.device("cuda", 0)
    bind = gpu_executor.opened(plan, scaling(), specs, (), device, trace)
    places = {}
    for size in (100, 120, 5000, 100):
        bind(size)(torch.randn(8), 1.0)
        first, second = places[size] = words_of(fake)[:2]
        assert second - first == -(-4 * size // 256) * 256
        room = next(t for t in zeroed if t.data_ptr() == first)
        assert second + 12 * size <= first + room.numel()
    # sizes up to the same power of two share their workspace
    assert places[100][0] == places[120][0] != places[5000][0]


def test_runner_gives_each_stream_and_each_capture_its_zeros(gpu, fake, cuda_source, zeroed):
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
    arena = zeroed[0]
    places = [p - arena.data_ptr() for p in (first, second)]
    assert all(0 <= p <= arena.numel() - 400 for p in places) and abs(places[0] - places[1]) >= 400
    assert len(zeroed) == 3  # the arena, and one for each stream


def test_runner_guards_its_outputs(gpu, fake, cuda_source, monkeypatch):
    full = torch.full
    monkeypatch.setattr(torch, "full", lambda *a, device=None, **k: full(*a, **k))
    with redzones.guarded() as guard:
        run = bound(cuda_plan(cuda_source, 8))
    run(torch.randn(8), 1.0)  # the fake driver writes nothing
    assert guard.check() == "y: 8 of 8 elements never written; the first is element 0"


def test_a_grid_that_clusters_do_not_divide_is_refused(gpu, cuda_source):
    with pytest.raises(ToolchainError, match="grid of 5 blocks is not a multiple"):
        bound(cuda_plan(cuda_source, 8, cluster=2, grid=5))


def test_nothing_is_compiled_during_capture(gpu, cuda_source, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(CompiledDuringCapture, match="call kw"):
        bound(cuda_plan(cuda_source, 8))
    with pytest.raises(CompiledDuringCapture, match="call kw"):
        inductor.compiled(lambda x: x, CPU)


def test_inductor_compiles_each_bind_afresh(monkeypatch):
    """torch counts recompilations per code object, and after 8 silently runs eagerly."""
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
