"""Measures a step with Nsight Compute, if it is installed."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.support.errors import INCONCLUSIVE, UserError

_METRICS = {
    "gpu__time_duration.sum": "ns",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "occupancy",
    "launch__registers_per_thread": "registers",
}


class NcuError(UserError, RuntimeError):
    """Nsight Compute is not installed, or failed."""

    exit_code = INCONCLUSIVE


@dataclass(frozen=True)
class Counters:
    """Counters of one kernel's launches; percentages of the peak are means weighted by time."""

    kernel: str
    count: int
    us: float
    dram: float
    sm: float
    occupancy: float
    registers: int


def measure(what: str, model: str, batch: int, context: int) -> list[Counters]:
    """Counters of one step's kernels, longest first.

    Raises:
        NcuError: ncu is not installed, or failed; the message contains its output.
    """
    executable = shutil.which("ncu")
    if executable is None:
        raise NcuError(
            "ncu: Nsight Compute is not installed (it comes with the CUDA toolkit; its folder must "
            "be in PATH)"
        )
    command = [
        executable, "--csv", "--page", "details", "--print-units", "base", "--metrics",
        ",".join(_METRICS), "--profile-from-start", "off", "--target-processes", "all",
        sys.executable, "-m", f"{__package__}.under_ncu", what, model, str(batch), str(context),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or "==ERROR==" in done.stdout + done.stderr:
        said = [x for x in (done.stdout + done.stderr).splitlines() if "ERROR" in x or "Error" in x]
        raise NcuError(f"ncu failed: {' '.join(said[-3:]) or done.stderr[-500:]}")
    return summary(done.stdout.splitlines())


def summary(lines: Iterable[str]) -> list[Counters]:
    """Counters from the CSV that ncu prints, one line for each launch and metric."""
    table = [line for line in lines if line.startswith('"')]
    launches: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for row in csv.DictReader(table):
        name = _METRICS.get(row["Metric Name"])
        if name is not None:
            value = float(row["Metric Value"].replace(",", ""))
            launches[row["Kernel Name"], row["ID"]][name] = value
    kernels: dict[str, list[dict[str, float]]] = defaultdict(list)
    for (kernel, _), values in launches.items():
        kernels[kernel].append(values)
    return sorted((_added(k, v) for k, v in kernels.items()), key=lambda c: -c.us)


def _added(kernel: str, launches: list[dict[str, float]]) -> Counters:
    total = sum(v["ns"] for v in launches)

    def mean(name: str) -> float:
        return sum(v[name] * v["ns"] for v in launches) / total if total else 0.0

    registers = int(max(v["registers"] for v in launches))
    return Counters(kernel, len(launches), total / 1e3, mean("dram"), mean("sm"),
                    mean("occupancy"), registers)  # fmt: skip
