"""Records: what was measured, kept as it was measured.

`records/<machine>/<operator>.jsonl` holds a line for each (rung, config, case): the newest.
`records/<machine>/runs.jsonl` holds a line for each run: its environment. Times are raw samples
in microseconds; medians, rates and percentages are derived here and stored nowhere.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.toolchain.settings import settings

#: The records that ship.
ROOT = Path(__file__).resolve().parent.parent / "records"
SAMPLES = 64
OUTCOMES = ("pass", "wrong", "error", "unsupported")
#: Files that are named after no operator: the machine's own limits, and what fusing saves.
OF_NO_OPERATOR = ("roofs", "fusion")
#: Files of a machine that one run writes whole.
WHOLE = ("counters.json", "llama.json", "training.json")


@dataclass(frozen=True)
class Record:
    """One rung (or peer, or roof) on one case in one run.

    Attributes:
        operator: "softmax.backward".
        rung: a rung's name; "peer:liger" for another library; "roof:r1w1" for the stream kernel
            of the same bytes and mix in the same run; "control" for the native rung timed a
            second time (A/A).
        config: the rung's launch parameters.
        case: the case's id.
        machine: a slug, "nvidia-h200" or "cpu-x86_64-2"; the folder's name.
        run: the run's id; ratios hold only between records of one run.
        hash: the rung's source hash; "" for what is not ours.
        carried: the source hash under which it was made, where that compiled to the same machine
            code (see carry.py); usually "".
        outcome: one of OUTCOMES; only "pass" has times.
        why: what went wrong, in a line.
        error, budget: {"norm", "p999", "worst"} as in `contract.compare`, or None.
        cold, warm, host: up to 64 samples, microseconds a call: GPU time with operands in DRAM,
            GPU time with operands in L2 where they fit, host time of the call.
        bytes, flops: the operator's cost for this case.
        bound: "launch", "latency", "bandwidth", "compute" or "".
        workspace: bytes of GPU memory that a call holds at most, beyond arguments and results.
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
        """Fewest bytes over the median cold time, GB/s."""
        return self.bytes / median(self.cold) / 1e3 if self.cold and self.bytes else None


def median(samples: Iterable[float]) -> float:
    return statistics.median(samples)


def interval(samples: tuple[float, ...], level: float = 0.95, draws: int = 1000):
    """(low, high): bootstrap interval of the median. Seeded, so a table prints the same twice."""
    drawn = np.array(samples)[_drawn(len(samples), draws)]
    medians = np.sort(np.median(drawn, axis=1)).tolist()
    cut = int((1 - level) / 2 * draws)
    return medians[cut], medians[-cut - 1]


@cache  # the same for all samples of a length
def _drawn(n: int, draws: int) -> np.ndarray:
    rng = random.Random(0)
    return np.array([rng.choices(range(n), k=n) for _ in range(draws)])


def ratio(a: Record, b: Record) -> float | None:
    """How many times as fast `a` is as `b` (cold), or None where no one run timed both."""
    if a.run != b.run or not a.cold or not b.cold:
        return None
    return median(b.cold) / median(a.cold)


def roots() -> tuple[Path, ...]:
    """The folder of the shipped records and, where it is another one, the one that `--record`
    writes to; what the latter holds goes first."""
    return tuple(dict.fromkeys((ROOT, home())))


def home() -> Path:
    """The folder that `--record` writes to."""
    return settings().records or ROOT


def load(machine: str | None = None, operator: str | None = None) -> list[Record]:
    """Records of `roots()`, all or of one machine or operator."""
    found: dict[tuple, Record] = {}
    for root in roots():
        for path in sorted(root.glob(f"{machine or '*'}/{operator or '*'}.jsonl")):
            if path.name != "runs.jsonl":
                lines = (read(line) for line in _lines(path))
                found.update(((r.machine, *r.key), r) for r in lines)
    return list(found.values())


def runs(machine: str) -> dict[str, dict]:
    """Environment of each run on a machine, by run id."""
    paths = [root / machine / "runs.jsonl" for root in roots()]
    return {r["run"]: r for path in paths for r in map(json.loads, _lines(path))}


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
            old = [read(line) for line in _lines(path)]
            by_file[path] = {o.key: o for o in old}
        by_file[path][r.key] = r
    for path, kept in by_file.items():
        _write(path, (_as_json(r) for _, r in sorted(kept.items())))
    path = root / environment["machine"] / "runs.jsonl"
    known = {r["run"]: r for r in map(json.loads, _lines(path))}
    known[environment["run"]] = environment
    _write(path, (known[k] for k in sorted(known)))
    return path.parent


def _as_json(r: Record) -> dict:
    """The record without its empty fields, times to a nanosecond."""
    d = {k: v for k, v in asdict(r).items() if v not in ("", (), None, {}, 0)}
    for times in ("cold", "warm", "host"):
        if times in d:
            d[times] = [round(t, 3) for t in d[times]]
    return d


def read(line: str) -> Record:
    """The record of a file's line."""
    d = json.loads(line)
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in d.items()}
    return Record(**values)


def _lines(path: Path) -> Iterator[str]:
    if path.exists():
        yield from filter(None, path.read_text().splitlines())


def _write(path: Path, rows: Iterable[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text("".join(json.dumps(r) + "\n" for r in rows))
    temporary.replace(path)
