"""Metrics derived from the records: a ladder on one case, rung by rung."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from kernelwright.contract import Case, Ladder, Rung
from kernelwright.machine.stats import interval

from .records import Record, median, ratio

#: Rungs that use only PyTorch. They and other libraries are the baselines of our rungs.
THEIRS = ("native", "compiled")
#: A/A noise above which a run does not rank rungs.
RANKED = 0.10


@dataclass(frozen=True)
class Row:
    """One rung or peer on one case. `record` is None if nothing was measured."""

    name: str
    rung: Rung | None  # None for a peer
    record: Record | None
    roof: Record | None  # of the record's run
    below: Record | None  # the nearest timed rung below it
    best: Record | None  # the fastest of native, compiled and the peers, without itself
    verified: Record | None = None  # the record over all cases that `verify` writes
    products: tuple[Record, ...] = ()  # the record's run's roofs of matrix products

    @property
    def backend(self) -> str:
        return self.rung.backend if self.rung else "peer"

    @property
    def timed(self) -> bool:
        return self.record is not None and bool(self.record.cold)

    @property
    def cold(self) -> float | None:
        """Median GPU time with operands in DRAM, microseconds."""
        return median(self.record.cold) if self.record and self.record.cold else None

    @property
    def warm(self) -> float | None:
        return median(self.record.warm) if self.record and self.record.warm else None

    @property
    def host(self) -> float | None:
        return median(self.record.host) if self.record and self.record.host else None

    @cached_property
    def interval(self) -> tuple[float, float] | None:
        """95% interval of `cold`."""
        if self.record is None or not self.record.cold:
            return None
        return interval(self.record.cold)

    @property
    def gbps(self) -> float | None:
        return self.record.gbps if self.record else None

    @property
    def workspace(self) -> int | None:
        """Peak bytes of a call besides arguments and results; None if not measured."""
        return self.record.workspace or None if self.record else None

    @property
    def rate(self) -> str:
        """Bytes per second, or operations per second if they are the limit, as text."""
        r = self.record
        if r and r.cold and _is_products(r):
            return f"{r.flops / median(r.cold) / 1e6:.0f} TFLOP/s"
        return rate(self.gbps)

    @property
    def of_roof(self) -> float | None:
        """Share of the roof measured in the same run; 1.0 is the roof. The roof is that of memory
        for the case's bytes or that of matrix products for its operations, whichever takes longer.
        None if matrix products are the limit and their roof was not measured."""
        if not (self.record and self.record.cold):
            return None
        least = least_of_products(self.products)
        by_products = least / median(self.record.cold) if least else None
        if self.roof is None or (by_products is None and _is_products(self.record)):
            return by_products
        mine, roof = self.record.gbps, self.roof.gbps
        by_memory = mine / roof if mine and roof else None
        return max((s for s in (by_memory, by_products) if s), default=None)

    @property
    def over_below(self) -> float | None:
        return ratio(self.record, self.below) if self.record and self.below else None

    @property
    def over_best(self) -> float | None:
        return ratio(self.record, self.best) if self.record and self.best else None

    @property
    def status(self) -> str:
        """The text shown if there is no time."""
        if self.record is None:
            return "no record"
        if self.record.outcome == "pass":
            return "" if self.record.cold else "verified, not timed"
        return f"{self.record.outcome}: {self.record.why}".rstrip(": ")


def least_of_products(roofs: Iterable[Record]) -> float | None:
    """Microseconds of a case's matrix products at the rates of their roofs; None without roofs."""
    times = [r.config["operations"] * median(r.cold) / r.flops for r in roofs if r.cold]
    return sum(times) if times else None


def _is_products(r: Record) -> bool:
    """Whether matrix units are the limit: an H200 executes 190 operations per byte from DRAM."""
    return r.flops > 190 * r.bytes > 0


@dataclass(frozen=True)
class Table:
    """A ladder on one case of one machine: one row per rung in the ladder's order, then the
    peers."""

    ladder: Ladder
    machine: str
    case: str
    rows: tuple[Row, ...]
    roof: Record | None
    products: tuple[Record, ...] = ()  # roofs of matrix products, of the newest run

    @property
    def label(self) -> str:
        """The origin of the shape."""
        return next((c.label for c in self.ladder.operator.cases if c.id == self.case), "")

    @property
    def bytes(self) -> int:
        return max((r.record.bytes for r in self.rows if r.record), default=0)

    @property
    def timed(self) -> list[Row]:
        return [r for r in self.rows if r.timed]

    @property
    def ours(self) -> Row | None:
        """The fastest of this package's own rungs: without native, compiled and peers."""
        mine = [r for r in self.timed if r.rung and r.rung.is_ours]
        return min(mine, key=lambda r: r.cold or 0.0, default=None)

    @property
    def theirs(self) -> Row | None:
        """The fastest of native, compiled and the peers."""
        found = [r for r in self.timed if r.rung is None or r.name in THEIRS]
        return min(found, key=lambda r: r.cold or 0.0, default=None)

    @property
    def fastest(self) -> Row | None:
        return min(self.timed, key=lambda r: r.cold or 0.0, default=None)


def as_json(table: Table) -> dict[str, Any]:
    """A table as data: microseconds, GB/s, shares and factors, to four digits."""
    return _rounded(_as_json(table))


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    return [_rounded(v) for v in value] if isinstance(value, (list, tuple)) else value


