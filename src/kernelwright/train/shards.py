"""Files of tokens that are mapped into memory.

Our own files begin with a header of 128 bytes, little-endian:

    offset  bytes  content
         0      8  "KWTOKENS"
         8      4  version, 1
        12      4  bytes of a token: 1, 2 or 4, unsigned
        16      8  number of tokens
        24      4  size of the vocabulary
        32     32  SHA-256 of the tokens
        64     64  zeros

llm.c's shards (256 int32, then uint16 or uint32) and nanoGPT's (only uint16) can be read too.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelwright.support import durable
from kernelwright.support.errors import UsageError

MAGIC, VERSION, HEADER = b"KWTOKENS", 1, 128
_FIELDS = struct.Struct("<8sIIQI4x32s64x")
_DTYPES = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
_LLM_C = {20240520: np.dtype("<u2"), 20240801: np.dtype("<u4")}  # GPT-2, Llama 3
_LLM_C_HEADER = 1024
_CHUNK = 1 << 24  # tokens examined at a time


@dataclass(frozen=True)
class Shard:
    """The tokens of a file.

    Attributes:
        tokens: memory-mapped, one dimension.
        vocabulary: tokens are below it; 0 if the file does not state it.
        sha256: the hash of the tokens; "" if the file does not state it.
    """

    path: Path
    tokens: np.ndarray
    vocabulary: int
    sha256: str

    def check(self) -> None:
        """Compare the hash of all tokens with the header.

        Raises:
            UsageError: the hashes differ.
        """
        if self.sha256 and hashlib.sha256(self.tokens).hexdigest() != self.sha256:
            raise UsageError(
                f"{self.path} is damaged: its tokens do not have the hash of its header; delete it"
            )

    def largest(self) -> int:
        """The largest token."""
        chunks = range(0, len(self.tokens), _CHUNK)
        return max(int(self.tokens[i : i + _CHUNK].max()) for i in chunks)


def write(path: Path, parts: Iterable[np.ndarray], vocabulary: int) -> Shard:
    """Write a shard.

    Args:
        parts: tokens, in any unsigned dtype; stored in the smallest one that fits the vocabulary.

    Raises:
        WriteError: the disk is full.
    """
    size = 1 if vocabulary <= 1 << 8 else 2 if vocabulary <= 1 << 16 else 4
    tokens = np.concatenate([np.asarray(p).astype(_DTYPES[size], copy=False) for p in parts])
    digest = hashlib.sha256(tokens).digest()
    header = _FIELDS.pack(MAGIC, VERSION, size, len(tokens), vocabulary, digest)
    durable.write(path, [header, memoryview(tokens).cast("B")])
    return read(path)


def read(path: Path) -> Shard:
    """Memory-map a file of any of the three kinds.

    Raises:
        UsageError: it does not exist, it is damaged, or it is not a file of tokens.
    """
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            head = file.read(_LLM_C_HEADER)
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}") from None
    if head.startswith(MAGIC):
        return _ours(path, head, size)
    magic = struct.unpack_from("<i", head)[0] if len(head) == _LLM_C_HEADER else 0
    if magic in _LLM_C:
        count = struct.unpack_from("<i", head, 8)[0]
        return Shard(path, _map(path, _LLM_C[magic], _LLM_C_HEADER, count, size), 0, "")
    if path.suffix == ".bin" and size and size % 2 == 0:
        return Shard(path, _map(path, _DTYPES[2], 0, size // 2, size), 0, "")
    raise UsageError(f"{path} is not a file of tokens of this library, llm.c or nanoGPT (.bin)")


def find(source: str | None) -> list[Path]:
    """The files of tokens at a path: the file itself, or those of a folder; none for text."""
    if source is None or "://" in source:
        return []
    path = Path(source).expanduser()
    kinds = (".bin", ".kwtokens")
    if path.is_dir():
        return [p for p in sorted(path.iterdir()) if p.suffix in kinds]
    return [path] if path.suffix in kinds and path.is_file() else []


def _ours(path: Path, head: bytes, size: int) -> Shard:
    if len(head) < HEADER:
        raise UsageError(f"{path} is damaged: its header ends after {len(head)} bytes")
    _, version, width, count, vocabulary, digest = _FIELDS.unpack_from(head)
    if version != VERSION or width not in _DTYPES:
        raise UsageError(f"{path}: version {version} with tokens of {width} bytes is not supported")
    return Shard(path, _map(path, _DTYPES[width], HEADER, count, size), vocabulary, digest.hex())


def _map(path: Path, dtype: Any, offset: int, count: int, size: int) -> np.ndarray:
    wanted = offset + count * dtype.itemsize
    if count < 1 or size != wanted:
        raise UsageError(
            f"{path} is damaged: its header states {count} tokens, {wanted} bytes; it has {size}"
        )
    return np.memmap(path, dtype, "r", offset, (count,))
