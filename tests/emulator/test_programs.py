"""Whole CUDA programs: the rewriter on text; programs that use every construct of docs/run.md;
planted faults and the checks that find them."""

import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.checks import CHECKS
from kernelwright.emulator.program import build, errors, lockstep, project, sources
from kernelwright.emulator.program.loops.program_index import ProgramIndex, synchronizing_name
from kernelwright.emulator.program.rewrite import kernels_of, rewritten
from kernelwright.emulator.program.side_effects import have_side_effects
from kernelwright.emulator.program.tokens import tokens
from kernelwright.support.errors import CompileError, UsageError
from support.paths import FIXTURES, ROOT

PROGRAMS = FIXTURES / "programs"
runs = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
watched = pytest.mark.skipif(bool(emulator.missing("watched")), reason="nothing is watched here")


def one_line(text):
    return rewritten(text, kernels_of(text))


@pytest.mark.parametrize(
    ("launch", "callee", "configuration"),
    [
        ("k<<<g, b>>>(x);", "k", "g, b"),
        ("k<T, (a > b)><<<g, b, n * 4, s>>>(x);", "k<T, (a > b)>", "g, b, n * 4, s"),
        ("k<B<2>><<<n >> 1, 1 << m>>>(x);", "k<B<2>>", "n >> 1, 1 << m"),
        ("a::b<int>::k << <g, b >> > (x);", "a::b<int>::k", "g, b"),
        ("table[i + 1]<<<dim3(1, (2)), b>>>(x);", "table[i + 1]", "dim3(1, (2)), b"),
        ("(*p)<<<g, b>>>(x);", "(*p)", "g, b"),
        ("this->k<<<g, b>>>(x);", "this->k", "g, b"),
        ("s.template k<3><<<g, b>>>(x);", "s.template k<3>", "g, b"),
        ("name_##k<<<g, b>>>(x);", "name_##k", "g, b"),
    ],
)
def test_a_launch_is_found(launch, callee, configuration):
    rewritten = one_line(f"if (yes) {launch} return;")
    assert f"({callee}(kw_a...))" in rewritten
    assert configuration.split(",")[0] in rewritten
    assert "<<<" not in rewritten.replace("<< <", "<<<")
    assert rewritten.endswith("return;")


@pytest.mark.parametrize(
    "text",
    ['f("k<<<1, 2>>>(x)");', "// k<<<1, 2>>>(x)\n", "a = b << c << d;", 'R"(k<<<1,1>>>(x))"'],
)
def test_what_is_no_launch_stays(text):
    assert one_line(text) == text


def test_lines_keep_their_numbers():
    text = (
        "#define RUN(k) \\\n  k<<<1, \\\n    2>>>(x)\n"
        'void f() { asm volatile("a;\\n"\n  "b;" : "=r"(x)\n : "r"(y)\n : "memory"); }\n'
        "g<<<1,\n  2>>>(x);\nend"
    )
    lines = one_line(text)
    assert lines.count("\n") == text.count("\n")
    assert lines.splitlines()[-1] == "end"


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ('asm("x %0;" : "=r"(a) : "r"(b), "n"(3));', '("=r", (a)), kw::ptx::operand("r", (b))'),
        ('asm volatile("x;" ::: "memory");', 'return "x;"; }, __FILE__, __LINE__)'),
        ('asm("x;" :: "r"(n::f(a, b)));', 'operand("r", (n::f(a, b)))'),
        ('asm("a;"\n#if X\n"b;"\n#endif\n: "=r"(c));', "#endif\n; }, __FILE__"),
        ('asm("x;" : : "r"(a) "r"(b));', 'operand("r", (a)), kw::ptx::operand("r", (b))'),
    ],
)
def test_asm_statements(statement, expected):
    assert expected in one_line(statement)


def test_a_symbol_named_by_asm_stays():
    text = 'extern int x asm("other");'
    assert one_line(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("__shared__ alignas(16) float x[4];", "alignas(16) __shared__  float x[4];"),
        ("static __shared__ alignas(T) char y[3];", "alignas(T) static __shared__  char y[3];"),
        ("alignas(8) __shared__ int z;", "alignas(8) __shared__ int z;"),
        ("struct alignas(16) S {};", "struct alignas(16) S {};"),
    ],
)
def test_alignment_stands_first(text, expected):
    assert one_line(text) == expected


