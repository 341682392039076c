"""Tokens for training and validation, and the order in which they are used."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelwright.models import tokenizer as tokenizers
from kernelwright.models.tokenizer import Tokenizer
from kernelwright.support import cache
from kernelwright.support.errors import UsageError

from . import corpus, shards
from .shards import Shard

HELD_OUT = 0.1  # the share of a text, at its end, that is used for validation
_VALIDATION = {"val", "valid", "validation"}  # parts of the names of files for validation
_LEARNED_FROM = 1 << 25  # characters that BPE is trained on


@dataclass(frozen=True)
class Dataset:
    """Tokens of a corpus.

    Attributes:
        train, validation: shards; a text has one of each, the second being its last tenth.
        tokenizer: None if the tokens came without one.
        vocabulary: every token is below it.
    """

    name: str
    train: tuple[Shard, ...]
    validation: tuple[Shard, ...]
    tokenizer: Tokenizer | None
    vocabulary: int

    def fingerprint(self) -> str:
        """A string that changes with the tokens, or with sizes and ends of files without a hash."""
        digest = hashlib.sha256()
        for s in (*self.train, *self.validation):
            ends = bytes(s.tokens[:64]) + bytes(s.tokens[-64:])
            digest.update(f"{len(s.tokens)} {s.sha256}".encode() + ends)
        return digest.hexdigest()


def open_(
    source: str | None,
    tokenizer: str = "bytes",
    vocabulary: int = 4096,
    say: Callable[[str], None] = lambda _: None,
) -> Dataset:
    """The tokens of a text, a folder of texts, a URL, or files of tokens.

    Text is tokenized once and kept in the cache. Of files of tokens, those with "val", "valid" or
    "validation" as a part of their names are for validation, and the others for training.

    Args:
        tokenizer: "bytes", "chars", "bpe" (trained on the text), or a folder with a tokenizer's
            files (GPT-2's vocab.json and merges.txt, or a tokenizer.json).
        vocabulary: the size of a BPE vocabulary to train.
        say: called with a line of text before each long step.

    Raises:
        UsageError: the source or the tokenizer is missing or damaged, or the text is empty.
    """
    files = shards.find(source)
    if files:
        return _of_shards(str(source), files, tokenizer, say)
    text = corpus.of(source)
    encoder = _tokenizer(tokenizer, text, vocabulary, say)
    entry = cache.key([text.fingerprint(), *_named_files(encoder)])
    folder = cache.root() / "tokens" / entry[:2]
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [folder / f"{entry}.{part}.kwtokens" for part in ("train", "validation")]
    with cache.locked("tokens", entry):
        if not all(p.exists() for p in paths):
            say(f"tokenizing {text.name}")
            _tokenize(text, encoder, paths)
    train, validation = map(shards.read, paths)
    train.check()
    validation.check()
    return Dataset(text.name, (train,), (validation,), encoder, encoder.size)


def _of_shards(
    source: str, files: list[Path], tokenizer: str, say: Callable[[str], None]
) -> Dataset:
    parts = [shards.read(p) for p in files]
    for s in parts:
        s.check()
    validation = tuple(s for s in parts if _is_validation(s.path))
    train = tuple(s for s in parts if not _is_validation(s.path))
    if not train:  # then nothing is held out
        train, validation = tuple(parts), ()
    say(f"training on {_names(train)}; validating on {_names(validation) or 'nothing'}")
    encoder = tokenizers.load(Path(tokenizer)) if Path(tokenizer).is_dir() else None
    encoder = encoder or tokenizers.load(files[0].parent)
    vocabulary = max(
        encoder.size if encoder else 0, *(s.vocabulary or s.largest() + 1 for s in parts)
    )
    if encoder and vocabulary > encoder.size:
        raise UsageError(
            f"data: {source} has the token {vocabulary - 1}, the tokenizer has "
            f"{encoder.size} tokens"
        )
    return Dataset(source, train, validation, encoder, vocabulary)


def _is_validation(path: Path) -> bool:
    """Whether a part of a file's name says so, as llm.c and nanoGPT name theirs: "val.bin",
    "fineweb_val_000000.bin", but not "intervals_000.bin"."""
    return not _VALIDATION.isdisjoint(re.findall("[a-z]+", path.stem.lower()))


def _names(files: tuple[Shard, ...]) -> str:
    """The names of files, of many the first and the last."""
    names = [s.path.name for s in files]
    return ", ".join(names) if len(names) < 4 else f"{names[0]} to {names[-1]} ({len(names)} files)"


def _tokenizer(kind: str, text: corpus.Corpus, size: int, say: Callable[[str], None]) -> Tokenizer:
    if kind == "bytes":
        return tokenizers.Bytes()
    if kind == "chars":
        return tokenizers.Characters.of(chain(text.documents(), "\n"))
    if kind == "bpe":
        say(f"training a BPE of {size} tokens on {text.name}")
        return _byte_pairs(text, size)
    if not Path(kind).expanduser().is_dir():
        raise UsageError(
            f'tokenizer: {kind!r} is neither "bytes", "chars" or "bpe" nor a folder with a '
            "tokenizer's files"
        )
    tokenizer = tokenizers.load(Path(kind).expanduser())
    if tokenizer is None:
        raise UsageError(
            f"tokenizer: {kind} contains neither tokenizer.json nor vocab.json and merges.txt"
        )
    return tokenizer


def _byte_pairs(text: corpus.Corpus, size: int) -> Tokenizer:
    """A BPE tokenizer, trained once and kept in the cache."""
    entry = cache.key([text.fingerprint(), str(size)])

    def build(_: Path) -> dict[str, bytes]:
        return tokenizers.BytePairs.trained(_beginnings(text), size).files()

    tokenizer = tokenizers.load(cache.get_or_build("bpe", entry, "a BPE is trained", build))
    assert tokenizer is not None
    return tokenizer


def _beginnings(text: corpus.Corpus) -> Iterator[str]:
    left = _LEARNED_FROM
    for document in text.documents():
        yield document[:left]
        left -= len(document)
        if left <= 0:
            return


def _tokenize(text: corpus.Corpus, tokenizer: Tokenizer, paths: list[Path]) -> None:
    between = (
        tokenizer.encode("\n") if tokenizer.end is None else np.array([tokenizer.end], np.uint32)
    )
    parts: list[np.ndarray] = []
    for i, document in enumerate(text.documents()):
        if i:
            parts.append(between)
        parts += [tokenizer.encode(piece) for piece in corpus.pieces(document)]
    tokens = np.concatenate(parts)
    cut = int(len(tokens) * (1 - HELD_OUT))
    if len(tokens) - cut < 2:
        raise UsageError(f"data: {text.name} has {len(tokens)} tokens, too few to train on")
    for path, part in zip(paths, (tokens[:cut], tokens[cut:]), strict=True):
        shards.write(path, [part], tokenizer.size)


def _named_files(tokenizer: Tokenizer) -> list[str | bytes]:
    return [part for named in tokenizer.files().items() for part in named]


class Order:
    """The tokens of each sequence of a run, by the sequence's number.

    In each epoch, every shard is cut into sequences of T + 1 tokens, which share one token with the
    next, from an offset that differs per epoch, and the sequences are visited in random order.
    Sequence i is the same for any number of processes, so a run can continue with another number.

    Args:
        context: T.
        seed: another seed gives another order.

    Raises:
        UsageError: no shard is longer than the context.
    """

    def __init__(self, parts: tuple[Shard, ...], context: int, seed: int):
        self.context, self.seed = context, seed
        self._shards = [s for s in parts if len(s.tokens) > context]
        if not self._shards:
            longest = max((len(s.tokens) for s in parts), default=0)
            raise UsageError(
                f"context: {context} needs more than {context} tokens in a row, the data has "
                f"{longest}"
            )
        # every offset leaves a shard as many sequences as the largest offset does
        self._slack = min(context, *(len(s.tokens) - context for s in self._shards))
        counts = [(len(s.tokens) - self._slack) // context for s in self._shards]
        self._ends = np.cumsum(counts)
        self.epoch = int(self._ends[-1])
        self._permutation = lru_cache(maxsize=2)(self._draw)

    def sequence(self, number: int) -> np.ndarray:
        """Sequence `number` of the run: T + 1 tokens."""
        epoch, place = divmod(number, self.epoch)
        offset, permutation = self._permutation(epoch)
        window = int(permutation[place])
        which = int(np.searchsorted(self._ends, window, side="right"))
        first = int(self._ends[which - 1]) if which else 0
        begin = offset + (window - first) * self.context
        return self._shards[which].tokens[begin : begin + self.context + 1]

    def batch(self, first: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, targets) of sequences first to first + count - 1: int64, (count, T)."""
        both = np.stack([self.sequence(first + i) for i in range(count)]).astype(np.int64)
        whole = torch.from_numpy(both)
        return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()

    def _draw(self, epoch: int) -> tuple[int, Any]:
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        return int(random.integers(self._slack)), random.permutation(self.epoch)
