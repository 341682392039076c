"""Building the C++ of toolchain/cpp_extension, with scripts that stand in for compilers."""

import os
import signal
import subprocess
import sys
import time

import pytest

from kernelwright.support.errors import CompileError
from kernelwright.toolchain import cpp_extension
from support.planning import own_cache  # noqa: F401

COMPILER = """#!/bin/sh
case "$*" in *--version*) echo "a compiler"; exit 0;; esac
echo asked >> {asked}
{does}
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch, cached):
    """Sets what the C++ compiler does, and returns how often it was called."""
    asked = tmp_path / "asked"

    def set_to(does):
        script = tmp_path / "compiler"
        script.write_text(COMPILER.format(asked=asked, does=does))
        script.chmod(0o700)
        monkeypatch.setenv("CXX", str(script))
        return lambda: len(asked.read_text().split()) if asked.exists() else 0

    return set_to


WRITES = 'for last; do :; done; echo made > "$last"'


def test_it_is_built_once(compiler):
    asked = compiler(WRITES)
    assert cpp_extension.build().read_text() == "made\n" and cpp_extension.build().exists()
    assert asked() == 1


def test_a_failed_build_is_remembered_and_reported(compiler):
    asked = compiler("echo it is too old >&2; exit 1")
    for _ in range(2):
        with pytest.raises(CompileError, match="it is too old"):
            cpp_extension.build()
    assert asked() == 1
    assert (
        cpp_extension.status().startswith("Python: ") and "it is too old" in cpp_extension.status()
    )


def test_without_a_compiler_calls_stay_in_python(monkeypatch, tmp_path, cached):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(cpp_extension, "_problem", None)
    cpp_extension._load_or_say()
    assert cpp_extension.loaded is None
    assert cpp_extension.status() == ("Python: no C++ compiler: install g++ or clang++, or set CXX")


def test_a_file_that_is_not_a_module_is_reported(compiler, monkeypatch):
    compiler(WRITES)
    monkeypatch.setattr(cpp_extension, "_problem", None)
    monkeypatch.setattr(cpp_extension, "_build_elsewhere", lambda: None)
    cpp_extension._load_or_say()
    assert cpp_extension.loaded is None and "kernelwright_calls" in cpp_extension.status()


@pytest.mark.long
def test_a_build_that_is_killed_is_built_again(compiler, tmp_path):
    asked = compiler("exec sleep 60")
    builder = subprocess.Popen(
        [sys.executable, "-m", "kernelwright.toolchain.cpp_extension"], start_new_session=True
    )
    while not asked():
        assert builder.poll() is None
        time.sleep(0.05)
    os.killpg(builder.pid, signal.SIGKILL)
    builder.wait()
    compiler(WRITES)
    assert cpp_extension.build().read_text() == "made\n"
    assert asked() == 2
