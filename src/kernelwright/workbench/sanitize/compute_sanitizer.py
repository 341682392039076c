"""Runs compute-sanitizer on rungs on a GPU: out-of-bounds accesses, data races, uninitialized
reads, divergent barriers.

Its findings are reported in the same form as those of the CPU emulator in `verify --check`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kernelwright.contract import Ladder, Rung
from kernelwright.dispatch import source_hash
from kernelwright.toolchain import tools
from kernelwright.workbench.records.records import Record

from .tool_runner import MARK

#: The tool's name, by the check's name.
TOOLS = {"bounds": "memcheck", "races": "racecheck", "init": "initcheck", "divergence": "synccheck"}
TIME_LIMIT = 540  # seconds that one tool may take on one operator


@dataclass
class Watched:
    """The result of one rung under one tool.

    Attributes:
        under: the tool.
        calls: the number of calls that were checked.
        schedules: the number of thread schedules that were checked; 0 on a GPU, which chooses one
            per call.
        findings: one line each, beginning with the case.
        left_out: the number of calls that were not checked, by reason.
        seconds: wall-clock time of all checks of the rung.
    """

    operator: str
    rung: str
    check: str
    hash: str
    under: str
    calls: int = 0
    schedules: int = 0
    findings: list[str] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def record(self, machine: str, run: str) -> Record:
        texts = self.findings
        schedules = f", {self.schedules} schedules" if self.schedules else ""
        why = f"{self.calls} calls under {self.under}{schedules}"
        return Record(
            self.operator,
            self.rung,
            f"check:{self.check}",
            machine,
            run,
            "wrong" if texts else "pass" if self.calls else "unsupported",
            hash=self.hash,
            why=f"{texts[0]} ({len(texts)} findings); {why}" if texts else why,
        )


def watch(pairs: Iterable[tuple[Ladder, Rung]], check: str) -> list[Watched]:
    """Check GPU rungs of one operator with one tool, each on its watched cases.

    Args:
        pairs: rungs of one ladder.
        check: a key of TOOLS.

    Raises:
        ToolchainError: compute-sanitizer is not on this machine.
        RuntimeError: the checked process itself failed.
    """
    rungs = {(lad.name, rung.name): (lad, rung) for lad, rung in pairs if rung.is_gpu}
    by_rung = {
        key: Watched(*key, check, source_hash(lad, rung), TOOLS[check])
        for key, (lad, rung) in rungs.items()
    }
    tool = tools.locate("compute-sanitizer")
    done = subprocess.run(
        [
            str(tool), "--tool", TOOLS[check], "--print-limit", "20", "--show-backtrace", "device",
            sys.executable, "-m", "kernelwright.workbench.sanitize.tool_runner", "cuda",
            *(f"{operator}.{rung}" for operator, rung in rungs),
        ],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        # a separate allocation for each tensor, so that the tool knows its end
        env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    )  # fmt: skip
    for what, lines in sections(done.stdout):
        row = by_rung[what["operator"], what["rung"]]
        row.calls += 1
        row.findings += [f"{what['case']}: {finding}" for finding in findings(lines)]
    if done.returncode and not any(row.findings for row in by_rung.values()):
        raise RuntimeError(f"{tool.name} on {', '.join(map('.'.join, rungs))}: {done.stderr}")
    return list(by_rung.values())


def sections(output: str) -> Iterator[tuple[dict, list[str]]]:
    """(the announced call, the lines that follow it) for each call."""
    what: dict | None = None
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith(MARK):
            if what:
                yield what, lines
            what, lines = json.loads(line.removeprefix(MARK)), []
        else:
            lines.append(line)
    if what:
        yield what, lines


def findings(lines: Iterable[str]) -> list[str]:
    """compute-sanitizer's reports, each with its location. In the output, a report
    starts at the margin and its details are indented."""
    texts: list[str] = []
    for line in lines:
        if not line.startswith("========= "):
            continue
        text = line.removeprefix("========= ")
        if not text.startswith(" "):
            if text.strip() and not re.match(r"COMPUTE-SANITIZER|[A-Z]+ SUMMARY|LEAK", text):
                texts.append(text.strip())
        elif texts and text.strip().startswith(("at ", "by thread", "and ")):
            texts[-1] += f", {text.strip()}"
    return texts
