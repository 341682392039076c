"""The rungs of a ladder on one case in three groups; in the middle one each step is faster."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.workbench.records.metrics import Row, Table
from kernelwright.workbench.records.records import ratio

#: The fraction by which a step may be slower than the previous one: the noise of a good run.
LEVEL = 0.01


@dataclass(frozen=True)
class Steps:
    """Rows of a table.

    Attributes:
        baselines: PyTorch's rungs and other libraries.
        sequence: the teaching sequence: the longest series of rungs written here, in the ladder's
            order, in which each is at least as fast as the previous one.
        others: the remaining rungs written here: alternatives for other shapes, and rungs that are
            not timed on this case.
    """

    baselines: tuple[Row, ...]
    sequence: tuple[Row, ...]
    others: tuple[Row, ...]

    def over_previous(self, row: Row) -> float | None:
        """The speedup of a row of the sequence over the previous one."""
        if row not in self.sequence[1:] or row.record is None:
            return None
        before = self.sequence[self.sequence.index(row) - 1].record
        return ratio(row.record, before) if before else None


def steps(table: Table) -> Steps:
    """The groups of a table's rows. If no rung written here is timed, all are in the sequence."""
    mine = [r for r in table.rows if r.rung and r.rung.is_ours]
    timed = [r for r in mine if r.timed]
    sequence = _rising(timed) if timed else mine
    return Steps(
        tuple(r for r in table.rows if r not in mine),
        tuple(sequence),
        tuple(r for r in mine if r not in sequence),
    )


def _rising(rows: list[Row]) -> list[Row]:
    """The longest series of rows that do not become slower; if there are several, the one that ends
    fastest, then the one whose earlier steps come first."""
    best: list[list[Row]] = []
    for row in rows:
        before = [s for s in best if (s[-1].cold or 0) * (1 + LEVEL) >= (row.cold or 0)]
        best.append([*max(before, key=len, default=[]), row])
    return max(best, key=lambda s: (len(s), -(s[-1].cold or 0)))
