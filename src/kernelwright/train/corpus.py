"""Sources of text: a file, a folder, a URL, or the sources of Python's standard library."""

from __future__ import annotations

import hashlib
import shutil
import sysconfig
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.support import cache
from kernelwright.support.errors import UsageError

PIECE = 1 << 20  # characters of a large file that are tokenized at a time


@dataclass(frozen=True)
class Corpus:
    """Text files, each a document, in a fixed order."""

    name: str
    files: tuple[Path, ...]

    def documents(self) -> Iterator[str]:
        """The text of each file that is UTF-8 and has no zero bytes.

        Raises:
            UsageError: there is no such file.
        """
        texts = 0
        for path in self.files:
            text = _text(path)
            if text:
                texts += 1
                yield text
        if not texts:
            raise UsageError(f"data: {self.name} contains no UTF-8 text")

    def fingerprint(self) -> str:
        """A string that changes with the files' names, sizes and times."""
        facts = [(str(p), s.st_size, s.st_mtime_ns) for p in self.files for s in [p.stat()]]
        return hashlib.sha256(repr(facts).encode()).hexdigest()


def of(source: str | None) -> Corpus:
    """The corpus of a file, a folder or a URL; None for the standard library's sources.

    Raises:
        UsageError: the source does not exist or cannot be read.
    """
    if source is None:
        return _standard_library()
    if urllib.parse.urlsplit(source).scheme in ("http", "https"):
        return Corpus(source, (_downloaded(source),))
    path = Path(source).expanduser()
    if path.is_dir():
        files = tuple(p for p in sorted(path.rglob("*")) if p.is_file() and not _hidden(p, path))
        if not files:
            raise UsageError(f"data: the folder {path} is empty")
        return Corpus(source, files)
    if not path.is_file():
        raise UsageError(f"data: {path} does not exist (a text file, a folder or a URL)")
    if _text(path) is None:
        raise UsageError(f"data: {path} is not UTF-8 text")
    return Corpus(source, (path,))


def pieces(text: str) -> Iterator[str]:
    """A text in pieces of about PIECE characters that end at a line break."""
    begin = 0
    while begin < len(text):
        end = begin + PIECE
        newline = text.find("\n", end)
        end = len(text) if newline < 0 or end >= len(text) else newline + 1
        yield text[begin:end]
        begin = end


def _standard_library() -> Corpus:
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
    files = [p for p in root.rglob("*.py") if not left_out & {*p.relative_to(root).parts}]
    if not files:
        raise UsageError(f"data: {root} contains no Python sources; give a text with --data")
    return Corpus("Python's standard library", tuple(sorted(files)))


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)


def _text(path: Path) -> str | None:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return None
    except OSError as e:
        raise UsageError(f"data: {path} cannot be read: {e.strerror}") from None
    return None if "\0" in text else text


def _downloaded(url: str) -> Path:
    """The file of a URL, in the cache; it is downloaded once."""
    name = hashlib.sha256(url.encode()).hexdigest()
    folder = cache.root() / "downloads"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{name}.txt"
    if path.exists():
        return path
    with cache.locked("download", url) as aside:
        if path.exists():
            return path
        aside.mkdir(mode=0o700)
        try:
            with urllib.request.urlopen(url, timeout=30) as answer, open(aside / "f", "wb") as out:
                shutil.copyfileobj(answer, out)
        except (urllib.error.URLError, TimeoutError) as e:
            raise UsageError(
                f"data: {url} cannot be downloaded ({getattr(e, 'reason', e)})"
            ) from None
        if _text(aside / "f") is None:
            raise UsageError(f"data: {url} is not UTF-8 text")
        (aside / "f").replace(path)
    return path
