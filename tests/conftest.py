"""Puts kernel languages into their modes before any test, selects tests by the rule of cover.py,
and fails a run in which a test was skipped for an unknown reason."""

import logging
import os
import re
import sys
from pathlib import Path

import pytest
import torch

import kernelwright.ops.every  # noqa: F401
from kernelwright import toolchain
from kernelwright.machine import gpu_memory
from kernelwright.toolchain import availability, cpp_extension
from support import cover, recorded, shared_gpu

logging.getLogger("torch.__trace").propagate = False  # it would add thousands of lines to a failure
GPU = torch.cuda.is_available()

#: Why a test may be skipped on a machine of either kind. Any other reason is an error, so that no
#: test stops running unnoticed.
ANYWHERE = (
    "no .* on this machine",
    "needs two GPUs",
    "needs root .*",
    ".* is not installed",
    "PyTorch does not support it either",
)
WITHOUT_A_GPU = (
    "needs a GPU",
    "needs TMA",
    "the emulator compiles it",
    "a GPU's memory",
    "the profiler counts kernels of a GPU",
    "its instructions are not emulated: needs a GPU",
)
WITH_A_GPU = (
    "a GPU (asserts|gives|may give|is here|times|.*runs).*",
    "an assertion on a device ends the process",
    "compute-sanitizer answers on a GPU",
    "the emulator's checks.*",
    "needs .* of free GPU memory",
    "(runs|times) them instead",
    "(a stand-in|stands in) for a GPU.*",
    "the real driver is here.*",
    "there is a (GPU|driver).*",
    "what a CPU does",
    "Triton's interpreter needs a machine without a GPU",
)
KNOWN = re.compile("|".join(ANYWHERE + (WITH_A_GPU if GPU else WITHOUT_A_GPU)))

if not GPU:
    for backend in ("triton", "numba"):
        if availability.missing(backend, "cpu") is None:
            toolchain.prepare(backend)
cpp_extension.start = lambda: (
    None
)  # operators are called in C++ where a test says so, not from some time on
os.environ["LC_ALL"] = "C.UTF-8"  # commands answer in the language of the locale, g++ too
if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)  # workers and their child processes share the cores
    os.environ |= {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    if GPU:
        shared_gpu.wait_without_spinning()


@pytest.fixture
def binds(monkeypatch):
    """Names of the operators that a test binds to a rung, in order. Calls that are found in a cache
    are not bound again."""
    from kernelwright.dispatch.dynamic_shapes import OpenCalls

    seen, launcher = [], OpenCalls.launcher

    def counted(self, *args):
        seen.append(self._ladder.name)
        return launcher(self, *args)

    monkeypatch.setattr(OpenCalls, "launcher", counted)
    return seen


@pytest.fixture(autouse=True)
def same_modes():
    """No test, and nothing that it calls, leaves a mode of PyTorch changed, on which later tests
    would depend."""
    before = _modes()
    yield
    assert _modes() == before, "a mode of PyTorch is left changed"


def _modes() -> dict[str, object]:
    return {
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "filled memory": torch.utils.deterministic.fill_uninitialized_memory,
        "default dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "matmul precision": torch.get_float32_matmul_precision(),
        "TF32 of cuDNN": torch.backends.cudnn.allow_tf32,
        "cuDNN's benchmark": torch.backends.cudnn.benchmark,
        "anomaly detection": torch.is_anomaly_enabled(),
        "CPU threads": torch.get_num_threads(),
    }


@pytest.fixture
def few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="every test, not only a cover (cover.py)")
    parser.addoption("--share", metavar="I/N", type=cover.share, default=(1, 1),
                     help="the I-th of N parts of the tests")  # fmt: skip
    parser.addoption("--write-refused", action="store_true", help="write tests/refused")
    parser.addoption("--record-suite", metavar="FILE", type=Path, help="append what this run comes "
                     "to, as `kernelwright ledger` shows it")  # fmt: skip
    parser.addoption("--commit", help="of --record-suite, where git cannot tell")


def pytest_configure(config):
    config.addinivalue_line("markers", "cover: each value of each parameter is enough")
    config.addinivalue_line("markers", "long: with --all only")
    # triton's interpreter converts arrays in a way that is deprecated in NumPy
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:triton.*")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(recorded.Account(config, KNOWN))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    kept = cover.selected(items, config)
    left = set(items) - set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = kept


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """A test for which a GPU has no memory, because of another process, waits and runs again."""
    try:
        return (yield)
    except torch.OutOfMemoryError:
        if not os.environ.get("PYTEST_XDIST_WORKER"):
            raise
    with gpu_memory.exclusive():
        return item.runtest()


def pytest_runtest_teardown(item):
    """Waits for the GPU, so that an error belongs to the test that has caused it. After one, every
    other call in the process would fail: the process ends, and a new one runs the other tests.
    What PyTorch keeps for later is freed, because the processes share the GPU's memory."""
    if not torch.cuda.is_initialized():
        return
    try:
        torch.cuda.synchronize()
    except Exception as e:  # noqa: BLE001 - of several types, by the version of PyTorch
        print(f"{item.nodeid}: {e}", file=sys.__stderr__, flush=True)
        os._exit(3) if os.environ.get("PYTEST_XDIST_WORKER") else pytest.exit(str(e), 3)
    if torch.cuda.memory_reserved() > 1 << 30:
        torch.cuda.empty_cache()


def pytest_xdist_auto_num_workers(config):
    """Eight processes can share a GPU, because no test asserts times."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count()
    return min(cores, 8) if GPU else cores
