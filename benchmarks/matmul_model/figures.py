"""Compares the first choices of a sweep with cuBLAS; by default, of the runs in timings.jsonl.

python -m benchmarks.matmul_model.figures [FILE]
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from kernelwright.machine.stats import median

RECORDS = Path(__file__).with_name("timings.jsonl")
BAR = 0.92


def rows(path: Path) -> list[dict[str, Any]]:
    """The products of a file, each with "medians" of its times."""
    measured = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        row | {"medians": {name: median(x) for name, x in row["times"].items()}}
        for row in measured
        if "times" in row
    ]


def mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def line(ratios: list[float]) -> str:
    under = sum(r < BAR for r in ratios)
    return f"{mean(ratios):.3f}, least {min(ratios):.3f}, {under} under {BAR}"


def by_set(products: list[dict[str, Any]]) -> list[str]:
    """Of each set of shapes, cuBLAS's time over that of the first choice and of the best timed."""
    first, best = defaultdict(list), defaultdict(list)
    for row in products:
        if "set" in row:
            us = row["medians"]
            ours = [x for name, x in us.items() if not name.startswith("cublas")]
            first[row["set"]].append(us["cublas"] / us[row["first"]])
            best[row["set"]].append(us["cublas"] / min(ours))
    return [
        f"{name}: {len(first[name])} shapes; first choice {line(first[name])}; "
        f"best of those timed {line(best[name])}"
        for name in first
    ]


def control(products: list[dict[str, Any]]) -> str:
    apart = [
        us["cublas"] / us["cublas again"]
        for r in products
        if "cublas again" in (us := r["medians"])
    ]
    most = sorted(abs(x - 1) for x in apart)[int(0.9 * len(apart))]
    return f"cuBLAS against itself: 90 % within {most:.1%}, {min(apart):.3f} to {max(apart):.3f}"


if __name__ == "__main__":
    every = rows(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDS)
    for run in dict.fromkeys(row.get("run") for row in every):
        products = [row for row in every if row.get("run") == run]
        print(
            *([] if run is None else [f"run {run}"]), *by_set(products), control(products), sep="\n"
        )
