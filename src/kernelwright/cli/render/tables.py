"""Tables for the terminal and for pipes.

On a terminal, the least important columns are dropped until a table fits its width; cells are never
truncated. `--wide` keeps all columns. In a pipe, a table is tab-separated values with all columns,
and its title and notes are lines that begin with "# ".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from .terminal import Output

ALWAYS = 10  # the importance of columns that are never dropped
GAP = 2  # spaces between columns
LEAST = 24  # cells of width that a wrapped column needs, unless its texts are shorter
INDENT = 2

Cell = str | Text


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its heading.
        importance: the column with the smallest value is dropped first, one with ALWAYS never.
        right: whether it is right-aligned, for numbers.
        wraps: whether its text is wrapped to the width that the other columns leave.
        line: "above": printed on a separate line above its row, if it differs from the previous
            row; "below": on separate lines below its row; "": in the row.
        width: the minimum width, for a table whose rows are printed as they become known.
    """

    name: str
    importance: int = ALWAYS
    right: bool = False
    wraps: bool = False
    line: str = ""
    width: int = 0


@dataclass(frozen=True)
class Note:
    """A line of text about a table; in a pipe it begins with "# "."""

    text: str
    style: str = "dim"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            yield Text(self.text, self.style)
        else:
            yield Segment(f"# {self.text}\n")


class Table:
    """Rows of cells under columns; the cells of a row are in the order of the columns."""

    def __init__(
        self,
        *columns: Column,
        title: str = "",
        notes: Iterable[str] = (),
        head: bool = True,
        spaced: bool = False,
    ):
        """
        Args:
            head: whether the columns' names are shown.
            spaced: whether an empty line precedes each line "above".
        """
        self.columns, self.title, self.notes = columns, title, list(notes)
        self.head, self.spaced = head, spaced
        self.rows: list[list[Text]] = []

    def add(self, *cells: Cell) -> None:
        self.rows.append(_row(self.columns, cells))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.title:
            yield Note(self.title, "bold")
        if not console.is_terminal:
            yield from _tabbed([[Text(c.name) for c in self.columns]] if self.head else [])
            yield from _tabbed(self.rows)
        else:
            layout = _layout(self.columns, self.rows, _room(console), self.head)
            if self.head:
                yield from layout.head()
            before: list[Text] | None = None
            for row in self.rows:
                yield from layout.lines(row, before, console, spaced=self.spaced)
                before = row
            yield from layout.left_out()
        for note in self.notes:
            yield Note(note)


class Stream:
    """A table printed row by row: `print(stream.row(...))`. The columns' widths are given."""

    def __init__(self, *columns: Column):
        self.columns = columns
        self._layout: _Layout | None = None

    def row(self, *cells: Cell) -> _Streamed:
        return _Streamed(self, _row(self.columns, cells))


@dataclass(frozen=True)
class _Streamed:
    stream: Stream
    cells: list[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        stream, first = self.stream, self.stream._layout is None
        if stream._layout is None:
            stream._layout = _layout(stream.columns, [], _room(console), True)
        if not console.is_terminal:
            yield from _tabbed([[Text(c.name) for c in stream.columns]] if first else [])
            yield from _tabbed([self.cells])
            return
        if first:
            yield from stream._layout.left_out()
            yield from stream._layout.head()
        yield from stream._layout.lines(self.cells, None, console)


@dataclass(frozen=True)
class _Layout:
    """The columns that fit, and their widths."""

    columns: Sequence[Column]
    kept: list[int]  # indices of the columns in the row
    widths: dict[int, int]
    dropped: list[str] = field(default_factory=list)

    @property
    def indent(self) -> int:
        """The number of cells by which rows are indented under the lines above them."""
        return _indent(self.columns)

    def head(self) -> RenderResult:
        yield self._line({i: Text(self.columns[i].name, "dim") for i in self.kept})
        width = self.indent + sum(self.widths[i] + GAP for i in self.kept) - GAP
        yield Text("─" * width, "dim", no_wrap=True, overflow="ignore")

    def lines(
        self, row: list[Text], before: list[Text] | None, console: Console, *, spaced: bool = False
    ) -> RenderResult:
        above = [i for i, c in enumerate(self.columns) if c.line == "above" and row[i].plain]
        if above and (before is None or any(row[i].plain != before[i].plain for i in above)):
            if spaced and before is not None:
                yield Text()
            yield Text(" " * GAP).join(row[i] for i in above)
        wrapped = {
            i: row[i].wrap(console, max(self.widths[i], 1))
            for i in self.kept
            if self.columns[i].wraps and row[i].plain
        }
        for k in range(max([1, *map(len, wrapped.values())])):
            cells = {i: row[i] for i in self.kept if i not in wrapped and k == 0}
            cells |= {i: parts[k] for i, parts in wrapped.items() if k < len(parts)}
            yield self._line(cells)
        for i, column in enumerate(self.columns):
            if column.line == "below" and row[i].plain:
                for part in row[i].wrap(console, max(_room(console) - self.indent - INDENT, LEAST)):
                    yield Text(" " * (self.indent + INDENT)) + part

    def left_out(self) -> RenderResult:
        if self.dropped:
            yield Note(f"not shown: {', '.join(self.dropped)} (--wide shows all)")

    def _line(self, cells: dict[int, Text]) -> Text:
        out = Text(" " * self.indent, no_wrap=True, overflow="ignore")
        for i in self.kept:
            cell = cells.get(i, Text())
            pad = " " * max(self.widths[i] - cell.cell_len, 0)
            last = i == self.kept[-1]
            right = self.columns[i].right
            out.append(pad if right else "").append_text(cell)
            out.append("" if last else (" " * GAP if right else pad + " " * GAP))
        out.rstrip()
        return out


def _indent(columns: Sequence[Column]) -> int:
    return INDENT if any(c.line == "above" for c in columns) else 0


def _layout(columns: Sequence[Column], rows: list[list[Text]], room: int, head: bool) -> _Layout:
    widths = {
        i: max([c.width, len(c.name) if head else 0, *(r[i].cell_len for r in rows)])
        for i, c in enumerate(columns)
        if not c.line and (not rows or any(r[i].plain for r in rows))
    }
    least = {i: min(w, LEAST) if columns[i].wraps else w for i, w in widths.items()}
    kept = sorted(widths)
    dropped: list[str] = []

    def needed() -> int:
        return _indent(columns) + sum(least[i] + GAP for i in kept) - GAP

    while needed() > room:
        i = min(kept, key=lambda i: columns[i].importance)
        if columns[i].importance >= ALWAYS:
            break
        kept.remove(i)
        dropped.append(columns[i].name)
    spare = room - needed()
    for i in kept:
        if columns[i].wraps:
            more = max(min(widths[i] - least[i], spare), 0)
            least[i], spare = least[i] + more, spare - more
    return _Layout(columns, kept, least, dropped)


def _room(console: Console) -> int:
    """The available width in cells; with --wide, unlimited."""
    wide = isinstance(console, Output) and console.wide
    return 1 << 30 if wide else console.width


def _row(columns: Sequence[Column], cells: Sequence[Cell]) -> list[Text]:
    assert len(cells) == len(columns), (cells, columns)
    return [c if isinstance(c, Text) else Text(c) for c in cells]


def _tabbed(rows: Iterable[Sequence[Text]]) -> RenderResult:
    for row in rows:
        cells = (" ".join(cell.plain.split()) for cell in row)
        yield Segment("\t".join(cells) + "\n")  # a Text would replace the tabs by spaces
