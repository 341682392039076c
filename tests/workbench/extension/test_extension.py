"""The projects that `kernelwright extension` writes, tested without nvcc: their C++ is compiled for
its types, their Python runs, and unsupported rungs are rejected with the reason."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from kernelwright import cli
from kernelwright.dispatch import ladder
from kernelwright.support.errors import ToolchainError
from kernelwright.support.settings import PACKAGE
from kernelwright.toolchain import nvrtc
from kernelwright.workbench.extension import project
from kernelwright.workbench.extension.host import CannotExtend
from kernelwright.workbench.extension.standalone import source_of

RUNGS = (
    "softmax.cuda_block", "softmax.cuda_cluster", "sum.cuda_flagged", "rms_norm.cuda_warp",
    "embedding.cuda_vec16", "rope.cuda_vec16", "softmax.backward.cuda_warp",
)  # fmt: skip


def written(name, into, style="load", **how):
    operator, _, rung = name.rpartition(".")
    found = ladder(operator)
    project.write(found, found.rung(rung), style, into, **how)
    return into


@pytest.fixture(params=RUNGS)
def folder(request, tmp_path):
    """A project that supports one small case."""
    operator, _, rung = request.param.rpartition(".")
    found = ladder(operator)
    takes = partial(project.takes, found, found.rung(rung))
    small = next(c for c in found.operator.cases if 8 < c.numel < 4096 and takes(c))
    return written(request.param, tmp_path / request.param.replace(".", "_"), cases=[small])


def test_the_kernel_is_the_rungs_own(folder):
    for path in (folder / "kernels").rglob("*.cu*"):
        inside = path.relative_to(folder / "kernels")
        assert path.read_bytes() == (PACKAGE / inside).read_bytes()


@pytest.mark.long
@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("file", ["operator.cpp", "launch_nvrtc.cpp"])
def test_the_cpp_has_the_types_that_pytorch_and_cuda_have(name, file, tmp_path):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++ on this machine")
    try:
        headers = nvrtc.include_folders()
    except ToolchainError:
        pytest.skip("no NVRTC on this machine")
    folder = written(name, tmp_path / "project")
    # PyTorch's CPU builds lack this header, which is generated for CUDA builds
    (tmp_path / "c10/cuda/impl").mkdir(parents=True)
    (tmp_path / "c10/cuda/impl/cuda_cmake_macros.h").touch()
    of_torch = Path(torch.__file__).parent / "include"
    includes = [f"-I{p}" for p in (folder, of_torch, tmp_path, *headers)]
    macros = ['-DKW_INCLUDES=""', '-DKW_SOURCE=""']
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Werror=return-type", *includes, *macros]
    done = subprocess.run([*command, folder / file], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_cases_are_drawn_and_judged(folder, monkeypatch):
    """Tested without the extension: PyTorch's own operator is right, another result is not."""
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder.parent)
    cases = importlib.import_module(f"{folder.name}.cases")
    (case,) = cases.CASES
    args = case.arguments("cpu")
    results = cases.listed(cases.native(*args))
    assert case.right(results, args)
    first = results[0].clone(memory_format=torch.contiguous_format)
    first.view(-1)[0] += 1 + first.view(-1)[0].abs()
    assert not case.right([first, *results[1:]], args)


def test_a_float64_sum_in_another_order_is_right(tmp_path, monkeypatch):
    """Its terms cancel, so that its error is many roundings of the result."""
    folder = written("sum.cuda_flagged", tmp_path / "ordered")
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(folder.parent)
    cases = importlib.import_module("ordered.cases")
    case = cases.CASES[0]
    x = torch.randn(2**22, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    args = [torch.cat([x - x.mean(), x.new_ones(1)]), (-1,), None]
    exact = cases.native(*args)
    assert case.right(torch.cumsum(args[0], 0)[-1], args)
    assert not case.right(exact + 1e-3, args)


def test_the_gradient_is_registered_where_there_is_one(tmp_path):
    assert (
        "register_autograd"
        in (written("softmax.cuda_block", tmp_path / "a") / "__init__.py").read_text()
    )
    backward = written("softmax.backward.cuda_warp", tmp_path / "b")
    assert "register_autograd" not in (backward / "__init__.py").read_text()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("softmax.triton_row", "is a triton rung, not CUDA C\\+\\+"),
        ("adamw.cuda_list", "it changes params"),
        (
            "matmul.cuda_wgmma_persistent",
            "takes a TensorMap, for which no host code can be written",
        ),
        ("cross_entropy.cuda_online", "its kernels are in 2 files"),
    ],
)
def test_what_cannot_be_written_is_refused(name, says, tmp_path):
    with pytest.raises(CannotExtend, match=says):
        written(name, tmp_path / "project")


