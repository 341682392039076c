"""Records: raw measurements.

`records/<machine>/<operator>.jsonl` has one line for each (rung, config, case): the newest record.
`records/<machine>/runs.jsonl` has one line for each run: its environment. Times are raw samples in
microseconds; medians, rates and percentages are derived here and never stored.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernelwright.dispatch import data
from kernelwright.support.settings import RECORDS, settings

ROOT = RECORDS
#: The machine whose records README and the operator pages show.
REFERENCE_MACHINE = "nvidia-h200"
SAMPLES = 64
REQUIRED = ("operator", "rung", "case", "machine", "run", "outcome")
OUTCOMES = ("pass", "wrong", "error", "unsupported")
#: Files that are not named after an operator: the machine's roofs, and the savings of fusion.
OF_NO_OPERATOR = ("roofs", "fusion")
#: Files of a machine that one run writes whole.
WHOLE = ("calls.json", "counters.json", "llama.json", "training.json")


@dataclass(frozen=True)
class Record:
    """One rung (or peer, or roof) on one case in one run.

    Attributes:
        operator: "softmax.backward".
        rung: a rung's name; "peer:liger" for another library; "roof:r1w1" for the streaming kernel
            with the same bytes and mix in the same run; "roof:bf16" for the library's matrix
            product of that kind, whose config has its size and the case's operations; "control"
            for the native rung timed a second time (A/A).
        config: the rung's launch parameters.
        case: the case's id.
        machine: a slug, "nvidia-h200" or "cpu-x86_64-2"; the folder's name.
        run: the run's id; ratios hold only between records of one run.
        hash: the rung's source hash; "" for code outside this package.
        carried: the source hash with which the record was made, if it has been carried over to a
            source with the same machine code (see carry.py); usually "".
        outcome: one of OUTCOMES; only "pass" has times.
        why: what went wrong, in one line.
        error, budget: {"norm", "p999", "worst"} as in `contract.compare`, or None.
        cold, warm, host: up to 64 samples, microseconds per call: GPU time with operands in DRAM,
            GPU time with operands in L2 if they fit, host time of the call.
        bytes, flops: the operator's cost for this case.
        bound: "launch", "latency", "bandwidth", "compute" or "".
        workspace: peak bytes of GPU memory of a call, beyond arguments and results.
    """

    operator: str
    rung: str
    case: str
    machine: str
    run: str
    outcome: str
    config: dict[str, Any] = field(default_factory=dict)
    hash: str = ""
    why: str = ""
    error: dict[str, float] | None = None
    budget: dict[str, float] | None = None
    cold: tuple[float, ...] = ()
    warm: tuple[float, ...] = ()
    host: tuple[float, ...] = ()
    bytes: int = 0
    flops: int = 0
    bound: str = ""
    workspace: int = 0
    carried: str = ""

    def __post_init__(self):
        assert self.outcome in OUTCOMES, self.outcome
        assert self.outcome == "pass" or not (self.cold or self.warm or self.host)
        assert max(len(self.cold), len(self.warm), len(self.host)) <= SAMPLES

    @property
    def key(self) -> tuple[str, ...]:
        return (self.operator, self.rung, self.case, json.dumps(self.config, sort_keys=True))

    @property
    def gbps(self) -> float | None:
        """Minimum bytes divided by the median cold time, GB/s."""
        return self.bytes / median(self.cold) / 1e3 if self.cold and self.bytes else None


def median(samples: Iterable[float]) -> float:
    return statistics.median(samples)


def ratio(a: Record, b: Record) -> float | None:
    """The speedup of `a` over `b` (cold), or None if no single run timed both."""
    if a.run != b.run or not a.cold or not b.cold:
        return None
    return median(b.cold) / median(a.cold)


def roots() -> tuple[Path, ...]:
    """The folder of the shipped records and, if different, the one that `--record` writes to, which
    takes precedence."""
    return tuple(dict.fromkeys((ROOT, home())))


def home() -> Path:
    """The folder that `--record` writes to."""
    return settings().records or ROOT


def load(machine: str | None = None, operator: str | None = None) -> list[Record]:
    """Records of `roots()`, all or of one machine or operator.

    Raises:
        data.Damaged: a file is damaged; the message names the line.
    """
    found: dict[tuple, Record] = {}
    for root in roots():
        for path in sorted(root.glob(f"{machine or '*'}/{operator or '*'}.jsonl")):
            if path.name != "runs.jsonl":
                found.update(((r.machine, *r.key), r) for r in _of_file(path))
    return list(found.values())


def runs(machine: str) -> dict[str, dict]:
    """Environment of each run on a machine, by run id."""
    paths = [root / machine / "runs.jsonl" for root in roots()]
    return {r["run"]: r for path in paths for _, r in data.lines(path)}


def save(records: Iterable[Record], environment: dict[str, Any], root: Path | None = None) -> Path:
    """Merge records into their files: a newer record replaces the one of the same key.

    Args:
        environment: of the run, {"run", "when", "machine", "gpu", "torch", ...}.
        root: the folder; by default `home()`.

    Returns:
        The folder of the machine's records.
    """
    root = root or home()
    by_file: dict[Path, dict[tuple, Record]] = {}
    for r in records:
        path = root / r.machine / f"{r.operator}.jsonl"
        if path not in by_file:
            by_file[path] = {o.key: o for o in _of_file(path)}
        by_file[path][r.key] = r
    for path, kept in by_file.items():
        write(path, (_as_json(r) for _, r in sorted(kept.items())))
    path = root / environment["machine"] / "runs.jsonl"
    known = {r["run"]: r for _, r in data.lines(path)}
    known[environment["run"]] = environment
    write(path, (known[k] for k in sorted(known)))
    return path.parent


def _as_json(r: Record) -> dict:
    """The record without empty fields, with times rounded to nanoseconds."""
    d = {k: v for k, v in asdict(r).items() if v not in ("", (), None, {}, 0)}
    for times in ("cold", "warm", "host"):
        if times in d:
            d[times] = [round(t, 3) for t in d[times]]
    return d


def read(line: dict[str, Any]) -> Record:
    """The record of a file's line."""
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in line.items()}
    return Record(**values)


def write(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write a file of records, one line per record."""
    data.write(path, "".join(json.dumps(line) + "\n" for line in lines))


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, record as written) of each line of a file of records.

    Raises:
        data.Damaged: a line is damaged; the message names the file and the line.
    """
    for number, line in data.lines(path):
        if lacking := [name for name in REQUIRED if name not in line]:
            raise data.Damaged(path, number, f"is a record without {' and '.join(lacking)}")
        yield number, line


def _of_file(path: Path) -> Iterator[Record]:
    for number, line in lines(path):
        try:
            yield read(line)
        except (TypeError, AssertionError) as e:
            raise data.Damaged(path, number, f"is not a record ({e})") from None
