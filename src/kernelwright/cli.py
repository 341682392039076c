"""The command line: argument parsing only. What it calls is in workbench/."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

GOOD, FAILED, USAGE, NOTHING = 0, 1, 2, 3

app = typer.Typer(
    name="kernelwright",
    help="GPU operators for PyTorch, every one a ladder: verify it, time it, see why it is fast.",
    epilog="Start with: kernelwright list. Exit codes: 0 good, 1 a check failed, 2 wrong usage, "
    "3 nothing could run.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Record = Annotated[
    bool, typer.Option("--record", help="Keep the outcome in the records (or in $KW_RECORDS).")
]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code. A user's mistake is one line, no traceback."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # Typer's usage errors, by the base class of the one that it exports.
    usage_error = typer.BadParameter.__mro__[1]
    try:
        code = app(args=arguments, standalone_mode=False)
    except usage_error as e:
        code = _say(USAGE, e.format_message(), arguments)
    except (KeyboardInterrupt, typer.Abort):
        code = _say(130, "stopped", arguments)
    except BrokenPipeError:  # the reader of a pipe has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = GOOD
    except Exception as e:
        known = _designed(e)
        if known is None:
            raise
        code = _say(known, str(e), arguments)
    sys.exit(code or GOOD)


def _designed(e: Exception) -> int | None:
    """The exit code of an error that the library raises in words for its user, or None."""
    from kernelwright.contract import UnknownRung, Unsupported
    from kernelwright.dispatch import UnknownOperator
    from kernelwright.toolchain import ToolchainError
    from kernelwright.workbench.scaffold import CannotScaffold

    if isinstance(e, (UnknownOperator, UnknownRung, CannotScaffold)):
        return USAGE
    if isinstance(e, (Unsupported, ToolchainError)):
        return NOTHING
    return None


def _say(code: int, message: str, arguments: list[str]) -> int:
    print(f"kernelwright: {message}", file=sys.stderr)
    if "--json" in arguments:
        print(json.dumps({"error": message, "exit": code}))
    return code


@contextmanager
def _output(as_json: bool) -> Iterator[Console]:
    """The console to print on. With --json nothing but `_emit` reaches standard output: whatever
    a compiler or a library prints meanwhile goes to standard error."""
    from kernelwright.workbench import show

    if not as_json:
        yield show.console()
        return
    global _real_stdout
    sys.stdout.flush()
    _real_stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield show.console(stderr=True)
    finally:
        sys.stdout.flush()
        os.dup2(_real_stdout, 1)
        os.close(_real_stdout)
        _real_stdout = None


_real_stdout: int | None = None


def _emit(document: Any) -> None:
    """Write the one JSON document of a command."""
    assert _real_stdout is not None
    text = json.dumps(document, indent=1, default=_plain) + "\n"
    with os.fdopen(os.dup(_real_stdout), "w", encoding="utf-8") as out:
        out.write(text)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


@contextmanager
def _waiting(what: str, out: Console) -> Iterator[Callable[[str], None]]:
    """A spinner while something takes its time; yields a function that changes its words.

    It stands on the console that is printed to where that is a terminal, so that lines go above
    it, and on standard error otherwise.
    """
    from kernelwright.workbench import show

    where = out if out.is_terminal else show.console(stderr=True)
    with where.status(what) as status:
        yield status.update


def _operators(names: list[str] | None) -> list[str]:
    """The names as given; a folder (anything with a slash) is imported and stands for the
    operators in it."""
    found: list[str] = []
    for name in names or ():
        if "/" in name:
            from kernelwright.workbench import scaffold

            found += scaffold.load(Path(name))
        else:
            found.append(name)
    return found


@app.command("list")
def list_(as_json: Json = False) -> int:
    """Operators, their rungs in order, what works here and which rung serves.

    \b
    Examples:
      kernelwright list
      kernelwright list --json | jq '.operators[].name'
    """
    with _output(as_json) as out:
        with _waiting("reading the ladders", out):
            from kernelwright.workbench import listing, show

            found = listing.listing()
        if as_json:
            _emit(found)
        else:
            out.print(show.listing(found))
    return GOOD


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OP | OP.RUNG ...]", help="None: everything.", show_default=False),
    ] = None,
    record: Record = False,
    as_json: Json = False,
) -> int:
    """Prove rungs right against float64, adversarial inputs included.

    An error may be twice what PyTorch's own operator makes, plus 2 ulp. Without a GPU, Triton
    rungs are interpreted, Numba rungs simulated and CUDA C++ rungs compiled.

    \b
    Examples:
      kernelwright verify
      kernelwright verify softmax
      kernelwright verify softmax.triton_row --json
    """
    with _output(as_json) as out:
        from kernelwright.workbench import show
        from kernelwright.workbench import verify as module

        with _waiting("verifying", out):
            shown = None if as_json else lambda row: out.print(show.verified(row))
            result = module.verify(_operators(names), on_result=shown)
        if record:
            from kernelwright.workbench import env, records

            here = env.environment()
            records.save(result.records(here["machine"], here["run"]), here)
        if as_json:
            _emit({"ok": result.ok, "ran": result.ran, "rows": result.rows})
        else:
            out.print(show.verify_summary(result))
    return result.exit_code


@app.command()
def report(
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")] = Path(
        "report.html"
    ),
    as_json: Json = False,
) -> int:
    """One self-contained HTML page from the records: ladders, rooflines, sources, diffs.

    \b
    Examples:
      kernelwright report
      kernelwright report -o /tmp/ladders.html
    """
    if not output.parent.is_dir():
        raise typer.BadParameter(f"-o: there is no folder {output.parent}")
    with _output(as_json) as out:
        with _waiting("drawing the report", out):
            import kernelwright.ops  # noqa: F401
            from kernelwright.workbench import report as module

            size = module.write(output)
        if as_json:
            _emit({"file": str(output), "bytes": size})
        else:
            out.print(f"{output}: {size / 1e6:.1f} MB, opens offline in any browser")
    return GOOD


@app.command()
def new(
    op: Annotated[str, typer.Argument(metavar="OP", help="A Python name in lower case.")],
    into: Annotated[
        Path | None,
        typer.Option(help="The folder to put it in; default: ops/ of this checkout."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Scaffold an operator: a folder that verifies as written, to be changed from there.

    \b
    Examples:
      kernelwright new squared_relu
      kernelwright new squared_relu --into . && kernelwright verify ./squared_relu
    """
    with _output(as_json) as out:
        from kernelwright.workbench import scaffold

        written = scaffold.new(op, into)
        if as_json:
            _emit({"operator": op, "files": [str(p) for p in written]})
        else:
            for path in written:
                out.print(path)
            name = written[0].parent.resolve() if into else op
            out.print(f"next: kernelwright verify {name}")
    return GOOD


if __name__ == "__main__":
    main()
