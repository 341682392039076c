"""Compiled kernels on disk, found by the content they were made from.

`get_or_build` is the one way to an entry, a folder of plain files and their checksums. One process
builds it, under a lock that ends with the process, while others wait for it; it is written aside
and renamed, read only where its checksums hold, and built again where they do not.

    <cache>/<kind>/<ab>/<key>/            an entry: its files, and SHA256SUMS
    <cache>/building/<digest>.lock        held by a process that builds
    <cache>/building/<digest>/            what it has written so far
"""

from __future__ import annotations

import atexit
import errno
import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import cache as once
from pathlib import Path

from .errors import CompileError, NoSpace, ToolchainError
from .progress import waiting
from .settings import settings

SUMS = "SHA256SUMS"  # as sha256sum writes it
Files = dict[str, bytes]
_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
#: What an entry's files looked like when their checksums were compared last.
_compared: dict[Path, list[tuple[str, int, int, int]]] = {}


def key(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over the parts; where one ends and the next begins counts."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def get_or_build(kind: str, entry: str, what: str, build: Callable[[Path], Files]) -> Path:
    """The folder of an entry, built now where it is not there or not whole.

    Args:
        what: is done, for a person who waits for it.
        build: gives the entry's files by name. It gets an empty folder to work in.

    Raises:
        NoSpace: the disk is full. ToolchainError: as `root`. What `build` raises.
    """
    found = find(kind, entry)
    if found is not None:
        return found
    with waiting(what), locked(kind, entry) as aside:
        return find(kind, entry) or _built(path(kind, entry), aside, build)


def put(kind: str, entry: str, files: Files) -> None:
    """Write an entry, in the place of one that is there.

    Raises:
        NoSpace, ToolchainError: as `get_or_build`.
    """
    with locked(kind, entry) as aside:
        _built(path(kind, entry), aside, lambda _: files)


def find(kind: str, entry: str) -> Path | None:
    """The folder of an entry, or None where it is not there or not whole."""
    return next(filter(_is_whole, (_place(r, kind, entry) for r in _roots())), None)


def read(folder: Path) -> Files:
    """The files of an entry."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != SUMS}


def path(kind: str, entry: str) -> Path:
    """Where an entry would be built."""
    return _place(root(), kind, entry)


def root() -> Path:
    """The folder that entries are built in, made where it is missing, mode 0700: the cache's, or a
    temporary one where the cache cannot be written to.

    Raises:
        ToolchainError: it cannot be made, or others own it or may write to it: they could plant
            code that this process would run.
    """
    return _roots()[0]


@contextmanager
def locked(*what: str) -> Generator[Path]:
    """One thread of one process at a time is inside, for equal `what`. Yields the name of a folder
    that it may make to write to; what it leaves there is removed.

    Raises:
        NoSpace: what is done inside fails because the disk is full.
    """
    with _room(root()):
        folder = _building()
        aside = folder / key(what)
        held = _hold(aside, fcntl.LOCK_EX)
        try:
            _sweep(folder)
            shutil.rmtree(aside, ignore_errors=True)  # of a process that has ended
            yield aside
        finally:
            _release(aside, held)


def of_process() -> Path:
    """A folder to write to that is removed when this process has ended, in whatever way."""
    return _of_process(os.getpid())


@once
def _of_process(process: int) -> Path:
    with _room(root()):
        aside = _building() / secrets.token_hex(16)
        held = _hold(aside, fcntl.LOCK_EX)
        aside.mkdir(mode=0o700)
    atexit.register(lambda: os.getpid() == process and _release(aside, held))
    return aside


def _built(target: Path, aside: Path, build: Callable[[Path], Files]) -> Path:
    """Build an entry in the folder `aside`, and put it in its place."""
    work, made = aside / "work", aside / "entry"
    work.mkdir(mode=0o700, parents=True)
    files = build(work)
    made.mkdir(mode=0o700)
    for name, data in {**files, SUMS: _sums(files)}.items():
        (made / name).write_bytes(data)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.exists():
        target.rename(aside / "broken")
    made.rename(target)
    return target


def _hold(aside: Path, how: int) -> int:
    """A descriptor that holds the lock of a folder until it is closed, by whatever end of the
    process.

    Raises:
        BlockingIOError: another holds it, and `how` does not wait.
    """
    while True:
        held = os.open(_lock(aside), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(held, how)
        except BaseException:
            os.close(held)
            raise
        if os.fstat(held).st_nlink:
            return held
        os.close(held)  # whoever held it has removed it


def _release(aside: Path, held: int) -> None:
    """Remove a folder and its lock, which is held."""
    shutil.rmtree(aside, ignore_errors=True)
    _lock(aside).unlink(missing_ok=True)
    fcntl.flock(held, fcntl.LOCK_UN)  # a process that was forked meanwhile has the descriptor too
    os.close(held)


def _sweep(folder: Path) -> None:
    """Remove what processes have left that ended in the middle of a build."""
    for aside in {p.with_suffix("") for p in folder.iterdir()}:
        with suppress(BlockingIOError):  # it is being built
            _release(aside, _hold(aside, fcntl.LOCK_EX | fcntl.LOCK_NB))


def _building() -> Path:
    folder = root() / "building"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _lock(aside: Path) -> Path:
    return aside.with_suffix(".lock")


@contextmanager
def _room(folder: Path) -> Generator[None]:
    """What fails inside because the folder's disk is full, here or in a compiler's words, says
    which disk that is."""
    try:
        yield
    except (OSError, CompileError) as e:
        if getattr(e, "errno", None) in _FULL or any(os.strerror(n) in str(e) for n in _FULL):
            raise _no_space(folder) from e
        raise


def _no_space(folder: Path) -> NoSpace:
    there = next(p for p in (folder, *folder.parents) if p.exists())
    disk = next(p for p in (there, *there.parents) if p.is_mount())
    free = shutil.disk_usage(there).free >> 20
    return NoSpace(
        f"nothing can be built in {folder}: no space is left on the disk mounted on {disk} "
        f"({free} MiB free); make room there, or set KW_CACHE to a folder on another disk"
    )


def _is_whole(folder: Path) -> bool:
    """Whether a folder holds the files that were written to it. They are read again only where
    their sizes or times are others."""
    try:
        sums = (folder / SUMS).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return False
    facts = [(p.name, p.stat()) for p in sorted(folder.iterdir())]
    seen = [(name, s.st_ino, s.st_size, s.st_mtime_ns) for name, s in facts]
    if _compared.get(folder) != seen:
        if sums != _sums(read(folder)):
            return False
        _compared[folder] = seen
    return True


def _sums(files: Files) -> bytes:
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))
    return "".join(lines).encode()


def _place(root: Path, kind: str, entry: str) -> Path:
    return root / kind / entry[:2] / entry


def _roots() -> tuple[Path, ...]:
    """Where entries are looked for, in this order; they are built in the first."""
    folder = settings().cache
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = os.stat(folder)
    except OSError as e:
        if e.errno in _READ_ONLY:
            return (_temporary(folder),)
        if e.errno in _FULL:
            raise _no_space(folder) from e
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
    if not os.access(folder, os.W_OK):
        return _temporary(folder), folder
    return (folder,)


@once
def _temporary(instead_of: Path) -> Path:
    """A folder that ends with this process."""
    try:
        made = Path(tempfile.mkdtemp(prefix="kernelwright-cache-"))
    except OSError as e:
        raise ToolchainError(
            f"neither the cache folder {instead_of} nor a temporary one can be written to "
            f"({e.strerror}); set KW_CACHE to a folder that can"
        ) from None
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(made, ignore_errors=True))
    print(
        f"kernelwright: the cache folder {instead_of} cannot be written to: what is built is kept "
        f"in {made} until this process ends; set KW_CACHE to a folder that can",
        file=sys.stderr,
    )
    return made
