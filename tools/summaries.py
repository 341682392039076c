"""The summaries of records that are shipped: the same files, with five numbers instead of samples.

An installed package shows H200 results beside its user's own. It needs the median, the spread and
the interval of each time; the raw samples stay in `records/`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy

from kernelwright.dispatch import data
from kernelwright.machine.stats import interval
from kernelwright.support.settings import DATA
from kernelwright.workbench.records import records

FOLDER = DATA / "records"
TIMES = ("cold", "warm", "host")


def texts(root: Path = records.ROOT) -> dict[Path, str]:
    """Every file of summaries and its expected content."""
    out: dict[Path, str] = {}
    for path in sorted(root.rglob("*.json*")):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl" and path.stem not in ("runs", "suite"):
            lines = (summary(line) for _, line in data.lines(path))
            text = "".join(json.dumps(line) + "\n" for line in lines)
        out[FOLDER / path.relative_to(root)] = text
    return out


def summary(record: dict[str, Any]) -> dict[str, Any]:
    """A record as it ships: of each time the least, the quartiles and the greatest."""
    out = dict(record)
    for name in TIMES:
        if samples := record.get(name):
            quantiles = numpy.quantile(samples, (0, 0.25, 0.5, 0.75, 1))
            out[name] = [round(float(q), 3) for q in quantiles]
    if samples := record.get("cold"):
        out["interval"] = [round(t, 3) for t in interval(samples)]
    return out
