"""Compiled kernels on disk, found by the content they were made from.

An entry is a folder of plain files. It is written under a temporary name and renamed, so that a
reader sees all of it or nothing, and two processes may write the same entry at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

from .errors import ToolchainError
from .settings import settings


def key(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over the parts; where one ends and the next begins counts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def get(kind: str, entry: str) -> dict[str, bytes] | None:
    """The files of an entry, or None where it does not exist."""
    folder = path(kind, entry)
    if not folder.is_dir():
        return None
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def put(kind: str, entry: str, files: dict[str, bytes]) -> None:
    """Write an entry, unless another process was first."""
    target = path(kind, entry)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=target.parent))
    for name, data in files.items():
        (temporary / name).write_bytes(data)
    try:
        temporary.rename(target)
    except OSError:
        shutil.rmtree(temporary)
        if not target.is_dir():
            raise


def path(kind: str, entry: str) -> Path:
    """Where an entry is, or would be."""
    return root() / kind / entry[:2] / entry


def root() -> Path:
    """The cache's folder, made where it is missing, mode 0700.

    Raises:
        ToolchainError: it cannot be made, or others own it or may write to it: they could plant
            code that this process would run.
    """
    folder = settings().cache
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = os.stat(folder)
    except OSError as e:
        raise ToolchainError(
            f"the cache folder {folder} cannot be made ({e.strerror}); set KW_CACHE to another one"
        ) from None
    if facts.st_uid != os.getuid():
        raise ToolchainError(
            f"the cache folder {folder} belongs to another user; set KW_CACHE to a folder of yours"
        )
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ToolchainError(
            f"the cache folder {folder} is writable by others; run chmod go-w on it"
        )
    return folder
