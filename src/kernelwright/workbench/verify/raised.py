"""What a rung, a peer or a user's function raised, as its outcome."""

from __future__ import annotations

import traceback
from pathlib import Path

from kernelwright.contract import Ladder
from kernelwright.support.errors import NoSpace


def one_line(e: Exception) -> str:
    """An exception in a line.

    Raises:
        NoSpace: it is that. What fails for want of space is no fault of what was tried, and what
            is tried next would fail too.
    """
    if isinstance(e, NoSpace):
        raise e
    return f"{type(e).__name__}: {next(iter(str(e).splitlines()), '')}"


def in_folder(ladder: Ladder, e: Exception) -> str:
    """An exception whole, and the innermost line of the ladder's folder that was running.

    Raises:
        NoSpace: as `one_line`.
    """
    if isinstance(e, NoSpace):
        raise e
    frames = traceback.extract_tb(e.__traceback__)
    lines = [f for f in frames if Path(f.filename).parent == ladder.folder]
    where = f" ({Path(lines[-1].filename).name}:{lines[-1].lineno})" if lines else ""
    return f"{type(e).__name__}: {e}{where}"
