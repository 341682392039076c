"""A driver that records its calls (fake_driver.c), and fakes for the rest of `gpu_executor`."""

import ctypes
import subprocess

import pytest
import torch

from kernelwright.contract import H200
from kernelwright.toolchain import (
    c_extensions,
    driver,
    gpu_executor,
    modes,
)
from support.paths import TESTS


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]  # fmt: skip


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("driver")
    out = folder / "libcuda.so.1"
    command = [
        *(c_extensions.compiler() or ()),
        "-shared",
        "-fPIC",
        str(TESTS / "support" / "fake_driver.c"),
    ]
    subprocess.run([*command, "-o", str(out)], check=True, capture_output=True)
    return out


@pytest.fixture(name="fake")
def fake_driver(fake_library, monkeypatch):
    """The fake driver in place of the real one."""
    if modes.has_gpu():
        pytest.skip("the real driver is here; the GPU's own tests run")
    real = ctypes.CDLL

    def load(name, *args, **options):  # NVRTC's loader also calls this
        return real(str(fake_library) if "libcuda." in str(name) else name, *args, **options)

    monkeypatch.setattr(ctypes, "CDLL", load)
    remembered = (driver.library, driver.launchers, driver.context)
    for f in remembered:
        f.cache_clear()
    driver._functions.clear()
    lib = driver.library()
    lib.set_context.argtypes = [ctypes.c_void_p]
    lib.set_context(0xC0)
    yield lib
    for f in remembered:
        f.cache_clear()


def value(lib, name, kind=ctypes.c_int):
    return kind.in_dll(lib, name).value


@pytest.fixture(name="gpu")
def fake_gpu(fake, cached, monkeypatch):
    """Everything that `gpu_executor` takes from torch.cuda, on the CPU; streams are numbers."""
    guards = torch._C._dynamo.guards
    state = {"stream": 0x55, "device": 0, "devices": 1}
    fakes = {
        (torch._C, "_cuda_getCurrentRawStream"): lambda i: state["stream"],
        (torch._C, "_cuda_getDevice"): lambda: state["device"],
        (guards, "_empty_strided_cuda"): guards._empty_strided_cpu,
        (torch.cuda, "device_count"): lambda: state["devices"],
        (gpu_executor, "gpu_of"): lambda device: H200,
    }
    for (owner, name), f in fakes.items():
        monkeypatch.setattr(owner, name, f, raising=False)
    return state


def words_of(lib):
    return list((ctypes.c_uint64 * 16).in_dll(lib, "words")[:4])
