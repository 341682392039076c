"""Options, printing and progress that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelwright.support.errors import UsageError

if TYPE_CHECKING:
    from .render.terminal import Output

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Wide = Annotated[
    bool,
    typer.Option("--wide", help="Show all columns of tables, however narrow the terminal is."),
]
Record = Annotated[
    bool,
    typer.Option(
        "--record",
        help="Save the result in $KW_RECORDS; if unset, in the user's data directory, or in a "
        "checkout in its records/. The command prints the location.",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Take only a few samples of each case, and each shape in one dtype."
    ),
]
Cases = Annotated[
    list[str] | None,
    typer.Option(help="A case's id, or words from its label (gpt-2). Repeatable."),
]


def printing(as_json: bool, wide: bool = False) -> AbstractContextManager[Output]:
    from .render import terminal

    return terminal.output(as_json, wide)


def waiting(what: str, out: Output) -> AbstractContextManager[Callable[[str], None]]:
    from .render import terminal

    return terminal.waiting(what, out)


def recorded(out: Output, folder: object) -> None:
    out.print(f"recorded in {folder}", markup=False, soft_wrap=True)


def writable(path: Path) -> None:
    """Raises UsageError if a page cannot be written, before any work is done."""
    if path.is_dir() or not path.parent.is_dir():
        missing = (
            f"{path} is a folder; give a file"
            if path.is_dir()
            else f"there is no folder {path.parent}; create it first"
        )
        raise UsageError(f"--html: {missing}")
