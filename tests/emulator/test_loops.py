"""Code between barriers as loops over threads: which kernels allow it; the same bits as fibers."""

import os
import random
import subprocess

import pytest

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.program import build
from kernelwright.emulator.program.loops import ProgramIndex, with_loops
from support.paths import FIXTURES
from support.random_kernels import program as random_program

FILE = FIXTURES / "programs" / "loops.cu"
WARPS = FIXTURES / "programs" / "warp_loops.cu"
runs = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def why(text):
    """Why kernels are left as they are; None for those that get loops."""
    reasons: dict[str, str | None] = {}
    rewritten = with_loops(text, ProgramIndex([text]), reasons)
    assert ("KW_BLOCK" in rewritten) == (None in reasons.values())
    return reasons


def body(code):
    head = (
        "__device__ int halves(int x) { return (x + 1) / 2; }"
        "__device__ int first(int x) { return x + threadIdx.x; }"
        "__global__ void k(int *x, int n, float4 v) { __shared__ int s[64];"
    )
    return why(f"{head} {code} }}")["k"]


@pytest.mark.parametrize(
    "code",
    [
        "__syncthreads(); x[threadIdx.x] = 1;",
        "for (int i = 0; i < n; i += blockDim.x) { __syncthreads(); }",
        "int m = n / 2; while (m > 0) { __syncthreads(); m /= 2; }",
        "if (gridDim.x > 3) __syncthreads(); else x[0] = 1;",
        "x += n; if (x[blockIdx.x] > 0) { __syncthreads(); }",
        "if (threadIdx.x < n) { s[0] = 1; __syncthreads(); }",
        "if (threadIdx.x < n) return; __syncthreads();",
        "for (int i = 0; i < n; ++i) { if (i == 2) break; __syncthreads(); }",
        "int i = threadIdx.x, j = n; __syncthreads(); if (j) __syncthreads();",
        "auto g = cooperative_groups::this_thread_block(); g.sync(); cooperative_groups::sync(g);",
        "atomicAdd(&s[0], 1); __syncthreads();",
        "__syncthreads(); __syncwarp();",
        "n += __shfl_down_sync(~0u, n, 1) + __shfl_xor_sync(~0u, x[threadIdx.x], 2);",
        "if (threadIdx.x < 32) n = max(n, __shfl_sync(~0u, n, 0)); x[0] = n; __syncthreads();",
        "for (int i = threadIdx.x; i < n; i += 64) { x[i] = __any_sync(~0u, x[i]); }",
        "if (__ballot_sync(~0u, n > 3) == 5) x[0] = 1; else if (__all_sync(~0u, n)) x[0] = 2;",
        "volatile int *p = s; p[threadIdx.x] += p[threadIdx.x + 1]; x[0] = s[0];",
        "while (x[threadIdx.x] < n) { x[threadIdx.x] += __popc(__activemask()); }",
        'asm("ex2.approx.f32 %0, %1;" : "=f"(v.x) : "f"(v.y)); __syncthreads();',
        'asm volatile("st.shared.b32 [%0], %1;" ::"r"(n), "r"(n)); __syncthreads();',
        'int m; asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(m) : "r"(n));',
        "for (int i = 0; i < halves(n); ++i) __syncthreads();",
        "for (int i = 0; i < ceilf(log2f(n)); ++i) __syncthreads();",
        "int m = sqrt(n); while (m > 0) { __syncthreads(); m -= 1 + __clz(n) * floor(pow(2, n)); }",
        "__syncthreads();\n#ifdef A\n x[0] = 1;\n#elif n\n __threadfence();\n#endif\n",
        'asm volatile("bar.sync 0;" ::: "memory"); if (n) asm("barrier.sync 0;");',
        "int i = threadIdx.x; while (i < n) { atomicAdd(&s[x[i]], 1); i += 64; } __syncthreads();",
        "__syncthreads(); int o = 1, a; do { a = o; o = atomicCAS(x, a, a * n); } while (a != o);",
        "int i; for (i = 0; i < n; ++i) __syncthreads(); if (x[1]) for (i = n; i; --i) x[i] = 1;",
        "int in_group = threadIdx.x, a_partition = n; __syncthreads(); x[in_group] = a_partition;",
        "bool b = Same<int, float>::value; __syncthreads(); x[0] = b;",
        "namespace cg = cooperative_groups; auto g = cg::this_thread_block();"
        "for (int i = g.size(); i; i /= 2) { cg::sync(g); x[g.thread_rank()] = i; }",
        "float r = sqrtf(v.x); switch (n) { case 1: r = 2; break; } __syncthreads(); x[0] = r;",
    ],
)
def test_what_gets_loops(code):
    assert body(code) is None


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("for (int i = 0; i < ceilf(x[threadIdx.x]); ++i) __syncthreads();", "a condition"),
        ("__syncthreads(); if (threadIdx.x == 0) k<<<1, 1>>>(x, n, v);", "launches a kernel"),
        ("if (threadIdx.x < 5) __syncthreads(); x[0] = 1;", "a barrier under a condition"),
        ("for (int i = threadIdx.x; i < n; ++i) __syncthreads();", "a barrier under a condition"),
        ("int m = threadIdx.x; if (m) __syncthreads(); m = 3;", "a barrier under a condition"),
        ("int m = n; foo(m); for (; m; m--) __syncthreads();", "a barrier under a condition"),
        ("int m = n; int *p = &m; for (; m; m--) __syncthreads();", "a barrier under a condition"),
        ("int m = n; if (x[m++]) __syncthreads(); m = 0;", "a barrier under a condition"),
        ("if (x[threadIdx.x]) { n = 2; } if (n) __syncthreads(); n = 1;", "a barrier under a"),
        ("for (;;) { __syncthreads(); if (x[threadIdx.x]) break; }", "a thread leaves a loop"),
        ("for (;;) { __syncthreads(); if (x[threadIdx.x]) return; }", "a thread returns"),
        ("switch (n) { case 1: __syncthreads(); }", "it uses __syncthreads"),
        ("__syncthreads(); n = __syncthreads_count(n);", "it uses __syncthreads_count"),
        ("n = x[0] ? __shfl_sync(~0u, n, 0) : 0;", "a part of an expression"),
        ("if (x[0] && __any_sync(~0u, n)) x[0] = 1;", "a part of an expression"),
        ("while (x[threadIdx.x]) { if (__any_sync(~0u, n)) break; }", "a thread leaves a loop"),
        ("if (x[threadIdx.x]) __syncwarp(); n = 1; __syncwarp();", "behind others"),
        ("if (x[threadIdx.x]) __syncwarp(); else __syncwarp();", "both branches"),
        ("for (; n; --n) if (x[threadIdx.x]) __syncwarp();", "behind others"),
        ("n = __match_all_sync(~0u, n, x); __syncwarp();", "it uses __match_all_sync"),
        ("volatile int *p = x; while (*p) {} __syncthreads();", "waits for a volatile"),
        ("while (*(volatile int *)x) {} __syncthreads();", "a cast to volatile"),
        ("((volatile int *)x)[0] += s[1]; __syncthreads();", "a cast to volatile"),
        ("volatile int *p = x; p[0]++; __syncthreads();", "a write to volatile memory in a form"),
        ("volatile int *p = x; *(p + 1) = 0; __syncthreads();", "a write to volatile memory in a"),
        ("volatile int *p = x; first(*p, p); __syncthreads();", "a pointer to volatile that goes"),
        ("while (atomicAdd(x, 0) < 3) {} __syncthreads();", "repeats an atomic"),
        ("while (atomicCAS(x, 0, 1)) {} __syncthreads();", "it uses atomicCAS"),
        ("int &r = s[n]; __syncthreads(); r = 1;", "the reference r"),
        ("auto f = [&] { return n; }; __syncthreads(); f();", "it has a lambda"),
        ("__syncthreads();\n#define A 1\n x[0] = A;\n", "directives"),
        (
            "__threadfence();\n#if A\n volatile int y;\n#endif\n __syncthreads();",
            "it uses __threadfence",
        ),
        ("__threadfence(); __syncthreads();", "it uses __threadfence"),
        ('asm volatile("bar.sync 1;"); __syncthreads();', "the instruction bar.sync"),
        ("int m = n; while (m) { m = atomicAdd(x, 0); } __syncthreads();", "repeats an atomic"),
        (
            "int m = n; while (m) { atomicAdd(x, 1); m = x[1]; } __syncthreads();",
            "repeats an atomic",
        ),
        ("int i = 0; while (i < 9) { first(atomicAdd(x, 1), &i); } __syncthreads();", "repeats an"),
        ('asm("ld.volatile.b32 %0, [%1];" : "=r"(n) : "l"(x)); __syncthreads();', "ld.volatile"),
        ('asm("L: bra L;"); __syncthreads();', "the instruction L:"),
        ('while (n) asm("ld.b32 %0, [%1];" : "=r"(n) : "l"(x)); __syncthreads();', "may wait"),
        ("for (int i = 0; i < first(n); ++i) __syncthreads();", "a barrier under a condition"),
    ],
)
def test_what_stays_on_fibers(code, reason):
    assert reason in (body(code) or "")


