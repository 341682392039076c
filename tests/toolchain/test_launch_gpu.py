"""The same launches on a real GPU: streams, threads, devices, graphs, shared memory, clusters."""

import threading

import pytest
import torch

from kernelwright import dispatch, toolchain
from kernelwright.contract import (
    CudaKernel,
    Launch,
    NumbaKernel,
    Plan,
    Scratch,
    TensorSpec,
    f32,
    i64,
)
from kernelwright.support.errors import CompiledDuringCapture
from kernelwright.toolchain import availability, modes, redzones
from support.planning import cuda_plan, own_cache, scale_cu, scaling  # noqa: F401

pytestmark = pytest.mark.skipif(not modes.has_gpu(), reason="needs a GPU")

N = 1000
SOURCE = """
__global__ void big_shared(const float *x, float *y, long long n, float a) {
  extern __shared__ float mine[];  // 100 KiB: each thread its own 100 floats
  for (int i = 0; i < 100; i++) mine[threadIdx.x * 100 + i] = x[threadIdx.x] * i;
  __syncthreads();
  float sum = 0;
  for (int i = 0; i < 100; i++) sum += mine[(255 - threadIdx.x) * 100 + i];
  y[threadIdx.x] = a * sum;
}
__global__ void cluster_rank(const float *x, float *y, long long n, float a) {
  unsigned rank, size;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  if (threadIdx.x == 0) y[blockIdx.x] = rank + 100.0f * size;
}
__global__ void last_block(const float *x, float *y, long long n, float a, unsigned *count) {
  __threadfence();
  if (threadIdx.x == 0 && atomicAdd(count, 1) == gridDim.x - 1) {
    y[0] = a * gridDim.x;
    *count = 0;
  }
}
__global__ void overrun(const float *x, float *y, long long n, float a) {
  long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i <= n) y[i] = a * x[min(i, n - 1)];
}
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "gpu.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def scale(cuda_source):
    """y = a x, bound for the current device."""
    return bound(cuda_plan(cuda_source, N))


def bound(plan, shape=(N,), outputs=None, copies=(), device=None):
    specs = {"x": TensorSpec.contiguous(shape, torch.float32), "a": 1.0}
    device = device or torch.device("cuda", torch.cuda.current_device())
    return toolchain.executor(plan, scaling(outputs=outputs), specs, copies, device)


def one(source, name, grid, block=256, shared=0, cluster=1, extra=(), scratch=None):
    args = ("x", "y", i64(N), f32("a"), *extra)
    step = Launch(CudaKernel(source, name, cluster), (grid, 1, 1), args, (block, 1, 1), shared)
    return Plan((step,), scratch or {})


def test_a_plan_runs_on_every_stream_and_thread(scale):
    x = torch.randn(N, device="cuda")
    assert torch.equal(scale(x, 2.0), 2 * x)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        y = scale(x, 3.0)
    side.synchronize()
    assert torch.equal(y, 3 * x)
    found = []
    thread = threading.Thread(target=lambda: found.append(scale(x, 4.0)))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert torch.equal(found[0], 4 * x)


def test_a_plan_runs_in_a_graph(scale):
    x = torch.randn(N, device="cuda")
    scale(x, 2.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = scale(x, 2.0)
    x.copy_(torch.arange(N, device="cuda"))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 2 * x)


def test_binding_in_a_capture_is_refused(cuda_source):
    torch.zeros(1, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), pytest.raises(CompiledDuringCapture):
        bound(cuda_plan(cuda_source, N))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_plan_runs_on_the_device_of_its_tensors(cuda_source):
    run = bound(cuda_plan(cuda_source, N), device=torch.device("cuda", 1))
    x = torch.randn(N, device="cuda:1")
    assert torch.cuda.current_device() == 0
    y = run(x, 2.0)
    assert y.device == x.device and torch.equal(y, 2 * x) and torch.cuda.current_device() == 0


def test_copies_and_non_contiguous_input(cuda_source):
    run = bound(cuda_plan(cuda_source, N), copies=("x",))
    x = torch.randn(2 * N, device="cuda")[::2]
    assert torch.equal(run(x, 2.0), 2 * x)


def test_large_shared_memory(source):
    run = bound(one(source, "big_shared", 1, shared=256 * 400), shape=(256,))
    x = torch.randn(256, device="cuda")
    torch.testing.assert_close(run(x, 1.0), 4950 * x.flip(0))


@pytest.mark.skipif(
    modes.has_gpu() and torch.cuda.get_device_capability() < (9, 0), reason="needs sm_90"
)
@pytest.mark.parametrize("size", [2, 8, 16])
def test_clusters(source, size):
    def outputs(x, a):
        return (TensorSpec.contiguous((32,), torch.float32),)

    y = bound(one(source, "cluster_rank", 32, cluster=size), outputs=outputs)(
        torch.zeros(N, device="cuda"), 1.0
    )
    assert y.tolist() == [i % size + 100 * size for i in range(32)]


def test_zero_scratch_is_zero_on_every_stream_and_in_every_graph(source):
    def outputs(x, a):
        return (TensorSpec.contiguous((1,), torch.float32),)

    work = {"count": Scratch(TensorSpec.contiguous((1,), torch.int32), zero=True)}
    run = bound(one(source, "last_block", 64, extra=("count",), scratch=work), outputs=outputs)
    x = torch.zeros(N, device="cuda")
    graphs, streams, results = [], [torch.cuda.Stream() for _ in range(3)], []
    for _ in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1]):
            results.append(run(x, 2.0))
    for _ in range(50):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                if i < 2:
                    graphs[i].replay()
                eager = run(x, 1.0)
    torch.cuda.synchronize()
    assert [r.item() for r in results] == [128, 128] and eager.item() == 64


def test_the_guard_sees_an_overrun(source):
    with redzones.guarded() as guard:
        run = bound(one(source, "overrun", 4))
        run(torch.randn(N, device="cuda"), 1.0)
        torch.cuda.synchronize()
        assert guard.check() == "y: 4 bytes written after its end, the nearest 4 bytes away"


def test_a_bad_launch_names_kernel_and_error(source):
    run = bound(one(source, "overrun", 4, block=2048))
    with pytest.raises(RuntimeError, match=r"^overrun: CUDA_ERROR_INVALID_VALUE"):
        run(torch.randn(N, device="cuda"), 1.0)


def test_triton():
    ladder, x = dispatch.ladder("softmax"), torch.randn(64, 300, device="cuda")
    run = dispatch.launcher(ladder, {"x": x, "dim": -1}, "triton_row")
    torch.testing.assert_close(run(x, -1), torch.softmax(x, -1))


def test_numba_and_its_graph():
    toolchain.prepare("numba")
    if availability.missing("numba", "cuda"):
        pytest.skip("numba-cuda is not installed")
    from numba import cuda

    def kernel(x, y, n, a):
        i = cuda.grid(1)
        if i < n:
            y[i] = x[i] * a

    args = ("x", "y", i64(N), f32("a"))
    run = bound(Plan((Launch(NumbaKernel(kernel), (4, 1, 1), args, (256, 1, 1)),)))
    x = torch.randn(N, device="cuda")
    assert torch.equal(run(x, 2.0), 2 * x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(x, 3.0)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, 3 * x)


def test_memory_does_not_grow(scale):
    x = torch.randn(N, device="cuda")
    scale(x, 1.0)
    before = torch.cuda.memory_allocated()
    for _ in range(1000):
        scale(x, 1.0)
    assert torch.cuda.memory_allocated() == before
