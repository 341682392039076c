"""The rungs of a ladder on one case in three groups, so that the steps of the middle one rise."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.workbench.records.metrics import Row, Table
from kernelwright.workbench.records.records import ratio

#: A step may be slower than the one before it by this, as a fraction: the noise of a good run.
LEVEL = 0.01


@dataclass(frozen=True)
class Steps:
    """Rows of a table.

    Attributes:
        baselines: PyTorch's rungs and other libraries.
        sequence: the teaching sequence: of the rungs written here the longest series, in the
            ladder's order, in which each is as fast as the one before or faster.
        others: the remaining rungs written here: alternatives for other shapes, and rungs that are
            not timed on this case.
    """

    baselines: tuple[Row, ...]
    sequence: tuple[Row, ...]
    others: tuple[Row, ...]

    def over_previous(self, row: Row) -> float | None:
        """How many times as fast a row of the sequence is as the one before it."""
        if row not in self.sequence[1:] or row.record is None:
            return None
        before = self.sequence[self.sequence.index(row) - 1].record
        return ratio(row.record, before) if before else None


def steps(table: Table) -> Steps:
    """The groups of a table's rows. Where no rung written here is timed, all are the sequence."""
    mine = [r for r in table.rows if r.rung and r.rung.is_ours]
    timed = [r for r in mine if r.timed]
    sequence = _rising(timed) if timed else mine
    return Steps(
        tuple(r for r in table.rows if r not in mine),
        tuple(sequence),
        tuple(r for r in mine if r not in sequence),
    )


def _rising(rows: list[Row]) -> list[Row]:
    """The longest series of rows that do not become slower; of several, the one that ends fastest,
    then the one whose earlier steps come first."""
    best: list[list[Row]] = []
    for row in rows:
        before = [s for s in best if (s[-1].cold or 0) * (1 + LEVEL) >= (row.cold or 0)]
        best.append([*max(before, key=len, default=[]), row])
    return max(best, key=lambda s: (len(s), -(s[-1].cold or 0)))
