"""The results of a lesson's measurement."""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.workbench.report.strips import Strip

EMULATOR = "counted in the emulator"
COMPUTED = "computed from the figures stated in the text"
COMPILED = "read from the code that the compilers write for an H200"
RECORD = "recorded on an NVIDIA H200, not measured here"
HERE = "measured on this machine"

Cell = str | int | float


@dataclass(frozen=True)
class Table:
    """Rows of figures.

    Attributes:
        name: its name in the text.
        title: what the rows show.
        columns: headings; the first column names the row.
        source: the origin of the figures, one of the constants above.
    """

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    source: str

    def cell(self, row: str, column: str) -> Cell:
        """Raises:
        KeyError: there is no such row or column.
        """
        cells = next((r for r in self.rows if str(r[0]) == row), None)
        if cells is None or column not in self.columns:
            raise KeyError(f"table {self.name} has no cell {row!r}, {column!r}")
        return cells[self.columns.index(column)]

    def is_figures(self, column: int) -> bool:
        """Whether all cells of a column are numbers, with or without a unit."""
        texts = [shown(row[column]) for row in self.rows]
        return all(t[:1].isdigit() or t[:1] in "+-" for t in texts)


@dataclass(frozen=True)
class Picture:
    """A picture of the run; `notes` explain what a cell is."""

    title: str
    notes: tuple[str, ...]
    strips: tuple[Strip, ...]


@dataclass(frozen=True)
class Measured:
    """Results that are the same on every machine: counts, figures of records, and values derived
    from them. `versions`: the versions of the compilers on which they depend, if any."""

    tables: tuple[Table, ...]
    picture: Picture
    versions: str = ""

    def table(self, name: str) -> Table:
        """Raises:
        KeyError: there is no such table.
        """
        table = next((t for t in self.tables if t.name == name), None)
        if table is None:
            raise KeyError(f"no table {name}")
        return table


def shown(value: Cell) -> str:
    """A figure as text."""
    if isinstance(value, float):
        whole = abs(value) >= 1000 or value.is_integer()
        return f"{value:,.0f}" if whole else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else value
