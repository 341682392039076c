"""Generates text from prompts, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kernelwright.models.tokenizer import Tokenizer
from kernelwright.support.errors import UsageError

from .decoder import Decoder
from .sampling import Sampling


def tokens(
    model: Any,
    prompts: Sequence[Sequence[int]],
    count: int,
    how: Sampling | None = None,
    *,
    seed: int = 0,
    end: int | None = None,
    vocabulary: int | None = None,
) -> Iterator[list[int | None]]:
    """The next tokens of all prompts, one token per prompt at a time.

    A row that is as long as the model's context continues from its last half.

    Args:
        model: is set to evaluation mode.
        prompts: lists of tokens; those longer than the context are cut to its last half.
        count: the number of new tokens per row.
        how: how tokens are drawn; by default the most likely one is taken.
        end: a token that ends a row.
        vocabulary: tokens are below it; by default the model's.

    Yields:
        A token per row, None for rows that have ended.

    Raises:
        UsageError: a prompt is empty, or has a token outside the model's vocabulary.
    """
    model.eval()
    context, vocabulary = model.config.context, vocabulary or model.config.vocabulary
    rows = [list(p) for p in prompts]
    for i, row in enumerate(rows):
        if not row:
            raise UsageError(f"prompt: number {i + 1} is empty")
        if not 0 <= min(row) <= max(row) < model.config.vocabulary:
            raise UsageError(
                f"prompt: number {i + 1} has tokens outside the model's vocabulary of "
                f"{model.config.vocabulary}"
            )
    if count < 1 or not rows:
        return
    decoder = Decoder(model, len(rows), how or Sampling(temperature=0.0), seed, vocabulary)
    decoder.begin([_fitting(row, context) for row in rows])
    done = [False] * len(rows)
    for i in range(count):
        next_tokens = decoder.token_B.tolist()
        for row, token in zip(rows, next_tokens, strict=True):
            row.append(token)
        yield [None if d else t for d, t in zip(done, next_tokens, strict=True)]
        done = [d or t == end for d, t in zip(done, next_tokens, strict=True)]
        if all(done) or i == count - 1:
            return
        if decoder.longest == context:
            decoder.begin([_fitting(row, context) for row in rows])
        else:
            decoder.step()


def texts(
    model: Any,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    count: int,
    how: Sampling | None = None,
    seed: int = 0,
) -> Iterator[list[str]]:
    """The text that each step adds to each prompt.

    A character of several tokens is yielded with its last token.
    """
    encoded = [tokenizer.encode(p).tolist() for p in prompts]
    for i, (prompt, row) in enumerate(zip(prompts, encoded, strict=True)):
        if not row and tokenizer.end is not None:
            encoded[i] = [tokenizer.end]
        elif not row:
            raise UsageError(
                f"prompt: {prompt!r} has no tokens, and there is no token to begin with"
            )
    streams = [_Stream(tokenizer) for _ in prompts]
    known = min(tokenizer.size, model.config.vocabulary)
    for step in tokens(model, encoded, count, how, seed=seed, end=tokenizer.end, vocabulary=known):
        yield [
            "" if t is None or t == tokenizer.end else s.add(t)
            for s, t in zip(streams, step, strict=True)
        ]
    yield [s.rest() for s in streams]


class _Stream:
    """Decodes tokens one by one."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._tokens: list[int] = []

    def add(self, token: int) -> str:
        """The text of the pending tokens, or "" while they end within a character."""
        self._tokens.append(token)
        text = self._tokenizer.decode(self._tokens)
        if text.endswith("\N{REPLACEMENT CHARACTER}") and len(self._tokens) < 8:
            return ""
        self._tokens.clear()
        return text

    def rest(self) -> str:
        text = self._tokenizer.decode(self._tokens)
        self._tokens.clear()
        return text


def _fitting(row: list[int], context: int) -> list[int]:
    return row if len(row) <= context else row[-max(1, context // 2) :]
