"""Faults of the host's own code: failed launches and calls that a program does not look at, copies
in a wrong direction, device memory that the host reads."""

import pytest

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.program.attributes import attributes_of
from kernelwright.emulator.program.rewrite import rewritten

runs = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def test_calls_that_are_statements_are_marked():
    text = """
    struct cudaTimer { cudaTimer(); };
    int main() {
      cudaFree(a); if (b) cudaFree(c); else cudaMemset(d, 0, 1);
      cudaError_t e = cudaFree(f); CHECK(cudaFree(g)); (void)cudaFree(h); cudaGetLastError();
      if (cudaFree(i)) return cudaFree(j); cudaFree(k), cudaFree(l);
    }
    #define FREE(x) { cudaFree(x); }
    """
    source = rewritten(text, {})
    marked = [part.partition(";")[0] for part in source.split('KwUnchecked("')[1:]]
    assert marked == [
        'cudaFree"), cudaFree(a)',
        'cudaFree"), cudaFree(c)',
        'cudaMemset"), cudaMemset(d, 0, 1)',
        'cudaFree"), cudaFree(x)',
    ]


def test_bounds_of_launches():
    text = """
    #define THREADS (2 * 64)
    template <int N> __global__ void __launch_bounds__(N) of_a_template(int *x) {}
    __global__ void __launch_bounds__(THREADS, 2) of_a_macro(int *x) {}
    __global__ __launch_bounds__(256) void number(int *x);
    __global__ __launch_bounds__(256) void number(int *x) {}
    __global__ __launch_bounds__(256) void overloaded(int *x) {}
    __global__ void overloaded(float *x) {}
    """
    attributes = attributes_of([text])
    assert attributes == {
        "of_a_macro": "kw::program::Bounded{THREADS}, ",
        "number": "kw::program::Bounded{256}, ",
    }


#: Statements of a host, and what the report says of each; nothing if they are right.
HOST = [
    ("k<<<1, 2048>>>(x);", "the launch of k fails: invalid configuration argument: blocks of 2048"),
    ("k<<<0, 32>>>(x);", "a grid of 0 x 1 x 1 blocks"),
    ("b<<<1, 256>>>(x);", "__launch_bounds__ of the kernel allows 128"),
    ("t<int><<<1, 32, 60000>>>(x);", "60000 bytes of dynamic shared memory; 49152 are allowed"),
    ("cudaFuncSetAttribute(t<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);"
     " t<int><<<1, 32, 60000>>>(x);", ""),
    ("k<<<1, 2048>>>(x); if (!cudaGetLastError()) return 7;", ""),
    ("cudaFree(x); cudaFree(x);", "cudaFree returns cudaErrorInvalidValue"),
    ("cudaFree(h);", "cudaFree returns cudaErrorInvalidValue"),
    ("if (!cudaFree(h)) return 7;", ""),
    ("cudaMemcpy(h, x, 4096, cudaMemcpyHostToDevice);", "its destination is memory of the host"),
    ("cudaMemcpy(x, h, 4096, cudaMemcpyDeviceToHost);", "its destination is device memory"),
    ("cudaMemcpy(x, x + 8, 16, cudaMemcpyHostToDevice);", "its source is device memory"),
    ("cudaMemcpyToSymbol(g, h, 16); cudaMemcpyFromSymbol(h, g, 16);", ""),
    ("cudaMemcpyToSymbol(g, h, 260);", "cudaMemcpyToSymbol returns cudaErrorInvalidValue"),
    ("cudaMemcpyFromSymbol(h, g, 64, 200);", "cudaMemcpyFromSymbol returns cudaErrorInvalid"),
    ("cudaMemcpy(h, x, 4096, cudaMemcpyDefault); cudaMemcpy(m, h, 8, cudaMemcpyHostToDevice);", ""),
    ("h[0] = x[3];", "the host touches device memory, allocated at host.cu:"),
    ("memset(x, 0, 64);", "the host touches device memory"),
    ("k<<<1, 32>>>(m); h[0] = m[3];", "managed memory that a kernel has written"),
    ("k<<<1, 32>>>(m); cudaDeviceSynchronize(); h[1] = m[5];", ""),
    ("reads<<<1, 32>>>(m, x); h[2] = m[6];", ""),
    ("cudaFree(x); k<<<1, 32>>>(x);", "touches byte 0 of memory that was freed at host.cu:"),
    ("cudaFree(x); cudaMemcpy(h, x, 64, cudaMemcpyDeviceToHost);", "cudaMemcpy touches byte 0 of"),
    ("cudaFree(m); h[4] = m[7];", "the host touches byte 28 of memory that was freed at host.cu:"),
]  # fmt: skip


