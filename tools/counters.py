"""Nsight Compute's counters of the rungs' launches: the GPU's counts of what `dissect` predicts.

`records/<machine>/counters.json` keeps them, a list of `Counted` as data.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from kernelwright.contract import Case, Ladder, Rung
from kernelwright.dispatch import data, source_hash
from kernelwright.toolchain import tools
from kernelwright.workbench.records import records
from kernelwright.workbench.sanitize.tool_runner import MARK

#: Our word for a count of one launch, and Nsight Compute's metric. Those of "sass" are counted by
#: instrumented instructions, so a second run gives the same; the others by the hardware.
METRICS = {
    "global_load_bytes": "sm__sass_data_bytes_mem_global_op_ld.sum",
    "global_load_sectors": "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "global_store_bytes": "sm__sass_data_bytes_mem_global_op_st.sum",
    "global_store_sectors": "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_st.sum",
    "global_atomic_sectors": "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "global_reduction_sectors": "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_red.sum",
    "global_async_sectors": "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "shared_load_bytes": "sm__sass_data_bytes_mem_shared_op_ld.sum",
    "shared_load_instructions": "sm__sass_inst_executed_op_shared_ld.sum",
    "shared_load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_store_bytes": "sm__sass_data_bytes_mem_shared_op_st.sum",
    "shared_store_instructions": "sm__sass_inst_executed_op_shared_st.sum",
    "shared_store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "instructions": "smsp__inst_executed.sum",
    "threads_per_instruction": "smsp__thread_inst_executed_per_inst_executed.ratio",
    "divergent_branch_targets": "smsp__sass_branch_targets_threads_divergent.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
}


@dataclass(frozen=True)
class Counted:
    """The counters of one launch.

    Attributes:
        hash: the rung's source hash.
        launch: its place in the plan.
        kernel: its name as Nsight Compute gives it.
        counts: by the words of METRICS.
        carried: the hash under which it was counted, where `carry` brought it over.
    """

    operator: str
    rung: str
    hash: str
    case: str
    launch: int
    kernel: str
    counts: dict[str, float]
    carried: str = ""


def count(pairs: Iterable[tuple[Ladder, Rung]], case: Case) -> list[Counted]:
    """The launches of GPU rungs of one operator on one case, on a GPU with readable counters.

    Raises:
        ToolchainError: ncu is not on this machine.
        RuntimeError: ncu failed, or counted other launches than were announced.
    """
    rungs = {(lad.name, rung.name): (lad, rung) for lad, rung in pairs}
    done = subprocess.run(
        [
            str(tools.locate("ncu")), "--clock-control", "none", "--csv", "--page", "raw",
            "--print-units", "base", "--kernel-name", f"regex:^{_pattern(rungs)}",
            "--metrics", ",".join(METRICS.values()),
            sys.executable, "-m", "kernelwright.workbench.sanitize.tool_runner", "cuda",
            *(f"{operator}.{rung}" for operator, rung in rungs), "--case", case.id,
        ],
        capture_output=True,
        text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"ncu: {(done.stdout + done.stderr)[-2000:]}")
    lines = done.stdout.splitlines()
    announced = [json.loads(t.removeprefix(MARK)) for t in lines if t.startswith(MARK)]
    rows = _rows(lines)
    launches = [(what, k) for what in announced for k in range(what["launches"])]
    if len(rows) != len(launches):
        raise RuntimeError(f"ncu counted {len(rows)} launches, {len(launches)} were announced")
    return [
        Counted(
            what["operator"],
            what["rung"],
            source_hash(*rungs[what["operator"], what["rung"]]),
            case.id,
            launch,
            row["Kernel Name"],
            {word: _number(row[metric]) for word, metric in METRICS.items() if row.get(metric)},
        )
        for (what, launch), row in zip(launches, rows, strict=True)
    ]


def save(counted: Iterable[Counted], machine: str, root: Path | None = None) -> Path:
    """Merge into the machine's counters; the file's path."""
    path = (root or records.ROOT) / machine / "counters.json"
    kept = {_key(c): c for c in (*load(machine, root), *counted)}
    written = ({f: v for f, v in asdict(kept[k]).items() if v != ""} for k in sorted(kept))
    data.write(path, json.dumps(list(written), indent=1) + "\n")
    return path


def load(machine: str, root: Path | None = None) -> list[Counted]:
    path = (root or records.ROOT) / machine / "counters.json"
    return [Counted(**c) for c in data.document(path, [])]


def _key(c: Counted) -> tuple[str, str, str, int]:
    return c.operator, c.rung, c.case, c.launch


def _pattern(rungs: Iterable[tuple[str, str]]) -> str:
    """Kernels are called after their subject: softmax_fwd_warp."""
    subjects = sorted({operator.split(".")[0] for operator, _ in rungs})
    return f"({'|'.join(map(re.escape, subjects))})_"


def _rows(lines: list[str]) -> list[dict[str, str]]:
    """The table that ncu prints: a line of names, a line of units, a line a launch."""
    table = [line for line in lines if line.startswith('"')]
    return list(csv.DictReader(table))[1:]


def _number(text: str) -> float:
    return float(text.replace(",", ""))
