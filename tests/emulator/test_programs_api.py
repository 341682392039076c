"""Functions of the host API and of libraries that whole programs call."""

import re
import subprocess

import pytest

from kernelwright import emulator
from kernelwright.emulator import build, compiler, program
from kernelwright.emulator.program import headers, sources
from support.paths import FIXTURES

pytestmark = pytest.mark.skipif(emulator.missing() is not None, reason=str(emulator.missing()))
PROGRAMS = FIXTURES / "programs"


@pytest.mark.long
def test_conversions_of_16_bits_are_those_of_nvidias_headers(tmp_path):
    """Each conversion of every number of 16 bits, and of random numbers of each other type."""
    source = FIXTURES / "emulated" / "sixteen_bits.cpp"
    nvidia = [f"-I{p}" for p in headers.toolkit_folders()]
    own = [f"-I{p}" for p in (compiler.HERE / "include", compiler.HERE)]
    printed = []
    for name, options in (("own", [*compiler.DIALECT, *own]), ("nvidia", ["-DOF_NVIDIA", *nvidia])):
        out = tmp_path / name
        command = [*compiler.command(), "-std=c++17", "-w", "-O1", *options, str(source)]
        subprocess.run([*command, str(build.runtime()), "-o", str(out)], check=True)
        printed.append(subprocess.run([str(out)], capture_output=True, text=True).stdout)
    assert printed[0].count("\n") == 118
    assert printed[0].split("\n") == printed[1].split("\n")


@pytest.mark.long
def test_the_api_of_several_toolkits_and_libraries(capfd):
    source = PROGRAMS / "api.cu"
    ran = program.run(source)
    out = capfd.readouterr().out
    assert ran.code == 0 and not ran.failed, (out, ran.notes)
    assert out.count(": ok") == source.read_text().count("CHECK(")


@pytest.mark.parametrize(
    ("header", "macro"),
    [
        ("cublas_v2.h", "CUBLAS_API_H_"),
        ("cufft.h", "_CUFFT_H_"),
        ("cusparse.h", "CUSPARSEAPI"),
        ("curand.h", "CURAND_H_"),
    ],
)
def test_programs_know_that_a_header_is_included(header, macro):
    """A project's own helper_cuda.h names the errors of a library if its macro is defined."""
    text = (headers.LIBRARIES / header).read_text()
    assert f"#define {macro}\n" in text


def test_macros_that_are_named_like_the_api_are_not_calls_of_it(tmp_path):
    """A macro may expand to a block, which is no operand."""
    (tmp_path / "check.h").write_text("#define cudaTry(call) { auto e = call; }\n")
    source = tmp_path / "a.cu"
    source.write_text(
        '#include "check.h"\n#define cudaFree(p) {}\n'
        "int main() { cudaTry(::cudaMalloc(0, 4)); cudaFree(0); cudaMemset(0, 0, 1); }\n"
    )
    rewritten = sources.rewritten_files(sources.own_files(source), source)["000_a.cu"]
    assert re.findall(r'KwUnchecked\("(\w+)"\)', rewritten) == ["cudaMemset"]
