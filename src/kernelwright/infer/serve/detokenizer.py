"""Text of tokens that come one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_BYTES = 3  # at most so many bytes of a character are incomplete
_CONTEXT = 16  # tokens before the newest; their text decides whether a space precedes the next
_MOST = 64  # tokens that end within a character are decoded again at most so often


class Detokenizer:
    """Decodes tokens one by one: all pieces together are the text of all tokens.

    A tokenizer writes U+FFFD for bytes that form no character. At the end of a text such bytes may
    be the beginning of a character whose other bytes follow, so the last three U+FFFD are held
    back until a token decides what they are. (Decoders write one U+FFFD per incomplete character,
    or one per byte.)

    Args:
        decode: the text of tokens.
        before: the tokens before the first one; their text is not a part of the pieces. If they
            end within a character, they are ignored.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], before: Sequence[int] = ()):
        self._decode = decode
        context = decode(before[-_CONTEXT:]) if before else ""
        whole = context == _settled(context)
        self._window = list(before[-_CONTEXT:]) if whole else []  # tokens that are decoded together
        self._shown = context if whole else ""  # of the window's text
        self._open = 0  # newest tokens of the window, of whose text something is held back

    def add(self, token: int) -> str:
        """The text that is certain now and was not before; often "" within a character."""
        self._window.append(token)
        self._open += 1
        text = self._decode(self._window)
        if not text.startswith(self._shown):
            # Llama's byte tokens: one incomplete character makes all bytes before it unknown
            return "" if self._open <= _BYTES else self.rest()
        settled = _settled(text)
        piece = settled[len(self._shown) :]
        self._shown += piece
        if settled == text:
            self._begin_window(max(self._open, 1))
            self._shown = self._decode(self._window)
        elif len(self._window) > _MOST:
            self._begin_window(_CONTEXT)
            self._shown = _settled(self._decode(self._window))
        return piece

    def rest(self) -> str:
        """What is held back, with U+FFFD for an incomplete character."""
        text = self._decode(self._window)
        if not text.startswith(self._shown):
            text = self._decode(self._window[-self._open :])
            piece = text
        else:
            piece = text[len(self._shown) :]
        self._begin_window(max(self._open, 1))
        self._shown = self._decode(self._window)
        return piece

    def _begin_window(self, tokens: int) -> None:
        self._window = self._window[-tokens:]
        self._open = 0


def _settled(text: str) -> str:
    """The text without at most three U+FFFD at its end."""
    unknown = len(text) - len(text.rstrip(_UNKNOWN))
    return text[: len(text) - min(unknown, _BYTES)]
