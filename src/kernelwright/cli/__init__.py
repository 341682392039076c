"""The command line: only argument parsing, one file per subject; workbench/ does the work."""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import Annotated

import typer

import kernelwright
from kernelwright.support.errors import GOOD, STOPPED, USAGE, UserError

from . import extending, learning, lessons, looking, profiling, proving, running, timing, training


def _unwrapped(doc: str) -> str:
    """A docstring whose paragraphs are one line each, so that only the terminal wraps them. A
    paragraph that begins with "\b" keeps its lines."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else p.replace("\n", " ") for p in paragraphs)


app = typer.Typer(
    name="kernelwright",
    help="GPU operators for PyTorch, each a ladder of rungs: verify them, time them, see why they "
    "are fast.",
    epilog="Start with: kernelwright list. Exit codes: 0 good, 1 a check failed, 2 wrong usage, "
    "3 nothing could be run.",
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    looking.list_,
    proving.verify,
    looking.env,
    timing.bench,
    timing.tune,
    looking.inspect,
    lessons.learn,
    learning.dissect,
    learning.debug,
    running.run,
    proving.ledger,
    timing.compare,
    timing.judge,
    learning.exercise,
    looking.report,
    learning.new,
    training.train,
    training.generate,
    extending.extension,
    profiling.profile,
):
    app.command(command.__name__.rstrip("_"), help=_unwrapped(command.__doc__ or ""))(command)


def _version(asked: bool) -> None:
    if asked:
        print(f"kernelwright {kernelwright.__version__}")
        raise typer.Exit(GOOD)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code. A user's mistake is shown in one line."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    # The base class of Typer's usage errors; Typer exports only a subclass.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=arguments, standalone_mode=False)
    except usage_error as e:  # pyright: ignore[reportGeneralTypeIssues]
        code = _say(USAGE, e.format_message(), arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _say(STOPPED, "stopped", arguments)
    except BrokenPipeError:  # the reader has closed the pipe, so no message can be delivered
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = GOOD
    except UserError as e:
        code = _say(e.exit_code, str(e), arguments)
    sys.exit(code or GOOD)


def _say(code: int, message: str, arguments: list[str]) -> int:
    print(f"kernelwright: {message}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message, "exit": code}))
    return code