def test_folders_are_not_overwritten_and_have_python_names(tmp_path):
    folder = written("gelu.cuda_vec16", tmp_path / "project")
    with pytest.raises(CannotExtend, match="exists already and is not empty"):
        written("gelu.cuda_vec16", folder)
    with pytest.raises(CannotExtend, match="must be a Python name"):
        written("gelu.cuda_vec16", tmp_path / "my-gelu")


def test_functions_are_taken_with_what_they_call():
    native = project.entry_of(ladder("rms_norm"), ladder("rms_norm").rung("native"))
    text = source_of(native, "native")
    assert "kernelwright" not in text and "def _shifted" in text
    known = {}
    exec(text, known)
    x, weight = torch.randn(3, 8), torch.randn(8)
    for mine, its in zip(known["native"](x, weight, 1e-6), native(x, weight, 1e-6), strict=True):
        assert torch.equal(mine, its)


@pytest.fixture
def builds(tmp_path, monkeypatch):
    folder = written("gelu.cuda_vec16", tmp_path / "wanted")
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return importlib.import_module("wanted.builds")


def test_what_is_missing_says_what_to_install_or_set(builds, monkeypatch, tmp_path):
    monkeypatch.setattr(builds.cpp_extension, "CUDA_HOME", None)
    with pytest.raises(builds.Missing, match=r"no CUDA toolkit .* set CUDA_HOME to it"):
        builds.load("setuptools")
    monkeypatch.setattr(builds.cpp_extension, "CUDA_HOME", str(tmp_path))
    with pytest.raises(builds.Missing, match="has no nvcc: install the CUDA toolkit"):
        builds.load("cmake")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").touch()
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "hopper")
    with pytest.raises(builds.Missing, match='write capabilities, such as "9\\.0a"'):
        builds.load("inline")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    monkeypatch.setattr(builds.shutil, "which", lambda program: None)
    with pytest.raises(builds.Missing, match="cmake is not installed: pip install cmake"):
        builds.load("cmake")
    monkeypatch.setattr(builds.cpp_extension, "is_ninja_available", lambda: False)
    with pytest.raises(builds.Missing, match="ninja is not installed"):
        builds.load("nvrtc")


def test_architectures(builds, monkeypatch):
    for listed, cmake in (("9.0a", "90a"), ("8.0 8.6+PTX", "80;86"), ("12.0", "120")):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
        assert builds.architecture() == cmake
        assert builds.dotted(cmake) == listed.replace("+PTX", "").replace(" ", ";")


def test_the_command(tmp_path, capfd):
    into = tmp_path / "mine"
    with pytest.raises(SystemExit) as ended:
        cli.main(["extension", "gelu.cuda_vec16", "--style", "cmake", "-o", str(into), "--json"])
    assert ended.value.code == 0
    files = {Path(f).name for f in json.loads(capfd.readouterr().out)["files"]}
    assert {"CMakeLists.txt", "cuda_vec16.cu", "test_gelu.py", "run_time.py"} <= files
    assert 'os.environ.get("EXTENSION_STYLE", "cmake")' in (into / "__init__.py").read_text()
    for words, says in (
        (["gelu.cuda_vec16", "--style", "make"], "'make' is not one of inline"),
        (["gelu"], "name a rung as well"),
        (["gelu.cuda_vec16", "--case", "no"], "gelu has no such case"),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(["extension", *words, "-o", str(tmp_path / "other")])
        assert ended.value.code == 2
        assert says in capfd.readouterr().err


def test_without_a_gpu_run_time_says_why_and_goes_on(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("a GPU is here")
    folder = written("gelu.cuda_vec16", tmp_path / "timed")
    command = [sys.executable, folder / "run_time.py", "--compiler", "inline"]
    done = subprocess.run(command, text=True, capture_output=True, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "CUDA" in done.stdout
