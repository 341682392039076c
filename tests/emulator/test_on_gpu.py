"""`run --gpu` without a GPU: how a program is built, and what is missing."""

import os

import pytest

from kernelwright.support.errors import CompileError, ToolchainError, UsageError
from kernelwright.toolchain import tools
from kernelwright.workbench.run_program import on_gpu

#: Stands for nvcc: what it "builds" prints the command line and ends with an exit code.
NVCC = """#!/bin/sh
case "$1" in
  --version) echo "Cuda compilation tools, release 13.0, V13.0.88"; exit;;
  --list-gpu-code) echo sm_80; echo sm_90; exit;;
esac
case "$*" in
  *two.cu*) ;;
  *one.cu*) echo "ld: undefined reference to \\`helped(int)'" >&2; exit 1;;
  *wrong.cu*) echo 'wrong.cu(3): error: expected a ";"'; exit 2;;
esac
words="$*"
while [ "$1" != "-o" ]; do shift; done
printf '#!/bin/sh\\necho "%s" "$@"\\nexit 7\\n' "$words" > "$2"
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    home = tmp_path / "toolkit"
    (home / "bin").mkdir(parents=True)
    tool = home / "bin" / "nvcc"
    tool.write_text(NVCC)
    tool.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    monkeypatch.setenv("KW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(on_gpu, "capability", lambda: (9, 0))
    return tool


def program(folder, name, text="int main() { return 0; }\n"):
    file = folder / name
    file.write_text(text)
    return file


def test_arguments_output_and_exit_code_are_the_programs(stand_in, tmp_path, capfd):
    file = program(tmp_path, "plain.cu", "#include <cublas_v2.h>\nint main() { }\n")
    assert on_gpu.run_on_gpu(file, ["5", "a b"]) == 7
    out = capfd.readouterr().out
    assert out.endswith("5 a b\n")
    assert "-arch=sm_90a" in out
    assert "-lcublas" in out
    assert str(file) in out


def test_a_file_that_defines_what_is_missing_is_built_too(stand_in, tmp_path, capfd):
    file = program(tmp_path, "one.cu", "int helped(int);\nint main() { return helped(1); }\n")
    program(tmp_path, "two.cu", "int helped(int x) { return x; }\n")
    program(tmp_path, "other.cu", "int unrelated(int x) { return x; }\n")
    assert on_gpu.run_on_gpu(file, []) == 7
    out = capfd.readouterr().out
    assert "two.cu" in out
    assert "-rdc=true" in out
    assert "other.cu" not in out


def test_what_binds_to_pytorch_is_omitted(stand_in, tmp_path, capfd):
    text = "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) {\n return x; }\n"
    file = program(tmp_path, "bound.cu", f"{text}int main() {{ return 0; }}\n")
    unit = on_gpu._unit(tmp_path / "toolkit", file, file.read_text()).read_text()
    assert unit.startswith(f'#line 1 "{file}"\n')
    assert "torch::" not in unit
    assert unit.count("\n", 0, unit.index("int main")) == 4  # it keeps its line


def test_errors_say_what_to_do(stand_in, tmp_path, monkeypatch):
    with pytest.raises(CompileError, match=r"nvcc rejects wrong.cu:\nwrong.cu\(3\): error"):
        on_gpu.run_on_gpu(program(tmp_path, "wrong.cu"), [])
    with pytest.raises(UsageError, match="no function main"):
        on_gpu.run_on_gpu(program(tmp_path, "none.cu", "__global__ void k() {}\n"), [])
    with pytest.raises(
        ToolchainError, match=r"not build for this GPU, sm_103; it knows sm_80, sm_9"
    ):
        on_gpu.architecture(stand_in, (10, 3))
    assert on_gpu.architecture(stand_in, (8, 0)) == "sm_80"
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(ToolchainError, match=r"CUDA_HOME is .*, which has no bin/nvcc"):
        on_gpu.nvcc()
    monkeypatch.delenv("CUDA_HOME")
    monkeypatch.setattr(tools, "_candidates", lambda name: [])
    tools.find.cache_clear()
    with pytest.raises(ToolchainError, match=r"needs nvcc, .*install the CUDA toolkit"):
        on_gpu.nvcc()
    tools.find.cache_clear()


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="a GPU is here")
def test_without_a_gpu():
    with pytest.raises(ToolchainError, match="Without --gpu, the program runs in the emulator"):
        on_gpu.capability()