VOLATILE = """
typedef volatile int Hidden;
#define SET(s, x) s[t] = x
struct S { Hidden v[2]; volatile float w; };
__device__ volatile int g[2], *p;
__global__ void k(S *x, float *y, Hidden *z, int n = 3) {
  int a[2] = {1, 2}, b = y[0], *c = a;
  x->v[1] += g[0] + (*p)++, x->w = 1;
  if (n) *p++ = z[1]; else *(volatile float *)y = b;
  for (int i = 0; i < n; ++i) y[i] <<= z[i] == 2 ? 3 : 4;
  float *d = (float *)malloc(4), e[] = {0, 1}; ++g[1];
  asm volatile("x %0;" : "=r"(a[0]));
}
"""


def test_accesses_to_volatile_memory_are_marked():
    words = lockstep.volatile_words([VOLATILE])
    assert words - set(lockstep.VOLATILE) == {"Hidden"}
    names = lockstep.volatile_names(tokens(VOLATILE), words)
    assert names >= {"v", "w", "g", "p", "z"}
    assert lockstep.volatile_names_outside(tokens(VOLATILE), words) == ({"g", "p"}, {"v", "w"})
    source = rewritten(VOLATILE, {}, None, names)
    places = re.findall(r"KwLockstep\(((?:[^()]|\([^()]*\))*)\)", source)
    assert places == ["s[t]", "x->v[1]", "(*p)", "x->w", "*KwLockstep(p)++", "*(volatile float *)y",
                      "y[i]", "g[1]"]  # fmt: skip
    read = set(re.findall(r"KwRead\(([^()]*)\)", source))
    assert read - {"n"} == {"g[0]", "z[1]", "z[i]"}
    assert "#define SET(s, x) KwLockstep(s[t]) = (KwBeforeWrite(s[t]), x)\n" in source
    assert not lockstep.volatile_words(['asm volatile("x;");\n#define NOP asm volatile("")\n'])


def test_the_size_of_a_tile_is_unsigned():
    source = one_line(
        "template <typename T, int N> T f(thread_block_tile<N> a, thread_block_tile<N> b);"
    )
    assert source.startswith("template <typename T, unsigned N> T f(")
    other = "template <int N> void f(thread_block_tile<32> t);"
    assert one_line(other) == other


def test_kernels_are_known_by_their_signatures():
    text = """
    template <typename T> __global__ void a(T *x) {}
    __global__ void __launch_bounds__(256, 2) b(int *x);
    extern "C" __global__ void c(int n = 3) {}
    __global__ void d(int) {}
    __global__ void d(float) {}
    """
    assert kernels_of(text) == {"a": False, "b": True, "c": False, "d": False}


def run(name, *arguments, **how):
    code = (
        "import sys; from pathlib import Path; from kernelwright.emulator import program\n"
        f"r = program.run(Path({str(PROGRAMS / name)!r}), {list(arguments)!r}, **{how!r})\n"
        "print(r.notes); sys.exit(r.code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@runs
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("host_side.cu", ("1", "two words")),
        ("device_side.cu", ()),
        ("inline_ptx.cu", ()),
        pytest.param("cub_side.cu", (), marks=pytest.mark.long),  # runs under the checks too
        ("libraries.cu", ()),
        ("older.cu", ()),
    ],
)
def test_constructs(name, arguments):
    how = {"gpu": "a100"} if name == "host_side.cu" else {}
    code, out, err = run(name, *arguments, **how)
    assert "wrong" not in out, out
    assert code == 0, err
    assert out.count(": ok") == (PROGRAMS / name).read_text().count("CHECK(")


@pytest.mark.long
@runs
def test_forms_of_volatile_memory():
    code, out, err = run("volatile_forms.cu")
    assert code == 0 and "wrong" not in out, (out, err)
    assert out.count(": ok") == (PROGRAMS / "volatile_forms.cu").read_text().count("SHOW(")


@runs
def test_programs_that_measure():
    code, out, err = run("measured.cu")
    assert "wrong" not in out, out
    assert code == 0, err
    assert out.count(": ok") == (PROGRAMS / "measured.cu").read_text().count("CHECK(")
    notes = {(kind, text) for kind, text in re.findall(r"kind='(\w+)', text='([^']*)'", out)}
    repeated = {text for kind, text in notes if kind == "repeated"}
    assert "same" in repeated and "grows" not in repeated
    (past,) = (text for kind, text in notes if kind == "past")
    assert re.search(r"measured\.cu:37.*past the end of the 16 bytes allocated at .*cu:127", past)


