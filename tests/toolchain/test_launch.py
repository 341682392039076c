"""The launcher and the driver, without a GPU: a fake driver records the calls."""

import ctypes
import threading

import pytest

from kernelwright.contract import CudaKernel
from kernelwright.support.errors import ToolchainError
from kernelwright.toolchain import (
    availability,
    c_extensions,
    compiled,
    driver,
    modes,
    nvrtc,
)
from support.fake_driver import Config, fake_driver, fake_library, value  # noqa: F401
from support.planning import own_cache, scale_cu  # noqa: F401


def make(cluster=1, parameters=None, shared=0, overlaps=False):
    parameters = parameters or (("p", None), ("l", 1 << 40), ("p", None), ("f", None))
    return driver.launchers().Launcher(
        "scale", 0x1234, 0xC0, (8, 2, 1), (256, 1, 1), shared, cluster, overlaps, parameters
    )


def test_launcher_packs_its_parameters(fake):
    make(shared=4096)(0x77, 0xDEAD, 0xBEEF, 0.1)
    last = Config.in_dll(fake, "last")
    words = (ctypes.c_uint64 * 16).in_dll(fake, "words")
    assert words[:3] == [0xDEAD, 1 << 40, 0xBEEF]
    assert ctypes.c_float.from_buffer(ctypes.c_uint32(words[3])).value == ctypes.c_float(0.1).value
    assert (list(last.grid), list(last.block), last.shared) == ([8, 2, 1], [256, 1, 1], 4096)
    assert last.stream == 0x77 and last.count == 0
    assert value(fake, "last_function", ctypes.c_void_p) == 0x1234


def test_launcher_packs_every_kind(fake):
    kinds = (("i", -5), ("l", None), ("d", None), ("i", None))
    make(parameters=kinds)(0, -7, 2.5, -9)
    words = (ctypes.c_uint64 * 16).in_dll(fake, "words")
    assert ctypes.c_int32(words[0] & 0xFFFFFFFF).value == -5
    assert ctypes.c_int64(words[1]).value == -7
    assert ctypes.c_double.from_buffer(ctypes.c_uint64(words[2])).value == 2.5
    assert ctypes.c_int32(words[3]).value == -9


def test_launcher_asks_for_clusters(fake):
    make(cluster=4)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 2
    both = (ctypes.c_int * 36).in_dll(fake, "attributes")
    assert (both[0], both[2:5]) == (4, [4, 1, 1]) and (both[18], both[20]) == (5, 1)


def test_a_launch_may_start_before_the_last_one_ends(fake):
    make(cluster=4, overlaps=True)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 3
    all_three = (ctypes.c_int * 54).in_dll(fake, "attributes")
    assert [all_three[i] for i in (0, 18, 36)] == [4, 5, 6] and all_three[38] == 1
    make(overlaps=True)(0, 1, 2, 0.0)
    assert Config.in_dll(fake, "last").count == 1 and (all_three[0], all_three[2]) == (6, 1)


def test_launcher_enters_and_leaves_its_context(fake):
    launch = make()
    before = value(fake, "pushes")
    launch(0, 1, 2, 0.0)
    assert value(fake, "pushes") == before  # the current context is the right one
    fake.set_context(0xC1)
    launch(0, 1, 2, 0.0)
    assert value(fake, "last_context", ctypes.c_void_p) == 0xC0
    thread = threading.Thread(target=launch, args=(0, 1, 2, 0.0))  # has no context at all
    thread.start()
    thread.join()
    assert value(fake, "last_context", ctypes.c_void_p) == 0xC0
    assert value(fake, "pushes") == before + 2 and value(fake, "pops") >= 2


def test_launcher_reports_the_drivers_error(fake):
    fake.fail_next(1)
    with pytest.raises(RuntimeError, match=r"^scale: CUDA_ERROR_INVALID_VALUE \(invalid argument"):
        make()(0, 1, 2, 0.0)


@pytest.mark.parametrize(
    "arguments, error",
    [((0, 1, 2), TypeError), ((0, 1, 2, 0.0, 4), TypeError), ((0, 1, 2, "x"), TypeError),
     ((0, -1, 2, 0.0), OverflowError), (("s", 1, 2, 0.0), TypeError)],
)  # fmt: skip
def test_launcher_refuses_wrong_arguments(fake, arguments, error):
    before = value(fake, "launches")
    with pytest.raises(error):
        make()(*arguments)
    assert value(fake, "launches") == before


def test_launcher_refuses_wrong_parameters(fake):
    with pytest.raises(ValueError, match="unknown parameter kind"):
        make(parameters=(("q", 1),))
    with pytest.raises(OverflowError):
        make(parameters=(("i", 1 << 31),))
    with pytest.raises(ValueError, match="300 parameters"):
        make(parameters=(("p", None),) * 300)


def test_launcher_leaks_nothing(fake):
    import tracemalloc

    launch = make()
    launch(0, 1, 2, 0.0)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        launch(0, 1 << 40, 1 << 41, 0.5)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000


def test_capture_id(fake):
    capture_id = driver.launchers().capture_id
    assert capture_id(5) == 0
    ctypes.c_uint64.in_dll(fake, "capture").value = 9
    assert capture_id(5) == 9
    assert capture_id(0) == 0  # the default stream is not queried
    ctypes.c_uint64.in_dll(fake, "capture").value = 0


def test_driver_allows_large_shared_memory_and_clusters(fake, cuda_source, cached):
    made = nvrtc.compile(CudaKernel(cuda_source, "scale<float>"), "sm_90a")
    driver.function(made, 0, 40 * 1024, 1)
    assert value(fake, "allowed_shared") == 0  # static 1 KiB + 40 KiB need no opt-in
    driver.function(made, 0, 100 * 1024, 16)
    driver.function(made, 0, 60 * 1024, 1)  # must not reduce the limit that another launch needs
    assert value(fake, "allowed_shared") == 100 * 1024 and value(fake, "allowed_cluster") == 1
    loads = value(fake, "loads")
    driver.function(made, 0, 0, 1)
    assert value(fake, "loads") == loads


def test_driver_refuses_a_bad_cubin(fake):
    with pytest.raises(ToolchainError, match="k: loading its sm_90a cubin: CUDA_ERROR_I"):
        driver.function(compiled.Compiled("k", "sm_90a", b"garbage", ""), 0, 0, 1)


def test_no_driver_has_a_message(monkeypatch):
    if modes.has_gpu():
        pytest.skip("the real driver is here")
    with pytest.raises(ToolchainError, match="no NVIDIA driver"):
        driver.library.__wrapped__()


def test_no_compiler_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolchainError, match="no C compiler: install gcc"):
        c_extensions._built()


def test_no_python_headers_has_a_message(cached, monkeypatch, tmp_path):
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    with pytest.raises(ToolchainError, match="install Python's development headers"):
        c_extensions._built()


def test_missing_driver_newer_compiler_and_old_triton(monkeypatch, fake):
    fresh = availability.missing.__wrapped__
    monkeypatch.setattr(nvrtc, "version", lambda: (14, 1))
    assert (
        'driver supports CUDA 13.0: update the driver, or pip install "nvidia-cuda-nvrtc<14"'
        in (fresh("cuda", "cuda") or "")
    )
    monkeypatch.setattr("importlib.metadata.version", lambda _: "3.5.1")
    assert fresh("triton", "cpu") == "triton 3.5.1 is too old: 3.6 or newer is needed"
