"""Projects as their makefiles build them: -D, -I and -std, a named file without `main`, files of
sibling folders, and files that vanish."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.program import build, project, sources
from kernelwright.emulator.program.sizes import work_sizes
from kernelwright.support.errors import CompileError, UsageError

runs = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


def files(folder, texts):
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_macros_as_directives():
    options = program.options(["N=512", "DEBUG", "F(x)=x + 1", "EMPTY="], [], "")
    assert options.text() == "#define N 512\n#define DEBUG 1\n#define F(x) x + 1\n#define EMPTY \n"
    assert options.command() == ["-DN=512", "-DDEBUG=1", "-DF(x)=x + 1", "-DEMPTY="]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ((["3x"], [], ""), "-D 3x: is not NAME or NAME=VALUE"),
        ((["THRUST_DEVICE_SYSTEM=2"], [], ""), "-D THRUST_DEVICE_SYSTEM=2: the emulator defines"),
        (([], [Path("/no/such")], ""), "-I /no/such: there is no such folder"),
        (([], [], "f77"), "-std f77: choose from"),
    ],
)
def test_options_without_meaning(given, why):
    with pytest.raises(UsageError, match=why):
        program.options(*given)


@pytest.mark.parametrize(
    ("standard", "flag"), [("c++11", "gnu++17"), ("c++20", "gnu++20"), ("gnu++2b", "gnu++2b")]
)
def test_standards(standard, flag):
    assert program.options([], [], standard).standard == flag
    newer = {Path("a.cu"): "#include <span>\n"}
    assert build._flags("fast", newer, program.options([], [], standard))[-1].startswith("-I")
    assert f"-std={flag}" in build._flags("fast", newer, program.options([], [], standard))


def test_headers_of_given_folders_come_first(tmp_path):
    files(tmp_path, {"p/include/a.h": "", "given/a.h": "", "p/main.cu": "#include <a.h>\n"})
    source = tmp_path / "p" / "main.cu"
    given = program.options([], [tmp_path / "given"], "")
    assert list(sources.own_files(source)) == [source, tmp_path / "p" / "include" / "a.h"]
    assert list(sources.own_files(source, given)) == [source, tmp_path / "given" / "a.h"]


def test_macros_do_not_reach_the_headers_of_the_emulator(tmp_path):
    source = tmp_path / "a.cu"
    text = "#include <cooperative_groups.h>\n#include <stdio.h>\n#include <cub/cub.cuh>\n"
    given = program.options(["N=8", "LIB_FLAG"], [], "")
    rewritten = sources.rewritten_files({source: text}, source, given)
    assert list(rewritten) == ["000_a.cu", "kw_cooperative_groups_h.h", "kw_cub_cub_cuh.h"]
    assert '#pragma push_macro("N")\n#undef N\n#include <kw_cub.h>' in rewritten["kw_cub_cub_cuh.h"]
    assert "LIB_FLAG" not in rewritten["kw_cub_cub_cuh.h"]


def test_bounds_of_launches_by_a_given_macro(tmp_path):
    source = tmp_path / "a.cu"
    text = "__global__ void __launch_bounds__(THREADS) k(int *x) {}\nint main() { k<<<1, 1>>>(0); }"
    given = program.options(["THREADS=128"], [], "")
    assert "Bounded{THREADS}" in sources.rewritten_files({source: text}, source, given)["000_a.cu"]
    assert "Bounded" not in sources.rewritten_files({source: text}, source)["000_a.cu"]


def test_files_of_sibling_folders(tmp_path):
    files(
        tmp_path,
        {
            "p/.git/HEAD": "",
            "p/app/main.cu": "void f();\nint main() { f(); }\n",
            "p/kernels/f.cu": "void f() {\n}\n",
            "p/kernels/test.cu": "int main() {}\n",
            "p/.hidden/g.cu": "",
            "other/f.cu": "void f() {\n}\n",
        },
    )
    main, kernel = tmp_path / "p" / "app" / "main.cu", tmp_path / "p" / "kernels" / "f.cu"
    assert sources.candidate_units(main) == (kernel,)
    assert sources.program_of(kernel) == main
    assert project.sibling_folders(kernel) == (tmp_path / "p" / "app",)


def test_a_file_that_vanishes_during_a_build(tmp_path, monkeypatch):
    """A file beside the source is listed, and gone when it is read."""
    files(tmp_path, {"main.cu": "int main() {}\n", "gone.cu": "int g() {\n}\n"})
    source, gone = tmp_path / "main.cu", tmp_path / "gone.cu"
    listed = project.files_of

    def then_gone(folder):
        files = listed(folder)
        gone.unlink(missing_ok=True)
        return files

    monkeypatch.setattr(sources, "files_of", then_gone)
    units = sources.candidate_units(source)
    assert gone in units and not gone.exists()
    assert not sources.defines(gone, "g")
    assert sources.called_units(sources.own_files(source), units) == []


@pytest.mark.long
@runs
def test_a_program_as_its_makefile_builds_it(tmp_path):
    files(
        tmp_path,
        {
            "p/main.cu": "#include <cooperative_groups.h>\n#include <cub/cub.cuh>\n"
            '#include "size.h"\n'
            "__global__ void k(int *x) { x[threadIdx.x] = N; }\n"
            "int main() { int *x; cudaMallocManaged(&x, 4 * N); k<<<1, N>>>(x);\n"
            "  cudaDeviceSynchronize();\n"
            "  if constexpr (__cplusplus < 202002L) return 3;\n"
            "  return x[SIZE - 1] != 64; }\n",
            "given/size.h": "#define SIZE N\n",
        },
    )
    command = ["run", str(tmp_path / "p" / "main.cu"), "-DN=64", "-I", str(tmp_path / "given")]
    start = [sys.executable, "-m", "kernelwright", *command]
    done = subprocess.run([*start, "-std=c++20"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([*start, "-std=c++17"], capture_output=True).returncode == 3


@pytest.mark.long
@runs
def test_a_named_file_is_part_of_the_program(tmp_path):
    """Its errors are those of the build, although the program calls nothing of it under #if."""
    files(
        tmp_path,
        {
            "main.cu": "void f();\nint main() {\n#ifdef ALL\n  f();\n#endif\n}\n",
            "k.cu": "__global__ void k() {}\nvoid f() {\n  wrong();\n}\n",
        },
    )
    assert program.run(tmp_path / "main.cu").code == 0
    with pytest.raises(CompileError, match=r"k\.cu:3: "):
        program.run(tmp_path / "k.cu")