def test_kernels_that_do_more_than_write_memory():
    quiet = "__global__ void k(int *x) { *x = 1; }\nint main() { printf(0); new int; }\n"
    assert not have_side_effects([quiet, "#define SAY(x) printf(x)\nvoid f() { SAY(0); }"])
    assert not have_side_effects(
        ["struct S { __device__ S &operator=(int) { return *this; } int f() { new S; }}"]
    )
    for word in ("printf(0)", "new int", "free(x)", "clock64()", 'asm("mov %0, %clock;")', "SAY"):
        kernel = f"__global__ void k(int *x) {{ if (*x) {{ {word}; }} }}"
        assert have_side_effects(["#define SAID printf(0)\n#define SAY SAID\n", kernel]), word
    assert have_side_effects(
        ["#define HD __host__ __device__\nHD T operator=(int x) { printf(0); }"]
    )


def test_a_copy_of_a_header_of_the_toolkit_is_not_read(tmp_path):
    (tmp_path / "vector_types.h").write_text("/* NOTICE TO LICENSEE: */\n#error old\n")
    source = tmp_path / "a.cu"
    source.write_text('#include "vector_types.h"\n#include "common_functions.h"\nint main() {}\n')
    assert list(sources.own_files(source)) == [source]
    (tmp_path / "common_functions.h").write_text("// its own\n")
    assert list(sources.own_files(source)) == [source, tmp_path / "common_functions.h"]


@watched
def test_planted_faults_are_found():
    findings = program.run(PROGRAMS / "faults.cu", check=tuple(CHECKS)).findings
    lines = (PROGRAMS / "faults.cu").read_text().splitlines()
    told: dict[tuple[str, int], list[str]] = {}
    for f in findings:
        for n in re.findall(r"faults.cu:(\d+)", f.text):
            told.setdefault((f.check, int(n)), []).append(f.text)
    for number, line in enumerate(lines, 1):
        planted = re.search(r"// finds (\w+)(?:: (.*))?", line)
        if planted:
            those = told.get((planted[1], number), [])
            assert any((planted[2] or "") in text for text in those), (line, told)
    same = [f.text for f in findings if "the same value" in f.text]
    assert len(same) == 1
    assert "*out = 7" in lines[int(re.search(r":(\d+)", same[0])[1]) - 1]


@watched
def test_right_programs_have_no_findings():
    for name in ("right_styles.cu", "inline_ptx.cu", "device_side.cu", "cub_side.cu"):
        ran = program.run(PROGRAMS / name, check=tuple(CHECKS))
        assert ran.code == 0 or name == "device_side.cu"  # of which a part counts on lockstep
        findings = ran.findings
        allowed = [f for f in findings if "implicit" not in f.text]
        own = (PROGRAMS / name).read_text().splitlines()
        for f in allowed:
            line = own[int(re.search(r"\.cu:(\d+)", f.text)[1]) - 1]
            assert "s[t]" in line, f.text  # the warp-synchronous code is a race


