"""Files of records and tables: JSON, written atomically and checked when read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.support.errors import WRONG, UserError


class Damaged(UserError, RuntimeError):
    """A file's content is damaged; the message names the file and the line."""

    exit_code = WRONG

    def __init__(self, path: Path, line: int, why: str):
        super().__init__(
            f"{path}:{line}: {why}: the file is damaged; take it from a copy (git checkout), or "
            "remove the line and measure again"
        )


def lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, record) of each line of a .jsonl file; nothing if there is no file.

    Raises:
        Damaged: a line is not a record, or the file ends in the middle of one.
    """
    if not path.exists():
        return
    text = path.read_bytes()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if line.strip():
            record = _parsed(path, number, line)
            if not isinstance(record, dict):
                raise Damaged(path, number, "is not a record")
            if not line.endswith(b"\n"):
                raise Damaged(path, number, "ends without a line break, cut short")
            yield number, record


def document(path: Path, default: Any) -> Any:
    """The contents of a .json file; `default` if there is no file.

    Raises:
        Damaged: it is not JSON.
    """
    return _parsed(path, 1, path.read_bytes()) if path.exists() else default


def write(path: Path, text: str) -> None:
    """Write a file atomically: a reader sees either the old or the new content, even if this
    process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _parsed(path: Path, first: int, text: bytes) -> Any:
    """`first`: the number of the text's first line."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as e:
        at = first + e.lineno - 1
        raise Damaged(path, at, f"is not JSON from column {e.colno} on ({e.msg})") from None
    except UnicodeDecodeError as e:
        at = first + text.count(b"\n", 0, e.start)
        raise Damaged(path, at, "has bytes that are not text") from None
