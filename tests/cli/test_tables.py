"""Tables on terminals of any width and in pipes, and every command's at 80 columns."""

import contextlib
import io
import os
import pty
import random
import re
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import typer
from rich.console import Console
from rich.text import Text

import kernelwright
from kernelwright.cli import app
from kernelwright.cli.render import tables
from kernelwright.cli.render.tables import ALWAYS, Column, Stream, Table

SOURCE = Path(kernelwright.__file__).parents[1]
COMMANDS = typer.main.get_command(app).commands


def on_a_terminal(found, width):
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=True, color_system=None).print(found, crop=False)
    return out.getvalue().splitlines()


def piped(found):
    out = io.StringIO()
    Console(file=out, width=80).print(found, soft_wrap=True)
    return out.getvalue().splitlines()


def made_up(rng):
    """A table with random columns, and its rows."""
    columns = [Column("name")]
    for k in range(rng.randint(1, 9)):
        importance = rng.randint(0, ALWAYS - 1)
        columns.append(Column(f"c{k}" * rng.randint(1, 4), importance, rng.random() < 0.5))
    if rng.random() < 0.5:
        columns.append(Column("text", rng.randint(0, ALWAYS), wraps=True))
    if rng.random() < 0.3:
        columns.append(Column("on a line", line=rng.choice(("above", "below"))))
    table = Table(*columns, title="a title")
    rows = []
    for i in range(rng.randint(1, 6)):
        rows.append([f"name{i}"])
        for c in columns[1:]:
            words = [f"{rng.randrange(10 ** rng.randint(1, 9))}" for _ in range(8 * c.wraps or 1)]
            rows[-1].append(" ".join(words))
        table.add(*rows[-1])
    return table, columns, rows


@pytest.mark.parametrize("seed", range(40))
def test_a_table_fits_and_no_cell_is_cut(seed):
    rng = random.Random(seed)
    table, columns, rows = made_up(rng)
    width = rng.randint(40, 120)
    lines = on_a_terminal(table, width)
    assert max(map(len, lines)) <= width, lines
    said = " ".join(" ".join(lines).split())
    dropped = re.findall(r"not shown: (.*) \(", said)
    gone = [i for i, c in enumerate(columns) if dropped and c.name in dropped[0].split(", ")]
    for row in rows:
        for i, cell in enumerate(row):
            if i not in gone:
                assert all(word in said for word in cell.split()), (cell, lines)
    kept = [c.importance for i, c in enumerate(columns) if i not in gone and not c.line]
    assert all(columns[i].importance <= min(kept) for i in gone)
    assert "…" not in said


@pytest.mark.parametrize("seed", range(10))
def test_a_pipe_gets_every_column_separated_by_tabs(seed):
    table, columns, rows = made_up(random.Random(seed))
    title, *lines = piped(table)
    assert title == "# a title"
    assert [line.split("\t") for line in lines] == [[c.name for c in columns], *rows]


def test_a_wide_table_has_every_column(monkeypatch):
    table, columns, _ = made_up(random.Random(3))
    monkeypatch.setattr(tables, "_room", lambda console: 1 << 30)
    head = on_a_terminal(table, 40)[1]
    assert [c.name for c in columns if not c.line] == re.split(r"\s{2,}", head.strip())


def test_a_group_heading_is_printed_when_it_changes():
    table = Table(Column("operator", line="above"), Column("rung"))
    for operator, rung in (("sum", "a"), ("sum", "b"), ("gelu", "a")):
        table.add(operator, rung)
    assert [x.strip() for x in on_a_terminal(table, 80)[2:]] == ["sum", "a", "b", "gelu", "a"]


def test_a_streamed_table_has_one_header():
    stream = Stream(Column("rung", width=6), Column("why", line="below"))
    rows = [stream.row("a", ""), stream.row(Text("b"), "wrong")]
    first, second = (on_a_terminal(row, 80) for row in rows)
    assert [x.strip() for x in first] == ["rung", "─" * 6, "a"]
    assert [x.strip() for x in second] == ["b", "wrong"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_parameter_is_described(name):
    assert all(getattr(p, "help", "") for p in COMMANDS[name].params), name


@pytest.mark.long
@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_wrapped_once(name):
    """At 80 columns, a line of help ends where the next word no longer fits."""
    lines = pages()[f"{name} --help"]
    text = lines[: next(i for i, line in enumerate(lines) if line.startswith("╭"))]
    assert max(map(len, text)) <= 80
    for line, following in pairwise(text):
        prose = line.startswith(" ") and following[:1] == " " and following[1:2].strip()
        if prose and not line.startswith("  ") and not re.search(r"\S {2,}\S", line + following):
            assert len(line.rstrip()) + 1 + len(following.split()[0]) > 78, (line, following)
    for line in text:
        if line.startswith("   kernelwright"):
            assert len(line.rstrip()) <= 80 and not line.rstrip().endswith("--case"), line


SHOWN = {
    "list": "dispatched",
    "list softmax --wide": "idea",
    "exercise": "not started",
    "ledger": "proven on",
    "env --no-roofs": "cores",
    "inspect softmax.cuda_warp": "registers",
    "dissect sum.cuda_strided": "conflicts",
    "verify sum.native sum.manual": "worst error",
    "verify sum.cuda_strided --check bounds": "schedules",
    "bench dropout --case 3x5000-f32-p=0.5 --quick": "timed here",
    "compare sum.native sum.manual --case 3x5000-f32-dim=None --quick": "A/A noise",
}
FOUND: dict[str, list[str]] = {}


def pages():
    """The output of commands on a terminal of 80 columns; one process runs all commands."""
    if not FOUND:
        commands = [*SHOWN, *(f"{name} --help" for name in COMMANDS)]
        code = (
            "import sys\nfrom kernelwright.cli import main\n"
            f"for words in {commands!r}:\n"
            "    print('\\n@@', words, flush=True)\n"
            "    try: main(words.split())\n"
            "    except SystemExit: pass\n"
        )
        for part in screen(in_a_terminal(code, 80)).split("\n@@ ")[1:]:
            words, *lines = part.split("\n")
            FOUND[words] = [x for x in lines if not x.startswith("kernelwright: ")]
    return FOUND


def screen(written):
    """The contents of a terminal after some output, without the erased spinners."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\r\n\x1b]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\r\x1b":
            lines[row] += part
    return "\n".join(lines)


def in_a_terminal(code, width):
    import fcntl
    import termios

    here, there = pty.openpty()
    fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    environment |= {"PYTHONPATH": str(SOURCE), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=there, stdout=there, stderr=there, env=environment
    ) as child:
        os.close(there)
        found = b""
        with contextlib.suppress(OSError):  # raised by Linux if the other end is closed
            while part := os.read(here, 1 << 16):
                found += part
        assert child.wait() == 0, found[-2000:]
    os.close(here)
    return found.decode()


@pytest.mark.long
@pytest.mark.parametrize("words", SHOWN)
def test_every_command_fits_80_columns(words):
    lines = pages()[words]
    assert SHOWN[words] in "\n".join(lines), lines[-20:]
    assert "…" not in "".join(lines)
    if "--wide" in words:
        assert max(map(len, lines)) > 80
    else:
        assert max(map(len, lines)) <= 80, max(lines, key=len)