def test_functions_are_followed():
    text = """
    __device__ int deep(int x) { return __shfl_sync(~0u, x, 0); }
    #define SHALLOW(x) deep(x)
    __device__ int middle(volatile int *x) { return *x; }
    __device__ int early(int x) { if (x) return 1; return deep(x); }
    __device__ int again(int x) { return x ? 1 : deep(again(x)); }
    __global__ void a(int *x) { __syncthreads(); x[0] = SHALLOW(1); }
    __global__ void b(int *x) { __syncthreads(); x[0] = middle(x) + deep(deep(x[0])); }
    __global__ void c(int *x) { __syncthreads(); x[0] = 1; }
    __global__ void d(int *x) { x[0] = early(3); }
    __global__ void e(int *x) { x[0] = again(3); }
    """
    assert why(text) == {
        "a": "deep uses __shfl_sync",
        "b": None,
        "c": None,
        "d": None,
        "e": "an operation of a warp in a part of an expression",
    }


def test_functions_of_one_name():
    text = """
    __device__ int sum(int x) { return __shfl_sync(~0u, x, 0); }
    __device__ float sum(float x) { return __shfl_sync(~0u, x, 1); }
    __device__ int sum(int x, int y) { return __shfl_sync(~0u, x, y); }
    int sum(double x) { return 1; }
    template <typename T> __device__ T all(T x) { __shared__ T s[32]; __syncthreads(); return x; }
    __global__ void a(int *x, float y, const int n) { x[0] = sum(n) + sum(y) + sum(x[1], 2); }
    __global__ void b(int *x) { __syncthreads(); x[0] = sum(x[1]); }
    __global__ void c(int *x) { x[0] = all<int>(1) + all<float>(2) + all<int>(3); }
    __global__ void d(int *x) { x[0] = all(1) + all(2); }
    """
    assert why(text) == {
        "a": None,
        "b": "it calls sum, which is defined several times, or in a class",
        "c": None,
        "d": "all is called twice and has shared variables of a template",
    }


