"""Options, printing and progress that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from .render.terminal import Output

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
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


def printing(as_json: bool) -> AbstractContextManager[Output]:
    from .render import terminal

    return terminal.output(as_json)


def waiting(what: str, out: Output) -> AbstractContextManager[Callable[[str], None]]:
    from .render import terminal

    return terminal.waiting(what, out)


def recorded(out: Output, folder: object) -> None:
    out.print(f"recorded in {folder}", markup=False, soft_wrap=True)