@pytest.mark.long
@runs
def test_mma_has_the_bits_of_an_h200():
    code = (
        "import sys; from pathlib import Path; from kernelwright.emulator import program\n"
        f"sys.exit(program.run(Path({str(ROOT / 'tools' / 'mma_probe.cu')!r})).code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    recorded = (FIXTURES / "emulated" / "mma_h200.txt").read_text().splitlines()
    assert [line.strip() for line in done.stdout.splitlines()] == recorded


def test_a_file_without_main_is_run_by_the_program_that_uses_it(tmp_path):
    assert sources.program_of(PROGRAMS / "beside.cu") == PROGRAMS / "libraries.cu"
    assert sources.program_of(PROGRAMS / "older.cu") == PROGRAMS / "older.cu"
    (tmp_path / "k.cu").write_text("// not main()\nvoid f(int *x) {\n}\nstatic void g() {\n}\n")
    (tmp_path / "a.cpp").write_text("void f(int *);\nint main() { f(0); }\n")
    (tmp_path / "b.cpp").write_text("static void g();\nint main() { g(); }\n")
    assert sources.program_of(tmp_path / "k.cu") == tmp_path / "a.cpp"
    (tmp_path / "c.cu").write_text('#include "k.cu"\nint main() {}\n')
    with pytest.raises(UsageError, match=r"run one of those that use it: a\.cpp, c\.cu"):
        sources.program_of(tmp_path / "k.cu")


def test_a_copy_of_a_library_of_the_toolkit_is_not_read(tmp_path):
    source = tmp_path / "a.cu"
    for name in ("cub/cub.cuh", "thrust/sort.h", "cuda/std/atomic", "cub/own.h"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    source.write_text(
        '#include "cub/cub.cuh"\n#include <thrust/sort.h>\n#include <cuda/std/atomic>\n'
        '#include "cub/own.h"\n'
    )
    assert list(sources.own_files(source)) == [source, tmp_path / "cub/own.h"]


def test_headers_are_found_in_the_whole_project(tmp_path):
    (tmp_path / "README.md").write_text("")
    for folder in ("a/deep", "b/deep", "bench/cuda"):
        (tmp_path / folder).mkdir(parents=True)
        for name in ("common.h", "stdio.h"):
            (tmp_path / folder / name).write_text("")
    (tmp_path / "a" / "deep" / "only.cuh").write_text("")
    source = tmp_path / "bench" / "main.cu"
    source.write_text(
        '#include "only.cuh"\n#include "stdio.h"\n#include "common.h"\n#include "deep/common.h"\n'
    )
    assert list(sources.own_files(source)) == [
        source,
        tmp_path / "bench" / "cuda" / "common.h",  # the nearest of three
        tmp_path / "a" / "deep" / "only.cuh",
    ]


@pytest.mark.parametrize(
    ("files", "root"),
    [
        (("a/b/.git", "a/b/c/Makefile", "a/Makefile"), "a/b"),  # the nearest repository
        (("a/CMakeLists.txt", "a/b/c/Makefile", "other.c"), "a"),  # the highest build file
        (("a/b/other.c",), "a/b/c"),  # neither
        (("README.md",), "a/b/c"),  # above the temporary folder
    ],
)
def test_the_project_of_a_source(tmp_path, monkeypatch, files, root):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "a" / "b" / "c" / "src").mkdir(parents=True)
    for file in files:
        (tmp_path / file).write_text("")
    for source in ("main.cu", "src/main.cu"):  # a folder named src is a part of a project
        path = tmp_path / "a" / "b" / "c" / source
        assert project.root(path) == tmp_path / root
        assert set(project.include_folders(path)) <= {
            tmp_path / root,
            *(tmp_path / root).rglob("*"),
        }


def test_a_program_in_the_temporary_folder_is_its_own_project(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "Makefile").write_text("")
    assert project.root(tmp_path / "tmp" / "main.cu") == tmp_path / "tmp"


def test_files_of_others_that_appear_and_vanish_do_not_matter(tmp_path):
    """Compilers of other programs write temporary .c files into folders above, or the same one."""
    folder = tmp_path / "include"
    folder.mkdir()
    source = folder / "main.cu"
    source.write_text('#include "of_others.h"\nint main() {}\n')
    stop = threading.Event()

    def others():
        while not stop.is_set():
            for file in (tmp_path / "t.cdtor.c", folder / "t.cdtor.c", folder / "of_others.h"):
                file.write_text("void f() {\n}\n")
            for file in (tmp_path / "t.cdtor.c", folder / "t.cdtor.c", folder / "of_others.h"):
                file.unlink()

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(200):
            files = sources.own_files(source)
            assert sources.program_of(source) == source
            assert sources.called_units(files, sources.candidate_units(source)) == []
            assert sources.rewritten_files(files, source)
    finally:
        stop.set()
        thread.join()


def test_files_beside_the_headers_of_other_files(tmp_path):
    (tmp_path / "kernels").mkdir()
    for file, text in {
        "main.cu": '#include "sort.h"\nint main() {}\n',
        "sort.h": "void sort();\n",
        "sort.cu": '#include "kernels/merge.h"\n',
        "kernels/merge.h": "",
        "kernels/merge.cu": "",
        "kernels/test.cu": "int main() {}\n",
    }.items():
        (tmp_path / file).write_text(text)
    files = [p for p in sources.candidate_units(tmp_path / "main.cu") if tmp_path in p.parents]
    assert files == [tmp_path / "sort.cu", tmp_path / "kernels" / "merge.cu"]


def test_types_that_stand_for_classes_of_cub_synchronize():
    text = (
        "using Scan = cub::BlockScan<int, 64>;\ntypedef cub::WarpReduce<int> Sum;\nusing T = int;"
    )
    index = ProgramIndex([text])
    assert index.synchronizing_types.keys() == {"Scan", "Sum"}
    assert synchronizing_name(index.expanded(tokens("Scan(s).ExclusiveSum(x, y);"))) == "cub"
    assert synchronizing_name(index.expanded(tokens("T(s);"))) is None


def test_names_that_the_linker_misses():
    log = (
        "undefined reference to `void n::f<std::vector<int> >(int, g())'\n"
        "undefined reference to `cuInit'\nundefined reference to `n::x'\n"
    )
    assert errors.missing_names(log) == {"f", "cuInit", "x"}


def test_a_program_of_a_newer_standard_gets_it(tmp_path):
    newer = {tmp_path / "a.cu": "#include <span>\n"}
    assert "-std=gnu++20" in build._flags("fast", newer)
    assert "-std=gnu++20" not in build._flags("fast", {tmp_path / "a.cu": "int span;\n"})


def test_a_file_without_main_says_what_to_do(tmp_path):
    file = tmp_path / "kernel.cu"
    file.write_text("__global__ void k(int *x) { *x = 1; }\n")
    with pytest.raises(UsageError, match="has no function main"):
        program.run(file)


@runs
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('asm volatile("wgmma.mma_async.sp.sync.aligned;");', "warpgroup matrix products"),
        ('asm volatile("frobnicate.b32 %0, 1;" : "=r"(*x));', "frobnicate.b32 %0, 1"),
        ("cudaDeviceSynchronize();", "cudaDeviceSynchronize is called in a kernel"),
        ("assert(threadIdx.x == 1);", "assertion `threadIdx.x == 1` failed"),
    ],
)
def test_what_is_not_emulated_is_named(tmp_path, text, said):
    file = tmp_path / "kernel.cu"
    file.write_text(
        "__global__ void inner(int *x) { *x = 1; }\n"
        f"__global__ void k(int *x) {{ {text} }}\n"
        "int main() { int *x; cudaMalloc(&x, 4); k<<<1, 1>>>(x);\n"
        "  return cudaDeviceSynchronize() == cudaSuccess; }\n"
    )
    result = program.run(file)
    assert result.code == 0
    assert said in result.notes[0].text
    assert "kernel.cu:2" in result.notes[0].text


