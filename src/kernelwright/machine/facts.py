"""Properties of the available devices."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernelwright.contract import Gpu

from . import nvml


def gpu_of(device: torch.device | None) -> Gpu | None:
    """The GPU that holds a device's tensors, or None for a CPU."""
    if device is None or device.type != "cuda":
        return None
    return _gpu(index_of(device))


def index_of(device: torch.device) -> int:
    """A CUDA device's index; the current device's if it has none."""
    named: int | None = device.index
    return torch.cuda.current_device() if named is None else named


@cache
def _gpu(index: int) -> Gpu:
    p = torch.cuda.get_device_properties(index)
    return Gpu(
        (p.major, p.minor),
        p.multi_processor_count,
        p.shared_memory_per_block_optin,
        p.L2_cache_size,
        p.name,
    )


@dataclass(frozen=True)
class GpuFacts:
    """A GPU as its driver describes it, in bytes, MHz and bytes per second."""

    name: str
    capability: str  # "9.0"
    sms: int
    memory: int
    l2: int
    shared_per_sm: int
    shared_per_block: int
    registers_per_sm: int
    sm_mhz: int | None  # highest the driver allows
    memory_mhz: int | None
    memory_bus_bits: int | None
    peak_bandwidth: float | None  # bytes per second, from the memory's clock and bus width
    driver: str | None


@dataclass(frozen=True)
class CpuFacts:
    """A CPU. `caches` in bytes by level as one core sees them: {"L1d": 49152, "L3": 33554432}."""

    model: str
    arch: str
    cores: int  # that this process may use
    threads: int  # that torch uses
    caches: dict[str, int]
    memory: int


def here() -> torch.device:
    """The device for verification and timing: the current GPU, or the CPU without one."""
    if torch.cuda.is_available():
        return torch.device("cuda", torch.cuda.current_device())
    return torch.device("cpu")


def slug(device: torch.device) -> str:
    """The name of this machine in records: "nvidia-h200", "cpu-x86_64-2"."""
    gpu = gpu_of(device)
    if gpu is not None:
        return slug_of(gpu)
    return f"cpu-{platform.machine().lower()}-{_cores()}"


def slug_of(gpu: Gpu) -> str:
    """The name of a GPU in records and in names of files."""
    return re.sub(r"[^a-z0-9]+", "-", gpu.name.lower()).strip("-")


@cache
def gpu_facts(index: int) -> GpuFacts:
    p = torch.cuda.get_device_properties(index)
    sm_mhz, memory_mhz = nvml.max_clocks(uuid(index))
    bus = getattr(p, "memory_bus_width", None)
    memory_mhz = memory_mhz or getattr(p, "memory_clock_rate", 0) // 1000 or None
    # two transfers per clock are the most that a bus of this width and clock carries
    peak = 2e6 * memory_mhz * bus / 8 if memory_mhz and bus else None
    return GpuFacts(
        name=p.name,
        capability=f"{p.major}.{p.minor}",
        sms=p.multi_processor_count,
        memory=p.total_memory,
        l2=p.L2_cache_size,
        shared_per_sm=p.shared_memory_per_multiprocessor,
        shared_per_block=p.shared_memory_per_block_optin,
        registers_per_sm=p.regs_per_multiprocessor,
        sm_mhz=sm_mhz,
        memory_mhz=memory_mhz,
        memory_bus_bits=bus,
        peak_bandwidth=peak,
        driver=nvml.driver_version(),
    )


def uuid(index: int) -> str:
    """The driver's identifier of a GPU, "GPU-1f0c..."."""
    return f"GPU-{torch.cuda.get_device_properties(index).uuid}"


@cache
def cpu_facts() -> CpuFacts:
    return CpuFacts(
        model=_cpu_model(),
        arch=platform.machine(),
        cores=_cores(),
        threads=torch.get_num_threads(),
        caches=_caches(),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def facts(device: torch.device) -> dict[str, Any]:
    """The machine and its software, as stored in a run's environment."""
    gpu = gpu_of(device)
    return {
        "machine": slug(device),
        "gpu": asdict(gpu_facts(index_of(device))) if gpu else None,
        "cpu": asdict(cpu_facts()),
        "system": f"{platform.system()} {platform.release()}",
        **versions(),
    }


@cache
def versions() -> dict[str, str | None]:
    """Installed versions by distribution; None if not installed."""
    installed: dict[str, str | None] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    for name in ("triton", "numba-cuda", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy"):
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed[name] = None
    return installed


def last_level_cache(device: torch.device) -> int:
    """Bytes of the last-level cache; timing rotates buffers over three times as many."""
    gpu = gpu_of(device)
    if gpu is not None:
        return gpu.l2_bytes
    # if the cache sizes are not reported: a size that no laptop exceeds
    return max(cpu_facts().caches.values(), default=32 << 20)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu_model() -> str:
    if sys.platform == "darwin":
        return _sysctl("machdep.cpu.brand_string")
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    return name.group(1) if name else platform.processor() or platform.machine()


def _caches() -> dict[str, int]:
    if sys.platform == "darwin":
        names = {"L1d": "hw.l1dcachesize", "L2": "hw.l2cachesize", "L3": "hw.l3cachesize"}
        sizes = {k: int(_sysctl(v) or 0) for k, v in names.items()}
        return {k: v for k, v in sizes.items() if v}
    caches = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level = ((folder / n).read_text().strip() for n in ("type", "level"))
        if kind != "Instruction":
            size = (folder / "size").read_text().strip()
            name = f"L{level}d" if kind == "Data" and level == "1" else f"L{level}"
            caches[name] = int(size[:-1]) << {"K": 10, "M": 20}[size[-1]]
    return caches


def _sysctl(name: str) -> str:
    done = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()
