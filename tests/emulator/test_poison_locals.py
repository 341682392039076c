"""What the checks put behind declarations of a kernel's variables."""

import re

import pytest

from kernelwright.emulator.program import asm
from kernelwright.emulator.program.attributes import attributes_of
from kernelwright.emulator.program.poison_locals import poisoned
from kernelwright.emulator.program.rewrite import kernels_of, rewritten


def inside(text):
    text_out = poisoned(f"__global__ void k(int *x) {{\n  {text}\n}}\n")
    assert text_out.count("\n") == text.count("\n") + 3
    return text_out


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("float sum;", ["sum"]),
        ("float a, *p, q[3][N + 1], r = f(2, 3), z;", ["a", "p", "q", "z"]),
        ("unsigned long long w;", ["w"]),
        ("Foo<int, 3>::type m;", ["m"]),
        ("n::pair<float> m;", ["m"]),
        ("if (x) { half2 h; }", ["h"]),
        ("struct S { int a; float b; } ; S s;", ["s"]),
        ("union { int a; float b; } u;", []),
        ("float v = 1, w{2}, u(3);", []),
        ("const int i = 3; x[0] = i; return; f<3>(x); std::swap(a, b);", []),
        ("for (int i; i < 3;) x[i] = 0;", []),
        ("extern __shared__ float c[]; __shared__ int n; static int m;", []),
        ("cg::thread_block &b = block; delete p; goto end;", []),
        ("/* float a; */ // float b;", []),
        ("#define D float a;\n", []),
    ],
)
def test_variables_without_a_value(declaration, names):
    assert re.findall(r'unset\(\w+, "(\w+)"\);', inside(declaration)) == names


def test_member_templates_are_named_as_in_cpp():
    text = "template <class T> void f(int x) { T::g<1, 2>(x); T::h < x > (x); T::N < 2; }\n"
    assert "T::template g<1, 2>(x)" in rewritten(text, {})
    assert rewritten("void f() { T::g<1>(2); }", {}) == "void f() { T::g<1>(2); }"


def test_functions_of_the_host_stay():
    text = "void f() { float x; }\nint main() { int n; }\n__device__ int y[3];\n"
    assert poisoned(text) == text
    text = "static constexpr __device__ int f(int n) { int m; m = n; return m; }\n"
    assert poisoned(text) == text


@pytest.mark.parametrize(
    ("declaration", "gaps"),
    [
        ("__shared__ float a[3];", 1),
        ("__shared__ alignas(16) float a[3],\n b[4][5];", 2),
        ("__shared__ std::pair<int, float> a[3];", 1),
        ("__shared__ int n; extern __shared__ int s[];", 0),
    ],
)
def test_arrays_in_shared_memory_have_gaps(declaration, gaps):
    rewritten = inside(declaration)
    names = re.findall(r"KW_GAP\((\w+)\)", rewritten)
    assert len(names) == len(set(names)) == gaps
    if gaps == 2:
        assert "; __shared__ alignas(16) float \n b[4][5];" in re.sub(
            r" KW_\w+\(\w+\);", "", rewritten
        )


def test_clusters_of_a_kernel():
    text = "template <int N> __global__ void __cluster_dims__(N / 2, 1, 1) k(int *x) {}\n"
    assert attributes_of([text]) == {"k": "kw::program::InClusters{N / 2, (1) * (1)}, "}
    source = rewritten(
        "k<4><<<8, 32>>>(x);", kernels_of(text), {"k": "kw::program::InClusters{2}, "}
    )
    assert "kw::program::InClusters{2}, 8, 32" in source


def test_operands_that_macros_make_are_read_after_the_preprocessor():
    text = 'asm volatile("x %0;" : OUT(a) : IN);\nasm("y %0;" : LETTER(a));\nasm(Z);'
    assert rewritten(text, {}, macros={"OUT"}) == (
        'KwAsm volatile("x %0;" : OUT(a) : IN);\n'
        'kw::ptx::statement([] { return "y %0;"; }, __FILE__, __LINE__, '
        "kw::ptx::operand(LETTER, (a)));\nKwAsm(Z);"
    )
    its = '# 7 "k.cu"\nf(); KwAsm volatile("x %0;"\n# 9 "k.cu"\n : "=r"(a) : "r"(b)); g();\n'
    assert asm.preprocessed(its) == (
        '# 7 "k.cu"\nf(); kw::ptx::statement([] { return "x %0;"; }, __builtin_FILE(), '
        '__builtin_LINE(), kw::ptx::operand("=r", (a)), kw::ptx::operand("r", (b)))\n'
        '# 9 "k.cu"\n; g();\n'
    )
    theirs = '# 1 "a/cuda/__ptx/b.h" 3\nasm ("y;" ::: "memory");\n# 2 "k.cu"\nasm("y;");\n'
    source = asm.preprocessed(theirs)
    assert 'return "y;"' in source and source.endswith('# 2 "k.cu"\nasm("y;");\n')
