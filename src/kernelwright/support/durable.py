"""Atomic, durable file writes: a file gets its name only after all of it is on the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import INCONCLUSIVE, UserError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class WriteError(UserError, RuntimeError):
    """A file could not be written; the message says where and why."""

    exit_code = INCONCLUSIVE


def write(path: Path, chunks: Iterable[Any]) -> str:
    """Write a file under a temporary name, flush it to the disk, and rename it.

    Args:
        chunks: what the file holds, in bytes or buffers of bytes.

    Returns:
        The SHA-256 of the contents.

    Raises:
        WriteError: the disk is full, or the file cannot be written.
    """
    digest, aside = hashlib.sha256(), path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(aside, "wb") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
        sync_folder(path.parent)
    except OSError as e:
        aside.unlink(missing_ok=True)
        raise refused(path, e) from e
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a user's file completely or not at all; a device such as /dev/stdout is written to.

    Raises:
        WriteError: the disk is full, or the file cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
    else:
        write(path, [text.encode()])


@contextmanager
def new_folder(path: Path) -> Generator[Path]:
    """A folder for the files of a new one, which gets its name after all of them are written.

    Raises:
        WriteError: the disk is full, or a file cannot be written; nothing is left.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        aside.mkdir(parents=True)
        yield aside
        aside.rename(path)
    except OSError as e:
        raise refused(path, e) from e
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a folder that may not be read, a name that is too long
        return False


def refused(path: Path, why: OSError) -> WriteError:
    """The error for a file that cannot be written."""
    there = next(p for p in (path.absolute(), *path.absolute().parents) if _exists(p))
    if why.errno not in _FULL:
        return WriteError(f"{path} cannot be written: {why.strerror}; choose another path")
    free = shutil.disk_usage(there).free >> 20
    return WriteError(
        f"{path} cannot be written: {why.strerror} ({free} MiB free on its disk); make room or "
        "choose another folder"
    )
