"""Output of commands: tables or one JSON document on standard output, progress on standard
error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, is_dataclass
from typing import Any

from rich.console import Console

from kernelwright.support.errors import UsageError, UserError


@contextmanager
def checked() -> Generator[None, None, None]:
    """Turn a ValueError about an argument into a usage error."""
    try:
        yield
    except ValueError as e:
        if isinstance(e, UserError):
            raise
        raise UsageError(str(e)) from None


class Output(Console):
    """A console that does not wrap lines unless it is a terminal; `emit` writes JSON.

    Attributes:
        wide: whether tables keep all columns, however narrow the terminal is.
    """

    def __init__(self, document: int | None, wide: bool = False):
        super().__init__(stderr=document is not None, highlight=False)
        self._document = document
        self.wide = wide

    def print(self, *objects: Any, **options: Any) -> None:
        """Print without cropping; in a pipe also without wrapping."""
        options.setdefault("crop", False)
        options.setdefault("soft_wrap", not self.is_terminal)
        super().print(*objects, **options)

    def emit(self, document: Any) -> None:
        """Write the one JSON document of a command."""
        assert self._document is not None
        text = json.dumps(document, indent=1, default=_plain) + "\n"
        with os.fdopen(os.dup(self._document), "w", encoding="utf-8") as out:
            out.write(text)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return str(value)


@contextmanager
def output(as_json: bool, wide: bool = False) -> Generator[Output, None, None]:
    """The console of a command. With `as_json` only `emit` writes to standard output; the output of
    compilers and libraries is redirected to standard error. `wide`: see Output."""
    if not as_json:
        yield Output(None, wide)
        return
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield Output(real)
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)


@contextmanager
def waiting(what: str, out: Console) -> Generator[Callable[[str], None], None, None]:
    """A spinner during a long step; yields a function that changes its text.

    It is drawn on the output console if that is a terminal, so that other lines appear above it,
    and on standard error otherwise.
    """
    where = out if out.is_terminal else Console(stderr=True, highlight=False)
    with where.status(what) as status:
        yield status.update
