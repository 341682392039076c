"""Tokenizers: bytes, characters, and byte pairs (Sennrich et al. 2016; the package tokenizers).

A tokenizer is saved next to the model's weights, so that generation needs only the folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Protocol

import numpy as np

from kernelwright.support import durable
from kernelwright.support.errors import UsageError
from kernelwright.support.extras import need

OURS, THEIRS = "kernelwright_tokenizer.json", "tokenizer.json"
VOCABULARY, MERGES = "vocab.json", "merges.txt"  # GPT-2's files
END = "<|endoftext|>"


class Tokenizer(Protocol):
    """Converts text to token numbers and back.

    Attributes:
        size: the number of tokens; all numbers are below it.
        end: the number between documents, or None if there is none.
        begin: the numbers with which a text begins, such as Llama's <s>; `encode` leaves them out.
    """

    @property
    def size(self) -> int: ...

    @property
    def end(self) -> int | None: ...

    @property
    def begin(self) -> tuple[int, ...]: ...

    def encode(self, text: str) -> np.ndarray:
        """Token numbers, in an unsigned dtype that can represent `size`."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Text; numbers that form no character become U+FFFD."""
        ...

    def files(self) -> dict[str, bytes]:
        """The files that `load` reads, by name."""
        ...


class Bytes:
    """A token is a byte of UTF-8."""

    size = 256
    end = None
    begin = ()

    def encode(self, text: str) -> np.ndarray:
        return np.frombuffer(text.encode(), np.uint8)

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    def files(self) -> dict[str, bytes]:
        return {OURS: json.dumps({"kind": "bytes"}).encode()}


class Characters:
    """A token is one of the characters of a text.

    Args:
        characters: in the order of their numbers, without duplicates.
    """

    end = None
    begin = ()

    def __init__(self, characters: str):
        self.characters = characters
        points = np.array([ord(c) for c in characters], np.uint32)
        self._order = np.argsort(points, kind="stable")
        self._sorted = points[self._order]
        self._dtype = np.uint16 if len(characters) <= 1 << 16 else np.uint32

    @staticmethod
    def of(texts: Iterable[str]) -> Characters:
        """A tokenizer of all characters of the texts, in Unicode order."""
        characters: set[str] = set()
        for text in texts:
            characters.update(text)
        return Characters("".join(sorted(characters)))

    @property
    def size(self) -> int:
        return len(self.characters)

    def encode(self, text: str) -> np.ndarray:
        points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
        at = np.searchsorted(self._sorted, points).clip(max=self.size - 1)
        unknown = self._sorted[at] != points
        if unknown.any():
            raise UsageError(
                f"text: the character {chr(points[unknown][0])!r} is not in the vocabulary of "
                f"{self.size} characters that the model was trained on"
            )
        return self._order[at].astype(self._dtype)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(
            self.characters[t] if 0 <= t < self.size else "\N{REPLACEMENT CHARACTER}"
            for t in tokens
        )

    def files(self) -> dict[str, bytes]:
        d = {"kind": "characters", "characters": self.characters}
        return {OURS: json.dumps(d, ensure_ascii=False).encode()}


class BytePairs:
    """Byte-pair encoding as in GPT-2.

    Args:
        library: a Tokenizer object of the package tokenizers.
    """

    def __init__(self, library):
        self._library = library
        self._dtype = np.uint16 if self.size <= 1 << 16 else np.uint32

    @staticmethod
    def trained(texts: Iterable[str], size: int) -> BytePairs:
        """A tokenizer trained on the texts, which merges the most frequent pairs.

        Args:
            size: the number of tokens: 256 bytes, the end of a document, and merges.
        """
        library = need("tokenizers", "train", "a BPE tokenizer")
        if size < 257:
            raise UsageError(f"vocabulary: BPE needs at least 257 tokens, is {size}")
        tokenizer = library.Tokenizer(library.models.BPE())
        tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=[END],
            initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        tokenizer.train_from_iterator(texts, trainer)
        return BytePairs(tokenizer)

    @property
    def size(self) -> int:
        return self._library.get_vocab_size()

    @property
    def end(self) -> int | None:
        return self._library.token_to_id(END)

    @property
    def begin(self) -> tuple[int, ...]:
        encoded = self._library.encode("a", add_special_tokens=True)
        added = zip(encoded.ids, encoded.special_tokens_mask, strict=True)
        return tuple(token for token, _ in takewhile(lambda t: t[1], added))

    def encode(self, text: str) -> np.ndarray:
        encoded = self._library.encode(text, add_special_tokens=False)
        return np.array(encoded.ids, self._dtype)

    def decode(self, tokens: Sequence[int]) -> str:
        return self._library.decode(list(tokens), skip_special_tokens=False)

    def files(self) -> dict[str, bytes]:
        return {THEIRS: self._library.to_str().encode()}


def load(folder: Path) -> Tokenizer | None:
    """The tokenizer of a folder, or None if it has none.

    Raises:
        UsageError: its file is damaged, or the package tokenizers is not installed.
    """
    if (folder / OURS).exists():
        return _ours(folder / OURS)
    if (folder / THEIRS).exists():
        return BytePairs(_read(folder / THEIRS))
    if (folder / VOCABULARY).exists() and (folder / MERGES).exists():
        return _gpt2(folder)
    return None


def save(tokenizer: Tokenizer, folder: Path) -> None:
    for name, contents in tokenizer.files().items():
        durable.write(folder / name, [contents])


def _ours(path: Path) -> Tokenizer:
    try:
        d = json.loads(path.read_text(encoding="utf-8"))
        return Bytes() if d["kind"] == "bytes" else Characters(d["characters"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as e:
        raise UsageError(f"{path} is damaged ({e})") from None


def _read(path: Path):
    library = need("tokenizers", "train", f"reading {path}")
    try:
        return library.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as e:  # noqa: BLE001 - the package raises Exception itself
        raise UsageError(f"{path} is damaged or is not a tokenizer ({e})") from None


def _gpt2(folder: Path) -> BytePairs:
    library = need("tokenizers", "train", f"reading {folder / MERGES}")
    try:
        model = library.models.BPE.from_file(str(folder / VOCABULARY), str(folder / MERGES))
    except Exception as e:  # noqa: BLE001 - the package raises Exception itself
        raise UsageError(f"{folder}: {VOCABULARY} or {MERGES} is damaged ({e})") from None
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    if tokenizer.token_to_id(END) is not None:
        tokenizer.add_special_tokens([END])
    return BytePairs(tokenizer)
