"""The command line: only argument parsing, one file per subject; workbench/ does the work."""

from __future__ import annotations

import inspect
import json
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import kernelwright
from kernelwright.support.errors import GOOD, INCONCLUSIVE, STOPPED, USAGE, UserError

from . import (
    exporting,
    extending,
    layouts,
    learning,
    lessons,
    looking,
    profiling,
    proving,
    running,
    serving,
    timing,
    training,
)


def _unwrapped(doc: str) -> str:
    """A docstring whose paragraphs are one line each, so that only the terminal wraps them. A
    paragraph that begins with "\b" keeps its lines."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(p if p.startswith("\b") else p.replace("\n", " ") for p in paragraphs)


HELP = """GPU operators for PyTorch, implemented step by step. Verify, time and study every step.

Each implementation of an operator is a rung, named OP.RUNG. All commands work without a GPU: Triton
rungs are interpreted, CUDA C++ rungs emulated, and times from an H200 are shown.

\b
First steps:
  kernelwright list softmax                 the rungs of an operator
  kernelwright verify softmax.triton_row    is it correct?
  kernelwright bench softmax --quick        how fast is it?
  kernelwright judge FILE.py:FN --as OP     both, for your own kernel
  kernelwright learn                        ten lessons on CUDA
"""
GROUPS = {
    "Operators": (looking.list_, proving.verify, timing.bench, timing.tune, timing.compare),
    "What a kernel does": (looking.inspect, learning.dissect, learning.debug, profiling.profile),
    "Your own code": (timing.judge, running.run, learning.new, extending.extension),
    "Learn": (lessons.learn, learning.exercise, layouts.layout),
    "Language models": (
        training.train,
        training.generate,
        serving.serve,
        serving.bench_serve,
        exporting.export,
    ),
    "This machine and the records": (looking.env, proving.ledger, looking.report),
}
# What other tools call our commands.
SYNONYMS = {
    "autotune": "tune", "benchmark": "bench", "build": "inspect", "check": "verify",
    "diff": "compare", "disassemble": "inspect", "doctor": "env", "examples": "learn",
    "explain": "list", "info": "list", "lesson": "learn", "ls": "list",
    "ncu": "profile", "sanitize": "verify", "show": "list", "system": "env", "test": "verify",
    "time": "bench", "tutorial": "learn",
}  # fmt: skip

app = typer.Typer(
    name="kernelwright",
    help=_unwrapped(HELP),
    epilog="kernelwright COMMAND --help shows examples. Exit codes: 0 good, 1 a check failed, "
    "2 wrong usage, 3 nothing could be run.",
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group, commands in GROUPS.items():
    for command in commands:
        app.command(
            command.__name__.rstrip("_").replace("_", "-"),
            help=_unwrapped(command.__doc__ or ""),
            rich_help_panel=group,
        )(command)


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
        code = _say(USAGE, e.format_message() + _suggested(e, arguments), arguments)
        print(_instead(e), file=sys.stderr)
    except (KeyboardInterrupt, typer.Abort):
        code = _say(STOPPED, "stopped", arguments)
    except BrokenPipeError:  # the reader has closed the pipe, so no message can be delivered
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = GOOD
    except UserError as e:
        code = _say(e.exit_code, str(e), arguments)
    except OSError as e:
        if not isinstance(e.filename, (str, bytes)):
            code = _crashed(e, arguments)
        else:
            from kernelwright.support import durable

            path = Path(re.sub(r"\.\d+\.tmp$", "", os.fsdecode(e.filename)))
            code = _say(INCONCLUSIVE, str(durable.refused(path, e)), arguments)
    except Exception as e:  # noqa: BLE001  Python's exit code 1 means that a check failed
        code = _crashed(e, arguments)
    sys.exit(code or GOOD)


def _crashed(error: Exception, arguments: list[str]) -> int:
    """An error of Kernelwright itself: its traceback, and an exit code that is no verdict."""
    import traceback

    traceback.print_exc()
    kind = type(error).__name__
    return _say(INCONCLUSIVE, f"internal error, please report it: {kind}: {error}", arguments)


def _suggested(error: Any, arguments: list[str]) -> str:
    """The command that an unknown name probably stands for, as a part of the message."""
    meant = SYNONYMS.get(next((a for a in arguments if not a.startswith("-")), ""))
    message = error.format_message()
    unknown = message.startswith("No such command") and "Did you mean" not in message
    return f" Did you mean '{meant}'?" if unknown and meant else ""


def _instead(error: Any) -> str:
    """What to type after a mistake in the usage: the command's first example and its help."""
    context = error.ctx
    lines = ((context.command.help if context else "") or "").splitlines()
    begin = next((i for i, x in enumerate(lines) if x.strip() == "Examples:"), None)
    example = [] if begin is None else [f"  example:  {lines[begin + 1].strip()}"]
    own = context.command.name if context and context.parent else ""
    path = f"kernelwright {own}".strip()
    what = "options" if example else "commands"
    return "\n".join([*example, f"  all {what}:  {path} --help"])


def _say(code: int, message: str, arguments: list[str]) -> int:
    print(f"kernelwright: {message}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message, "exit": code}))
    return code
