"""Works of two streams that access the same memory: what orders them, and what does not."""

import pytest

from kernelwright import emulator
from kernelwright.emulator import program

pytestmark = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")

#: What a program does, and part of what the finding says of it; nothing if its works are ordered.
CASES = [
    ("k<<<1, 32, 0, a>>>(x); k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); k<<<1, 32, 0, a>>>(x);", ""),
    ("k<<<1, 32, 0, a>>>(x); k<<<1, 32, 0, b>>>(y);", ""),
    ("r<<<1, 32, 0, a>>>(x, y); r<<<1, 32, 0, b>>>(x, z);", ""),
    ("r<<<1, 32, 0, a>>>(x, y); k<<<1, 32, 0, b>>>(x);", "has read at"),
    ("k<<<1, 32, 0, a>>>(x); r<<<1, 32, 0, b>>>(x, y);", "reads memory"),
    ("t<<<1, 32, 0, a>>>(x); t<<<1, 32, 0, b>>>(x);", ""),  # atomic operations
    ("t<<<1, 32, 0, a>>>(x); k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("c<<<1, 3, 0, a>>>((char *)x); c<<<1, 32, 0, b>>>((char *)x + 3);", ""),
    ("c<<<1, 4, 0, a>>>((char *)x); c<<<1, 32, 0, b>>>((char *)x + 3);", "has written at"),
    # events
    ("k<<<1, 32, 0, a>>>(x); cudaEventRecord(e, a); cudaStreamWaitEvent(b, e);"
     "k<<<1, 32, 0, b>>>(x);", ""),
    ("cudaEventRecord(e, a); k<<<1, 32, 0, a>>>(x); cudaStreamWaitEvent(b, e);"
     "k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); cudaEventRecord(e, a); k<<<1, 32, 0, b>>>(x);"
     "cudaStreamWaitEvent(b, e);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); cudaEventRecord(e, a); cudaEventSynchronize(e);"
     "k<<<1, 32, 0, b>>>(x);", ""),
    ("k<<<1, 32, 0, a>>>(x); cudaEventRecord(e, a); cudaStreamWaitEvent(b, e);"
     "cudaEventRecord(e, b); cudaStreamWaitEvent(n, e); k<<<1, 32, 0, n>>>(x);", ""),
    # the host waits
    ("k<<<1, 32, 0, a>>>(x); cudaStreamSynchronize(a); k<<<1, 32, 0, b>>>(x);", ""),
    ("k<<<1, 32, 0, a>>>(x); cudaStreamSynchronize(b); k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); cudaDeviceSynchronize(); k<<<1, 32, 0, n>>>(x);", ""),
    ("k<<<1, 32, 0, a>>>(x); while (cudaStreamQuery(a)); k<<<1, 32, 0, n>>>(x);", ""),
    ("k<<<1, 32, 0, a>>>(x); cudaFree(z); k<<<1, 32, 0, b>>>(x);", ""),
    # the default stream
    ("k<<<1, 32, 0, a>>>(x); k<<<1, 32>>>(x); k<<<1, 32, 0, b>>>(x);", ""),
    ("k<<<1, 32, 0, n>>>(x); k<<<1, 32>>>(x);", "has written at"),
    ("k<<<1, 32>>>(x); k<<<1, 32, 0, n>>>(x);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); k<<<1, 1>>>(y); k<<<1, 32, 0, b>>>(x);", ""),
    # copies
    ("cudaMemcpyAsync(x, p, 128, cudaMemcpyHostToDevice, a); k<<<1, 32, 0, b>>>(x);",
     "cudaMemcpyAsync in another stream has written at"),
    ("k<<<1, 32, 0, a>>>(x); cudaMemcpyAsync(p, x, 128, cudaMemcpyDeviceToHost, b);",
     "cudaMemcpyAsync reads memory"),
    ("k<<<1, 32, 0, a>>>(x); cudaMemcpyAsync(p, x, 128, cudaMemcpyDeviceToHost, a);"
     "k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("k<<<1, 32, 0, a>>>(x); cudaMemcpyAsync(h, x, 128, cudaMemcpyDeviceToHost, a);"
     "k<<<1, 32, 0, b>>>(x);", ""),  # of pageable memory: the host waits
    ("k<<<1, 32, 0, a>>>(x); cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);"
     "k<<<1, 32, 0, n>>>(x);", ""),
    ("k<<<1, 32, 0, n>>>(x); cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);",
     "cudaMemcpy reads memory"),
    ("cudaMemsetAsync(x, 0, 128, a); k<<<1, 32, 0, b>>>(x);", "cudaMemsetAsync in another stream"),
    ("cudaMemset(x, 0, 128); k<<<1, 32, 0, n>>>(x);", ""),
    # graphs
    ("cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal); k<<<1, 32, 0, a>>>(x);"
     "cudaStreamEndCapture(a, &graph); cudaGraphInstantiate(&exec, graph, 0);"
     "cudaGraphLaunch(exec, a); k<<<1, 32, 0, b>>>(x);", "has written at"),
    ("cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal); k<<<1, 32, 0, a>>>(x);"
     "cudaStreamEndCapture(a, &graph); cudaGraphInstantiate(&exec, graph, 0);"
     "cudaGraphLaunch(exec, b); k<<<1, 32, 0, b>>>(x);", ""),
    # other memory at the same place of a variable
    ("k<<<1, 32, 0, a>>>(x); cudaFreeAsync(x, a); cudaMallocAsync(&x, 4096, b);"
     "k<<<1, 32, 0, b>>>(x);", ""),
]  # fmt: skip


@pytest.mark.long
def test_works_of_streams(tmp_path):
    file = tmp_path / "streams.cu"
    cases = "".join(f"  if (i == {i}) {{\n{code} }}\n" for i, (code, _) in enumerate(CASES))
    file.write_text(
        "#include <cstdlib>\n"
        "__global__ void k(int *x) { x[threadIdx.x] = 1; }\n"
        "__global__ void r(int *x, int *y) { y[threadIdx.x] = x[threadIdx.x]; }\n"
        "__global__ void t(int *x) { atomicAdd(x, 1); }\n"
        "__global__ void c(char *x) { x[threadIdx.x] = 1; }\n"
        "int main(int, char **v) {\n"
        "  int *x, *y, *z, *p, *h = (int *)malloc(4096), i = atoi(v[1]);\n"
        "  cudaMalloc(&x, 4096); cudaMalloc(&y, 4096); cudaMalloc(&z, 4096);\n"
        "  cudaMallocHost(&p, 4096); cudaMemset(x, 0, 4096);\n"
        "  cudaStream_t a, b, n; cudaStreamCreate(&a); cudaStreamCreate(&b);\n"
        "  cudaStreamCreateWithFlags(&n, cudaStreamNonBlocking);\n"
        "  cudaEvent_t e; cudaEventCreate(&e); cudaGraph_t graph; cudaGraphExec_t exec;\n"
        f"{cases}  cudaDeviceSynchronize(); return 0;\n}}\n"
    )
    for i, (code, why) in enumerate(CASES):
        ran = program.run(file, [str(i)], check=("races",))
        said = [f.text for f in ran.findings]
        assert bool(said) == bool(why), (code, said)
        if why:
            assert why in said[0] and "no event and no synchronization" in said[0], (code, said)
            assert said[0].startswith("streams.cu:") and "allocated at streams.cu:8" in said[0]
        assert ran.failed == bool(why), (code, ran.notes)


@pytest.mark.long
def test_threads_of_the_host_that_launch_at_once_are_checked(tmp_path):
    file = tmp_path / "threads.cu"
    file.write_text(
        "#include <thread>\n#include <vector>\n"
        "__global__ void k(int *x) { x[threadIdx.x] += 1; }\n"
        "static void work(int *wrong) {\n"
        "  int *x, *h; cudaStream_t s; cudaStreamCreate(&s);\n"
        "  cudaMalloc(&x, 128); cudaMallocHost(&h, 128); cudaMemsetAsync(x, 0, 128, s);\n"
        "  for (int i = 0; i < 50; ++i) k<<<1, 32, 0, s>>>(x);\n"
        "  cudaMemcpyAsync(h, x, 128, cudaMemcpyDeviceToHost, s);\n"
        "  cudaStreamSynchronize(s); *wrong = h[31] != 50;\n}\n"
        "int main() { int wrong[4]; std::vector<std::thread> all;\n"
        "  for (int &each : wrong) all.emplace_back(work, &each);\n"
        "  for (auto &t : all) t.join();\n"
        "  return wrong[0] + wrong[1] + wrong[2] + wrong[3]; }\n"
    )
    ran = program.run(file, check=("races", "bounds", "init", "divergence"))
    assert ran.code == 0 and not ran.findings and not ran.failed, (ran.findings, ran.notes)