def test_operators_of_the_host_do_not_count():
    kernel = "__global__ void k(V *x) { __syncthreads(); x[0] = x[1] + x[2]; }"
    of_host = "struct R { float operator()() { k<<<1, 1>>>(0); cudaFree(0); thread_block t; } };"
    assert why(f"{of_host} {kernel}")["k"] is None
    device = of_host.replace("float", "__device__ float")
    assert "operator" in str(why(f"{device} {kernel}")["k"])


def test_names_that_hide_volatile():
    text = """
    typedef volatile int hidden;
    struct S { volatile int v[4]; };
    __device__ volatile int flag;
    __global__ void a(hidden *x) { __syncthreads(); x[0] = 1; }
    __global__ void b(S *s) { __syncthreads(); s->v[0] += s->v[1]; }
    __global__ void c(int *x) { while (flag == 0) {} __syncthreads(); }
    __global__ void d(int *x) { __shared__ volatile int v[4]; v[0] += v[1]; x[0] = v[0]; }
    """
    assert why(text) == {
        "a": "hidden is volatile",
        "b": "a write to volatile memory in a form that is not understood",
        "c": "a loop waits for a volatile value",
        "d": None,
    }


def test_a_file_without_barriers_stays():
    text = "__global__ void k(int *x) { int a = 1, b = 2; x[0] = a + b; }"
    assert with_loops(text, ProgramIndex([text])) == text


