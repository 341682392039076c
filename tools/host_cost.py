"""Measures the time of what tests only count: commands, imports, host calls, emulator threads.

    python tools/host_cost.py            prints medians
    python tools/host_cost.py --record   and keeps the samples in records/<machine>/host.json

Other load on the machine increases the times, so the records are made on an idle machine, and no
test reads them. The calls are those of tests/support/hosted.py, with a driver that does nothing in
place of a GPU's; run this on a machine without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

import kernelwright as kw  # noqa: E402
from kernelwright.contract import i32  # noqa: E402
from kernelwright.machine import clock, facts, here, slug  # noqa: E402
from kernelwright.support.settings import settings  # noqa: E402
from kernelwright.workbench.records import records  # noqa: E402
from support.hosted import CALLS, both, hosted  # noqa: E402
from support.primitives import run  # noqa: E402

COMMANDS = {
    "kernelwright --help": ("-m", "kernelwright", "--help"),
    "kernelwright list": ("-m", "kernelwright", "list"),
    "import torch": ("-c", "import torch"),
    "import torch, kernelwright": ("-c", "import torch, kernelwright"),
}
THREADS = 1_000_000
#: By name: from a width, what is called with rows of that width.
SIZES = {
    "softmax": lambda n: lambda x: kw.softmax(x, -1),
    "layer_norm": lambda n: lambda x: kw.layer_norm(x, (n,)),
    "rms_norm": lambda n: lambda x: kw.rms_norm(x, (n,)),
    "gelu": lambda n: kw.gelu,
    "sum": lambda n: lambda x: kw.sum(x, -1),
    "rope": lambda n: lambda x: kw.rope(x.view(1, 1, -1, n), x.view(1, 1, -1, n), x, x),
    "matmul": lambda n: partial(_with_weight, kw.matmul, torch.zeros(n, n, dtype=torch.bfloat16)),
    "linear": lambda n: partial(_with_weight, kw.linear, torch.zeros(n, n, dtype=torch.bfloat16)),
}
#: Instead of cuBLAS, which a CPU would run.
RUNGS = {"matmul": "cuda_wgmma_multicast", "linear": "cuda_wgmma_multicast"}


def _with_weight(function: Callable, weight: torch.Tensor, x: torch.Tensor) -> object:
    return function(x, weight)


Samples = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python tools/host_cost.py")
    parser.add_argument("--record", action="store_true", help="keep the samples in the records")
    asked = parser.parse_args()
    samples_by_kind = {
        "commands_s": commands(),
        "calls_us": calls(),
        "sizes_us": sizes(),
        "emulator_s": emulator(),
    }
    for kind, samples in samples_by_kind.items():
        print(f"{kind}:")
        for name, values in samples.items():
            print(f"  {name:28} {records.median(values):.4g}")
    if asked.record:
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        environment = {"when": when, "load": os.getloadavg()[0], **facts(here())}
        path = (settings().records or records.ROOT) / slug(here()) / "host.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"environment": environment, **samples_by_kind}, indent=1) + "\n"
        )
        print(path)


def commands(times: int = 5) -> Samples:
    """Seconds of processor time of each command, of a second start and later ones."""
    return {name: _children(words, times) for name, words in COMMANDS.items()}


def _children(words: tuple[str, ...], times: int) -> list[float]:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    once()
    return [round(once(), 4) for _ in range(times)]


def calls() -> Samples:
    """Microseconds of forward and backward of each call, ours and PyTorch's in turns."""
    torch.set_num_threads(1)
    times_of: Samples = {}
    with tempfile.TemporaryDirectory() as folder, hosted(Path(folder)):
        for name, (ours, theirs, *shapes) in CALLS.items():
            functions: dict[str, Callable] = {f"{name}, ours": both(ours, shapes),
                                         f"{name}, torch": both(theirs, shapes)}  # fmt: skip
            times = clock.time_host(functions, lambda: None, random.Random(0), blocks=64)
            times_of |= {who: [round(us, 2) for us in samples] for who, samples in times.items()}
    return times_of


def sizes(count: int = 1000, each: int = 10, times: int = 5) -> Samples:
    """Microseconds a call of one batch size, and of many: each is new to the process once."""
    torch.set_num_threads(1)
    samples: Samples = {}
    with tempfile.TemporaryDirectory() as folder, hosted(Path(folder)), kw.use(**RUNGS):
        for name, function_of_width in SIZES.items():
            for turn in range(times):  # another width each time: its sizes have not been seen
                width = 64 + 8 * turn
                function, base = (
                    function_of_width(width),
                    torch.zeros(count + 2, width, dtype=torch.bfloat16),
                )
                rows = [base[:n] for n in range(2, count + 2)] * each
                random.Random(turn).shuffle(rows)
                for who, calls in (("one size", rows[:1] * len(rows)), (f"{count} sizes", rows)):
                    function(calls[0])
                    start = time.process_time()
                    for x in calls:
                        function(x)
                    us = (time.process_time() - start) / len(calls) * 1e6
                    samples.setdefault(f"{name}, {who}", []).append(round(us, 2))
    return samples


def emulator(times: int = 5) -> Samples:
    """Seconds of a core that a million threads take: that meet at a barrier, that only compute."""
    x, y = torch.rand(THREADS), torch.empty(THREADS)

    def once(name: str) -> float:
        start = time.process_time()
        run(name, x, y, i32(THREADS), grid=THREADS // 256 + 1, block=256, workers=2)
        return time.process_time() - start

    samples: Samples = {}
    for name in ("meets", "scales"):
        once(name)
        samples[name] = [round(once(name), 4) for _ in range(times)]
    return samples


if __name__ == "__main__":
    main()
