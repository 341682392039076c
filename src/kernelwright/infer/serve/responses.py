"""The JSON documents of OpenAI's completions and chat: whole answers, and chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from .generation import Piece, TokenLogprob


class Documents:
    """The documents of one answer.

    Args:
        model: its name.
        prompt_tokens: in all prompts.
        usage_chunk: whether the chunks of a stream have the field `usage`.
    """

    whole = chunk = prefix = ""

    def __init__(self, model: str, prompt_tokens: int, usage_chunk: bool):
        self._model, self._prompt_tokens, self._usage_chunk = model, prompt_tokens, usage_chunk
        self._id, self._created = f"{self.prefix}-{secrets.token_hex(12)}", int(time.time())

    def answer(self, pieces: Iterable[Piece], generated: int) -> dict[str, Any]:
        """The whole answer, from all of its pieces."""
        joined: dict[int, list[Piece]] = {}
        for piece in pieces:
            joined.setdefault(piece.choice, []).append(piece)
        choices = [self._choice(_join(joined[c])) for c in sorted(joined)]
        return {**self._head(self.whole), "choices": choices, "usage": self._usage(generated)}

    def part(self, piece: Piece) -> dict[str, Any]:
        """The chunk of a piece."""
        usage = {"usage": None} if self._usage_chunk else {}
        return {**self._head(self.chunk), "choices": [self._delta(piece)], **usage}

    def last(self, generated: int) -> dict[str, Any]:
        """The chunk that counts the tokens."""
        return {**self._head(self.chunk), "choices": [], "usage": self._usage(generated)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _usage(self, generated: int) -> dict[str, int]:
        return {
            "prompt_tokens": self._prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self._prompt_tokens + generated,
        }

    def _choice(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError

    def _delta(self, piece: Piece) -> dict[str, Any]:
        raise NotImplementedError


class CompletionDocuments(Documents):
    """Of /v1/completions."""

    whole = chunk = "text_completion"
    prefix = "cmpl"

    def __init__(self, model: str, prompt_tokens: int, usage_chunk: bool, logprobs: bool):
        super().__init__(model, prompt_tokens, usage_chunk)
        self._logprobs = logprobs
        self._offsets: dict[int, int] = {}  # by choice: characters of the tokens so far

    def _choice(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": piece.choice,
            "text": piece.text,
            "logprobs": self._of(piece) if self._logprobs else None,
            "finish_reason": piece.finish or None,
        }

    def _delta(self, piece: Piece) -> dict[str, Any]:
        return self._choice(piece)

    def _of(self, piece: Piece) -> dict[str, Any]:
        offsets: list[int] = []
        at = self._offsets.get(piece.choice, 0)
        for token in piece.tokens:
            offsets.append(at)
            at += len(token.text)
        self._offsets[piece.choice] = at
        return {
            "tokens": [t.text for t in piece.tokens],
            "token_logprobs": [t.logprob for t in piece.tokens],
            "top_logprobs": [_by_text(t) for t in piece.tokens],
            "text_offset": offsets,
        }


class ChatDocuments(Documents):
    """Of /v1/chat/completions."""

    whole, chunk = "chat.completion", "chat.completion.chunk"
    prefix = "chatcmpl"

    def __init__(self, model: str, prompt_tokens: int, usage_chunk: bool, logprobs: bool):
        super().__init__(model, prompt_tokens, usage_chunk)
        self._logprobs = logprobs
        self._begun: set[int] = set()

    def _choice(self, piece: Piece) -> dict[str, Any]:
        message = {"role": "assistant", "content": piece.text}
        return {"index": piece.choice, "message": message, **self._ending(piece)}

    def _delta(self, piece: Piece) -> dict[str, Any]:
        role = {} if piece.choice in self._begun else {"role": "assistant"}
        self._begun.add(piece.choice)
        return {
            "index": piece.choice,
            "delta": {**role, "content": piece.text},
            **self._ending(piece),
        }

    def _ending(self, piece: Piece) -> dict[str, Any]:
        content = {"content": [_token(t) for t in piece.tokens]} if self._logprobs else None
        return {"logprobs": content, "finish_reason": piece.finish or None}


def _join(pieces: Sequence[Piece]) -> Piece:
    return Piece(
        pieces[0].choice,
        "".join(p.text for p in pieces),
        tuple(t for p in pieces for t in p.tokens),
        pieces[-1].finish,
    )


def _by_text(token: TokenLogprob) -> dict[str, float] | None:
    """The most likely tokens and the token itself. Where two tokens have one text, as incomplete
    characters have, the more likely one counts."""
    if token.logprob is None:
        return None
    named: dict[str, float] = {}
    for text, logprob in (*token.top, (token.text, token.logprob)):
        named.setdefault(text, logprob)
    return named


def _token(token: TokenLogprob) -> dict[str, Any]:
    top = [_named(text, logprob) for text, logprob in token.top]
    return {**_named(token.text, token.logprob), "top_logprobs": top}


def _named(text: str, logprob: float | None) -> dict[str, Any]:
    whole = "\N{REPLACEMENT CHARACTER}" not in text  # else its bytes are not known
    return {"token": text, "logprob": logprob, "bytes": list(text.encode()) if whole else None}