def outputs(file, folder):
    """What a program prints on both streams: by loops, and by fibers in a random order."""
    executable = build.program(file, "fast")
    (folder / "seed").write_text("1")  # an order that loops do not have
    lines = []
    for settings in (folder / "none", folder):
        environment = {**os.environ, "KERNELWRIGHT_RUN": str(settings)}
        settings.mkdir(exist_ok=True)
        done = subprocess.run([executable], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        lines.append((done.stdout, done.stderr))
    return lines


@runs
@pytest.mark.long
def test_hard_kernels_have_the_same_results(tmp_path):
    (by_loops, blocks), (by_fibers, none) = outputs(FILE, tmp_path)
    assert by_loops == by_fibers
    for line in blocks.splitlines():
        name, count = line.split()
        assert int(count) == (0 if name.startswith("fibers_") else 3), name
    assert len(blocks.splitlines()) == 26
    assert all(line.endswith(" 0") for line in none.splitlines())
    left = {k for k, reason in why(FILE.read_text()).items() if reason}
    assert left == {k for k in why(FILE.read_text()) if k.startswith("fibers_")}


@runs
@pytest.mark.long
def test_warps_have_the_same_results(tmp_path):
    (by_loops, blocks), (by_fibers, _) = outputs(WARPS, tmp_path)
    assert by_loops == by_fibers
    counts = [line.split() for line in blocks.splitlines()]
    assert all(int(n) == (0 if name.startswith("fibers_") else 3) for name, n in counts)
    assert len(counts) == 33


@runs
@pytest.mark.parametrize(
    "seed, kernels",
    [(2, 1), *(pytest.param(None, 3, marks=pytest.mark.long, id=f"any{i}") for i in range(6))],
)
def test_random_kernels_have_the_same_results(seed, kernels, tmp_path):
    seed = random.randrange(1 << 30) if seed is None else seed
    text = random_program(seed, kernels)
    assert set(why(text).values()) == {None}, seed
    file = tmp_path / "random.cu"
    file.write_text(text)
    (by_loops, _), (by_fibers, _) = outputs(file, tmp_path)
    assert by_loops == by_fibers, seed


@runs
def test_what_the_compiler_refuses_as_loops_runs_by_fibers(tmp_path):
    """A value that cannot be assigned cannot be kept for each thread."""
    file = tmp_path / "one.cu"
    file.write_text(
        "struct One { int x; __device__ One(int x) : x(x) {}\n"
        "  void operator=(const One &) = delete; };\n"
        "__global__ void k(int *x) { One one(threadIdx.x); __syncthreads(); x[0] = one.x; }\n"
        "int main() { int *x; cudaMalloc(&x, 4); k<<<1, 1>>>(x);\n"
        "  return cudaDeviceSynchronize() != cudaSuccess; }\n"
    )
    assert why(file.read_text()) == {"k": None}
    result = program.run(file)
    assert (result.code, result.loops) == (0, ())


@runs
def test_faults_in_loops_name_the_line(tmp_path):
    file = tmp_path / "fault.cu"
    file.write_text(
        "__global__ void k(int *x) {\n"
        "  __syncthreads();\n"
        "  x[threadIdx.x << 24] = 1;\n"
        "}\n"
        "int main() { int *x; cudaMalloc(&x, 4); k<<<1, 64>>>(x);\n"
        "  return !cudaDeviceSynchronize(); }\n"
    )
    result = program.run(file)
    assert result.loops == ("k",)
    assert "a thread of block (0, 0, 0) touches the address" in result.notes[0].text
    assert "fault.cu:3" in result.notes[0].text