def test_names_that_decide_the_work():
    text = (
        "#define N (1 << 12)\n#define SMALL 8\n#define ALL N * N\n#define TEXT name\n"
        "const int steps = 1000; void f() { size_t bytes = 3ull * N, other = g(); int q = 1 / 2; }"
    )
    assert work_sizes([text]) == "ALL (16777216), bytes (12288), N (4096), steps (1000)"
    assert work_sizes(["int n = 3, m = 1 << 999999999;\n#define FACE face\nint k = bad + 1;"]) == ""


@pytest.mark.long
@runs
def test_a_launch_longer_than_the_limit_ends_the_program(tmp_path):
    file = tmp_path / "long.cu"
    file.write_text(
        "#define STEPS 2000000000\n"
        "__global__ void k(float *x) {\n"
        "  float s = 0; for (int i = 0; i < STEPS; ++i) s = s * x[1] + i; x[0] = s; }\n"
        "int main() { float *x; cudaMalloc(&x, 64); cudaMemset(x, 0, 64);\n"
        "  k<<<1 << 20, 1>>>(x);\n  return cudaDeviceSynchronize(); }\n"
    )
    ran = program.run(file, limit=20)
    (note,) = ran.notes
    assert ran.code == 1 and ran.failed
    assert note.text.startswith("long.cu:5: k: after ") and "longer than --limit" in note.text
    assert "smaller values of STEPS (2000000000) make it shorter" in note.text


def test_running_a_program_does_not_import_pytorch():
    modules = "cli.running, workbench.run_program.run_program, workbench.run_program.on_gpu"
    names = ", ".join(f"kernelwright.{m.strip()}" for m in modules.split(","))
    code = f"import sys, {names}, kernelwright.cli.render.programs; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
