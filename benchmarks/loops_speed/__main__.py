"""Kernels in the emulator with the threads of a block as loops, with a stack for each thread, and
the same products in plain C++ at -O2.

    python -m benchmarks.loops_speed --turns 5

The three take turns; of each, the least processor time counts. 1024 x 1024 x 1024 for the products
of floats, sums of 2^24 floats, 256 x 256 x 256 for tensor-core instructions.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
from pathlib import Path

from kernelwright.emulator import compiler
from kernelwright.emulator.program import build

HERE = Path(__file__).parent


def times(command: list[str], folder: Path) -> dict[str, float]:
    environment = {**os.environ, "KERNELWRIGHT_RUN": str(folder)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: float(seconds) for name, seconds in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        plain, loops, fibers = (folder / name for name in ("plain", "loops", "fibers"))
        for settings in (loops, fibers):
            settings.mkdir()
        (fibers / "seed").write_text("1")  # threads in an order that loops do not have
        source, output = str(HERE / "plain.cpp"), str(plain)
        command = [*compiler.command(), "-std=c++17", "-O2", "-pthread", source, "-o", output]
        subprocess.run(command, check=True)
        program = str(build.program(HERE / "kernels.cu", "fast"))
        runs = {"plain C++": ([str(plain)], folder), "loops": ([program], loops),
                "stacks": ([program], fibers)}  # fmt: skip
        least: dict[str, dict[str, float]] = {name: {} for name in runs}
        for _ in range(turns):
            for name, (command, settings) in runs.items():
                for kernel, seconds in times(command, settings).items():
                    before = least[name].get(kernel, seconds)
                    least[name][kernel] = min(before, seconds)
    print(f"least of {turns}, seconds of processor time")
    print(f"{'':12}{'plain C++':>10}{'loops':>10}{'stacks':>10}")
    for kernel, own in least["loops"].items():
        other, stacks = least["plain C++"].get(kernel), least["stacks"][kernel]
        beside = [f"{own / other:.2f} times plain C++"] if other else []
        beside.append(f"{stacks / own:.1f} times as fast as stacks")
        shown = f"{other:10.3f}" if other else f"{'':10}"
        print(f"{kernel:12}{shown}{own:10.3f}{stacks:10.3f}   {', '.join(beside)}")


if __name__ == "__main__":
    main()
