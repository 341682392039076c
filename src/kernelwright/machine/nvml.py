"""Driver readings of a GPU at run time: clocks, power, temperature, throttle reasons.

Only reads. The library comes with the driver and is called through ctypes. nvidia-ml-py wraps the
same calls in ctypes, and would be a dependency for only seven of them.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

#: Bits of nvmlDeviceGetCurrentClocksThrottleReasons that slow a kernel; idle and the
#: applications' own clock settings are not among them.
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


@dataclass(frozen=True)
class Reading:
    """One reading of a GPU: MHz, watts, degrees Celsius. Fields the driver cannot report are
    None."""

    sm_mhz: int | None
    memory_mhz: int | None
    watts: float | None
    celsius: int | None
    throttled: tuple[str, ...]


@cache
def _library() -> ctypes.CDLL | None:
    """NVML, initialized, or None without a driver (macOS, a machine without a GPU)."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    return library if library.nvmlInit_v2() == 0 else None


@cache
def _device(uuid: str) -> ctypes.c_void_p | None:
    library = _library()
    device = ctypes.c_void_p()
    if library is None:
        return None
    status = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
    return device if status == 0 else None


def driver_version() -> str | None:
    """The driver's version, "580.159.03", or None without one."""
    library = _library()
    text = ctypes.create_string_buffer(96)
    if library is None or library.nvmlSystemGetDriverVersion(text, 96) != 0:
        return None
    return text.value.decode()


def max_clocks(uuid: str) -> tuple[int | None, int | None]:
    """(SM, memory) clock limits in MHz."""
    return _number(uuid, "nvmlDeviceGetMaxClockInfo", 1), _number(
        uuid, "nvmlDeviceGetMaxClockInfo", 2
    )


def read(uuid: str) -> Reading | None:
    """A reading of the GPU of that identifier ("GPU-1f0c..."), or None without a driver."""
    if _device(uuid) is None:
        return None
    milliwatts = _number(uuid, "nvmlDeviceGetPowerUsage")
    reasons = _number(uuid, "nvmlDeviceGetCurrentClocksThrottleReasons", of=ctypes.c_ulonglong)
    return Reading(
        sm_mhz=_number(uuid, "nvmlDeviceGetClockInfo", 1),
        memory_mhz=_number(uuid, "nvmlDeviceGetClockInfo", 2),
        watts=None if milliwatts is None else milliwatts / 1e3,
        celsius=_number(uuid, "nvmlDeviceGetTemperature", 0),
        throttled=tuple(name for bit, name in THROTTLES.items() if (reasons or 0) & bit),
    )


def _number(uuid: str, function: str, *which: int, of: type = ctypes.c_uint) -> int | None:
    library, device = _library(), _device(uuid)
    value = of()
    if library is None or device is None:
        return None
    done = getattr(library, function)(device, *which, ctypes.byref(value)) == 0
    return value.value if done else None
