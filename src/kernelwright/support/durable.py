"""Atomic, durable file writes: a file gets its name only after all of it is on the disk."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterable
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


def refused(path: Path, why: OSError) -> WriteError:
    """The error for a file that cannot be written."""
    there = next(p for p in (path, *path.parents) if p.exists())
    if why.errno not in _FULL:
        return WriteError(f"{path} cannot be written: {why.strerror}")
    free = shutil.disk_usage(there).free >> 20
    return WriteError(
        f"{path} cannot be written: {why.strerror} ({free} MiB free on its disk); make room or "
        "choose another folder"
    )