@pytest.mark.long
@runs
def test_faults_of_the_host_are_reported(tmp_path):
    file = tmp_path / "host.cu"
    cases = "".join(f"  if (n == {i}) {{\n{code} }}\n" for i, (code, _) in enumerate(HOST))
    file.write_text(
        "#include <cstdio>\n#include <cstdlib>\n#include <cstring>\n"
        "__device__ int g[64];\n"
        "__global__ void k(int *x) { x[threadIdx.x] = 1; }\n"
        "__global__ void __launch_bounds__(128) b(int *x) { x[threadIdx.x] = 2; }\n"
        "__global__ void reads(int *x, int *y) { y[threadIdx.x] = x[threadIdx.x]; }\n"
        "template <typename T> __global__ void t(T *x) { extern __shared__ T s[]; x[0] = s[0]; }\n"
        "int main(int, char **v) { int *x, *m, *h = (int *)malloc(4096), n = atoi(v[1]);\n"
        "  cudaMalloc(&x, 4096); cudaMallocManaged(&m, 4096);\n"
        f"{cases}  return 0;\n}}\n"
    )
    for i, (code, why) in enumerate(HOST):
        ran = program.run(file, [str(i)])
        said = "\n".join(n.text for n in ran.notes)
        assert ran.failed == bool(why), (code, said)
        assert why in said, (code, said)
        if why and "k<<<1, 32>>>(x)" not in code:
            assert f"host.cu:{12 + 2 * i}" in said, (code, said)
        assert ran.code in ((0, -11) if "h[" in code or "memset" in code else (0,)), code


@pytest.mark.long
@runs
def test_results_that_are_not_copied_back(tmp_path):
    file = tmp_path / "back.cu"
    file.write_text(
        "#include <cstdlib>\n"
        "__device__ int g;\n"
        "__global__ void k(int *x) { g = x[threadIdx.x] = 1; }\n"
        "int main(int, char **v) { int *x, h[32], n = atoi(v[1]);\n"
        "  cudaMalloc(&x, 128); cudaMemcpy(x, h, 128, cudaMemcpyHostToDevice);\n"
        "  k<<<1, 32>>>(x);\n"
        "  if (n == 1) cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost);\n"
        "  if (n == 2) cudaMemcpyFromSymbol(h, g, 4);\n"
        "  if (n == 3) cudaMemcpy(h, x, 128, cudaMemcpyDefault);\n"
        "  if (n == 4) cudaMemcpy(h, x, 132, cudaMemcpyDeviceToHost);\n"
        "  cudaFree(x);\n}\n"
    )
    for n, check in ((0, ()), (0, ("races",)), (1, ()), (1, ("races",)), (2, ()), (3, ()), (4, ())):
        ran = program.run(file, [str(n)], check=check)
        said = [note.text for note in ran.notes if note.kind == "warning"]
        assert ran.failed == (n == 4)
        assert [text.partition(" the launch")[0] for text in said] == ["back.cu:6:"] * (not n)


@pytest.mark.long
@runs
def test_misaligned_scalars_in_shared_memory(tmp_path):
    file = tmp_path / "off.cu"
    file.write_text(
        "__global__ void k(int *x, int off) {\n"
        "  __shared__ char s[256];\n"
        "  for (int i = threadIdx.x; i < 256; i += 32) s[i] = i;\n"
        "  __syncthreads();\n"
        "  x[threadIdx.x] = *(int *)(s + off + threadIdx.x * 4);\n}\n"
        "int main() { int *x, h[32]; cudaMalloc(&x, 128); k<<<1, 32>>>(x, 2);\n"
        "  cudaMemcpy(h, x, 128, cudaMemcpyDeviceToHost); }\n"
    )
    (finding,) = program.run(file, check=("bounds",)).findings
    assert finding.text.startswith("off.cu:5: thread ")
    assert "not a multiple of 4" in finding.text