def _as_json(table: Table) -> dict[str, Any]:
    return {
        "operator": table.ladder.name,
        "machine": table.machine,
        "case": table.case,
        "roof_gbps": table.roof.gbps if table.roof else None,
        "roof_tflops": {
            r.rung.removeprefix("roof:"): r.flops / median(r.cold) / 1e6
            for r in table.products
            if r.cold
        },
        "rows": [
            {
                "name": r.name,
                "backend": r.backend,
                "config": r.record.config if r.record else None,
                "cold_us": r.cold,
                "cold_interval_us": r.interval,
                "warm_us": r.warm,
                "host_us": r.host,
                "gbps": r.gbps,
                "workspace_bytes": r.workspace,
                "of_roof": r.of_roof,
                "over_below": r.over_below,
                "over_best_peer": r.over_best,
                "bound": r.record.bound if r.record else "",
                "status": r.status,
            }
            for r in table.rows
        ],
    }


def table(
    ladder: Ladder, machine: str, case: str, records: Iterable[Record], noise: float | None = None
) -> Table:
    """The table of one case, with the fastest config of each rung in its newest run.

    Args:
        noise: A/A noise of the run; above `RANKED` the table has no factors between rungs.
    """
    mine = [
        r
        for r in records
        if r.operator == ladder.name and r.machine == machine and r.case in (case, "*")
    ]
    best: dict[str, Record] = {}
    for r in mine:
        if r.rung not in best or _rank(r) > _rank(best[r.rung]):
            best[r.rung] = r
    every = [r for r in mine if r.rung.startswith("roof:")]
    roofs = {r.run: r for r in every if r.bytes}
    products: dict[str, tuple[Record, ...]] = {}
    for r in every:
        if not r.bytes:
            products[r.run] = (*products.get(r.run, ()), r)
    peers = sorted(name for name in best if name.startswith("peer:"))
    others = [best[n] for n in (*THEIRS, *peers) if n in best and best[n].cold]
    rows: list[Row] = []
    below: Record | None = None
    for name in (*ladder.names, *peers):
        record = best.get(name)
        rung = ladder.rung(name) if name in ladder.names else None
        theirs = [o for o in others if o.rung != name and record and o.run == record.run]
        fastest = min(theirs, key=lambda o: median(o.cold), default=None)
        lower = below if rung else None
        roof = roofs.get(record.run) if record else None
        of_run = products.get(record.run, ()) if record else ()
        rows.append(Row(name, rung, record, roof, lower, fastest, _verified(mine, name), of_run))
        if record and record.cold and rung:
            below = record
    newest = roofs[max(roofs)] if roofs else None
    last = products[max(products)] if products else ()
    if too_noisy(noise):
        rows = [replace(row, below=None, best=None) for row in rows]
    return Table(ladder, machine, case, tuple(rows), newest, last)


def too_noisy(noise: float | None) -> str:
    """Why a run with this A/A noise ranks nothing, or ""."""
    if noise is None or noise <= RANKED:
        return ""
    return f"too noisy to rank: A/A noise {100 * noise:.0f}%"


def _rank(r: Record) -> tuple[bool, bool, str, float]:
    """Timed before untimed, of this case before of all cases, newer before older, then faster."""
    return bool(r.cold), r.case != "*", r.run, -median(r.cold) if r.cold else 0.0


def _verified(records: list[Record], name: str) -> Record | None:
    """The last result of verify for a rung; of several configs, a failed one if there is one."""
    found = [r for r in records if r.rung == name and r.case == "*"]
    return min(found, key=lambda r: r.outcome == "pass", default=None)


def timed_cases(ladder: Ladder, machine: str, records: Iterable[Record]) -> list[str]:
    """Ids of the cases that were timed on a machine, in the operator's order, then unknown ones."""
    seen = {
        r.case for r in records if r.operator == ladder.name and r.machine == machine and r.cold
    }
    known = [c.id for c in ladder.operator.cases if c.id in seen]
    return known + sorted(seen - set(known))


def headline(ladder: Ladder, machine: str, records: Iterable[Record]) -> Table | None:
    """The case that represents the ladder: the one timed on most rungs, then with most bytes."""
    records = list(records)
    tables = [table(ladder, machine, c, records) for c in timed_cases(ladder, machine, records)]
    return max(tables, key=telling, default=None)


def telling(table: Table) -> tuple[int, int]:
    """The sort key of representative cases: rungs timed, then bytes."""
    return len(table.timed), table.bytes


def case_named(ladder: Ladder, case_id: str) -> Case | None:
    return next((c for c in ladder.operator.cases if c.id == case_id), None)


def microseconds(us: float | None) -> str:
    """Three significant digits with a unit that fits: "812 ns", "37.2 us", "1.24 ms"."""
    if us is None:
        return ""
    for factor, unit in ((1e-3, "ns"), (1.0, "us"), (1e3, "ms"), (1e6, "s")):
        if us / factor < 999.5 or unit == "s":
            break
    return f"{_digits(us / factor)} {unit}"


def span(interval: tuple[float, float] | None) -> str:
    """An interval of microseconds in the unit of its end: "36.9 .. 37.4 us"."""
    if interval is None:
        return ""
    low, high = interval
    value, unit = microseconds(high).split()
    return f"{_digits(low / high * float(value))} .. {value} {unit}"


def rate(gbps: float | None) -> str:
    if gbps is None:
        return ""
    return f"{gbps / 1e3:.2f} TB/s" if gbps >= 999.5 else f"{_digits(gbps)} GB/s"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}%" if share < 0.1 else f"{100 * share:.0f}%"


def times(factor: float | None) -> str:
    return "" if factor is None else f"{factor:.2f}x" if factor < 9.95 else f"{factor:.0f}x"


def size(count: int) -> str:
    """Bytes: "64 MiB"."""
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if value >= 10 or value == int(value) else f"{value:.1f} {unit}"


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
