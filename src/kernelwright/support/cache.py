"""The cache of compiled kernels on disk, keyed by a hash of their sources.

`get_or_build` returns an entry, a folder of plain files and their checksums. One process builds it
while others wait, under a lock that is released when the process ends. An entry is written to a
temporary folder and renamed. Its checksums are checked when it is read; a damaged entry is rebuilt.

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
#: Names, sizes and times of an entry's files when its checksums were last compared.
_compared: dict[Path, list[tuple[str, int, int, int]]] = {}


def key(parts: Iterable[str | bytes]) -> str:
    """SHA-256 over the parts and their boundaries."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def get_or_build(kind: str, entry: str, what: str, build: Callable[[Path], Files]) -> Path:
    """The folder of an entry, built now if it is missing or damaged.

    Args:
        what: a description of the build, shown to a waiting user.
        build: returns the entry's files by name. It is given an empty folder to work in.

    Raises:
        NoSpace: the disk is full. ToolchainError: see `root`. Exceptions of `build` propagate.
    """
    existing = find(kind, entry)
    if existing is not None:
        return existing
    with waiting(what), locked(kind, entry) as aside:
        return find(kind, entry) or _built(path(kind, entry), aside, build)


def put(kind: str, entry: str, files: Files) -> None:
    """Write an entry, replacing an existing one.

    Raises:
        NoSpace, ToolchainError: see `get_or_build`.
    """
    with locked(kind, entry) as aside:
        _built(path(kind, entry), aside, lambda _: files)


def find(kind: str, entry: str) -> Path | None:
    """The folder of an entry, or None if it is missing or damaged."""
    return next(filter(_is_whole, (_place(r, kind, entry) for r in _roots())), None)


def read(folder: Path) -> Files:
    """The files of an entry."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != SUMS}


def path(kind: str, entry: str) -> Path:
    """Where an entry would be built."""
    return _place(root(), kind, entry)


def root() -> Path:
    """The folder that entries are built in, created with mode 0700 if missing: the cache's, or a
    temporary one if the cache is not writable.

    Raises:
        ToolchainError: it cannot be created, or another user owns it or may write to it, and could
            therefore plant code that this process would run.
    """
    return _roots()[0]


def writable() -> bool:
    """Whether files in the cache's folder persist after this process."""
    return root() == settings().cache


@contextmanager
def locked(*what: str) -> Generator[Path]:
    """Mutual exclusion of threads and processes, for equal `what`. Yields the name of a folder that
    the block may create and write to; it is removed afterwards.

    Raises:
        NoSpace: the block fails because the disk is full.
    """
    with _room(root()):
        folder = _building()
        aside = folder / key(what)
        held = _hold(aside, fcntl.LOCK_EX)
        try:
            _sweep(folder)
            shutil.rmtree(aside, ignore_errors=True)  # left by a process that has ended
            yield aside
        finally:
            _release(aside, held)


def of_process() -> Path:
    """A temporary folder that is removed after this process has ended, even if it was killed."""
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
    """Build an entry in the folder `aside`, and move it to its place."""
    work, folder = aside / "work", aside / "entry"
    work.mkdir(mode=0o700, parents=True)
    files = build(work)
    folder.mkdir(mode=0o700)
    for name, data in {**files, SUMS: _sums(files)}.items():
        (folder / name).write_bytes(data)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if target.exists():
        target.rename(aside / "broken")
    folder.rename(target)
    return target


def _hold(aside: Path, how: int) -> int:
    """A descriptor that holds the lock of a folder until it is closed, at the latest when the
    process ends.

    Raises:
        BlockingIOError: another process holds the lock, and `how` does not wait.
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
        os.close(held)  # the previous holder has removed the lock file


def _release(aside: Path, held: int) -> None:
    """Remove a folder and its lock, which this process holds."""
    shutil.rmtree(aside, ignore_errors=True)
    _lock(aside).unlink(missing_ok=True)
    fcntl.flock(held, fcntl.LOCK_UN)  # a process forked meanwhile inherited the descriptor
    os.close(held)


def _sweep(folder: Path) -> None:
    """Remove the folders of builds whose processes ended before they finished."""
    for aside in {p.with_suffix("") for p in folder.iterdir()}:
        with suppress(BlockingIOError):  # an entry that is being built is kept
            _release(aside, _hold(aside, fcntl.LOCK_EX | fcntl.LOCK_NB))


def _building() -> Path:
    folder = root() / "building"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _lock(aside: Path) -> Path:
    return aside.with_suffix(".lock")


@contextmanager
def _room(folder: Path) -> Generator[None]:
    """Turn failures inside the block that are due to a full disk, including those in a compiler's
    message, into an error that names the disk."""
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
    """Whether a folder holds the files that were written to it. Their checksums are computed again
    only if sizes or modification times have changed."""
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
    """The folders in which entries are looked up, in order; new ones are built in the first."""
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
            f"the cache folder {folder} cannot be created ({e.strerror}); "
            "set KW_CACHE to another one"
        ) from None
    if facts.st_uid != os.getuid():
        raise ToolchainError(
            f"the cache folder {folder} belongs to another user; "
            "set KW_CACHE to a folder that you own"
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
    """A temporary folder that is removed when this process ends."""
    try:
        temporary = Path(tempfile.mkdtemp(prefix="kernelwright-cache-"))
    except OSError as e:
        raise ToolchainError(
            f"neither the cache folder {instead_of} nor a temporary one can be written to "
            f"({e.strerror}); set KW_CACHE to a writable folder"
        ) from None
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(temporary, ignore_errors=True))
    print(
        f"kernelwright: the cache folder {instead_of} cannot be written to: builds are kept in "
        f"{temporary} until this process ends; set KW_CACHE to a writable folder",
        file=sys.stderr,
    )
    return temporary
