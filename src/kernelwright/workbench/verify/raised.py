"""Exceptions of a rung, a peer or a user's function as the text of an outcome."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernelwright.contract import Ladder
from kernelwright.support.errors import NoSpace


def one_line(e: Exception) -> str:
    """An exception in one line.

    Raises:
        NoSpace: if the exception is one: a full disk is not the candidate's fault, and every later
            candidate would fail too.
    """
    if isinstance(e, NoSpace):
        raise e
    return f"{type(e).__name__}: {next(iter(str(e).splitlines()), '')}"


def in_folder(ladder: Ladder, e: Exception) -> str:
    """The full text of an exception, with the innermost line in the ladder's folder.

    Raises:
        NoSpace: see `one_line`.
    """
    if isinstance(e, NoSpace):
        raise e
    frames = traceback.extract_tb(e.__traceback__)
    lines = [f for f in frames if Path(f.filename).is_relative_to(ladder.folder)]
    where = f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""
    return f"{type(e).__name__}: {e}{where}"
