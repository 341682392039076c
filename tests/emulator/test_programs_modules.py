"""Modules of the driver API and NVRTC in whole programs."""

import os
import subprocess

import pytest

from kernelwright import emulator
from kernelwright.emulator import program
from kernelwright.emulator.program import build, module
from kernelwright.support.errors import UsageError
from support.paths import FIXTURES

PROGRAMS = FIXTURES / "programs"
runs = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))


@pytest.mark.parametrize(
    "file",
    ["module_kernel.ptx", "module_kernel64.fatbin", "data/module_kernel_sm_90.cubin",
     "module_kernel_sm90a.cubin", "module_kernel.fatbin"],
)  # fmt: skip
def test_machine_code_is_built_from_the_source_of_its_name(file):
    source = module._source_of(file, PROGRAMS / "modules.cu")
    assert source == PROGRAMS / "module_kernel.cu"


def test_machine_code_without_a_source_is_refused():
    with pytest.raises(UsageError, match=r"no other64\.cu or other\.cu to build"):
        module._source_of("other64.ptx", PROGRAMS / "modules.cu")


def test_options_of_nvrtc():
    given = ["-arch=sm_80", "-DA", "-D", "B=2", "--define-macro=C=3", "-I.", "--std=c++20"]
    options = module._options([*given, "--use_fast_math", "-default-device", "-lineinfo", ""])
    assert dict(options.defines) == {"A": "1", "B": "2", "C": "3"}
    assert options.standard == "gnu++20" and len(options.includes) == 1
    with pytest.raises(UsageError, match="--other: NVRTC has no such option"):
        module._options(["--other"])


def test_the_kernels_of_a_module():
    text = """
    namespace a::b { __global__ void one(int *x) { if (x) { x[0] = 1; } } }
    extern "C" { __global__ void two() {} }
    template <typename T> __global__ void many(T x) {}
    namespace { __global__ void three(); }
    """
    assert list(module._plain_kernels(text)) == ["a::b::one", "two"]


@runs
@pytest.mark.long
def test_modules_and_nvrtc(capfd):
    source = PROGRAMS / "modules.cu"
    ran = program.run(source)
    out = capfd.readouterr().out
    assert ran.code == 0 and not ran.failed, (out, ran.notes)
    assert out.count(": ok") == source.read_text().count("CHECK(")


@runs
@pytest.mark.long
def test_faults_in_modules_name_their_line(tmp_path):
    source = tmp_path / "late.cu"
    source.write_text(
        "#include <cuda.h>\n#include <nvrtc.h>\n#include <vector>\n"
        'const char *const code = R"(extern "C" __global__ void k(int *x) {\n'
        '  x[threadIdx.x << 24] = 1;\n}\n)";\n'
        "int main() {\n"
        "  nvrtcProgram p; CUmodule m; CUfunction f; CUdeviceptr x; size_t n;\n"
        '  nvrtcCreateProgram(&p, code, "k.cu", 0, 0, 0);\n'
        "  nvrtcCompileProgram(p, 0, 0); nvrtcGetPTXSize(p, &n);\n"
        "  std::vector<char> image(n); nvrtcGetPTX(p, image.data());\n"
        '  cuModuleLoadData(&m, image.data()); cuModuleGetFunction(&f, m, "k");\n'
        "  cuMemAlloc(&x, 16); void *arguments[] = {&x}; int y;\n"
        "  cuLaunchKernel(f, 1, 1, 1, 5, 1, 1, 0, 0, arguments, 0);\n"
        "  return cuMemcpyDtoH(&y, x, 4);\n}\n"
    )
    findings = program.run(source, check=("bounds",)).findings
    assert [f.text.split(":")[:2] for f in findings] == [["k.cu", "2"]]
    ran = program.run(source)
    assert any("k.cu:2" in n.text for n in ran.notes), ran.notes


@runs
def test_a_file_that_is_missing_below_a_folder_named_like_a_header(tmp_path):
    """Neither the program's own file nor those of the emulator's settings are headers."""
    folder = tmp_path / "tmp.hY2"
    folder.mkdir()
    source = folder / "missing.cu"
    source.write_text(
        '#include <cstdio>\nint main(int, char **given) { return fopen(given[1], "r") ? 1 : 0; }\n'
    )
    done = subprocess.run(
        [build.program(source, "fast"), folder / "none.txt"],
        env={**os.environ, "KERNELWRIGHT_RUN": str(folder)},
    )
    assert done.returncode == 0