BINDING = """
#include <cuda_runtime.h>
#include <torch/extension.h>
#include <vector>
#define CHECK_TYPE(t, type) \\
  if (t.dtype() != type) throw std::runtime_error("type")
#define BIND(name) torch::Tensor name(torch::Tensor x) { CHECK_TYPE(x, torch::kFloat); return x; }
namespace n {
struct Pair { float a, b; };
__device__ float first(Pair p) { return p.a; }
static const int table[2] = {1, 2};
template <typename T> __global__ void k(T *x) { x[0] = first({3, 4}) + table[1]; }
void launch(torch::Tensor x) {
  k<float><<<1, 1>>>(x.data_ptr<float>());
}
}
BIND(one)
BIND(two)
__global__ void after(float *x) { x[0] *= 2; }
static void of_tensors(const std::vector<at::Tensor> &all) {}
int main() {
  float *x;
  cudaMallocManaged(&x, 4);
  n::k<float><<<1, 1>>>(x);
  after<<<1, 1>>>(x);
  cudaDeviceSynchronize();
  return x[0] == 10 ? 0 : 1;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("one", &one); }
"""


def test_bindings_to_pytorch_are_taken_out():
    source = one_line(BINDING)
    assert "orch" not in re.sub(r"#define.*", "", source)
    assert source.count("\n") == BINDING.count("\n")
    for kept in ("struct Pair", "first(", "table[2]", "void k(T *x)", "after(float *x)", "main()"):
        assert kept in source


@pytest.mark.long
@runs
def test_kernels_of_an_extension_run(tmp_path):
    file = tmp_path / "bound.cu"
    file.write_text(BINDING)
    assert program.run(file).code == 0


@runs
def test_a_function_that_is_missing_is_named(tmp_path):
    file = tmp_path / "p.cu"
    file.write_text("int main() { cudaIpcCloseMemHandle(0); }\n")
    with pytest.raises(CompileError, match="the emulator has no cudaIpcCloseMemHandle"):
        program.run(file)
    assert Path(file).exists()


def test_the_table_of_constructs_is_up_to_date():
    from tools import construct_table

    text = construct_table.PAGE.read_text()
    assert construct_table.page(text) == text


@pytest.mark.long
@pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
def test_positions_extents_and_pitched_pointers(tmp_path):
    source = tmp_path / "positions.cu"
    source.write_text(
        "int main() {\n"
        "  cudaPos p = make_cudaPos(1, 2, 3);\n"
        "  cudaExtent e = make_cudaExtent(4, 5, 6);\n"
        "  cudaPitchedPtr q = make_cudaPitchedPtr(&p, 7, 8, 9);\n"
        "  return !(p.x == 1 && p.y == 2 && p.z == 3 && e.width == 4 && e.height == 5 &&\n"
        "           e.depth == 6 && q.ptr == &p && q.pitch == 7 && q.xsize == 8 && q.ysize == 9);\n"
        "}\n"
    )
    assert program.run(source).code == 0
