"""Which rows of a step's result become logits."""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass, field

from .scheduler import Piece
from .sequence import Sequence


@dataclass
class Rows:
    """Rows of the last layer's result, and what their logits are for.

    Attributes:
        at: the numbers of the rows: first those of `scored`, then those of `drawn`.
        scored: a sequence, and the position of the token of its prompt that is to be scored.
        drawn: the sequence whose tokens are all computed, and a continuation of it that gets its
            next token: itself or, after the prompt, each of its request's.
    """

    at: list[int] = field(default_factory=list)
    scored: list[tuple[Sequence, int]] = field(default_factory=list)
    drawn: list[tuple[Sequence, Sequence]] = field(default_factory=list)


def rows_of(pieces: List[Piece]) -> Rows:
    """The rows of a step that computes these pieces, one after the other."""
    rows, last, start = Rows(), [], 0
    for sequence, count in pieces:
        if unscored := sequence.unscored:
            before = start - sequence.computed - 1  # a token's score is in the row before its own
            first = max(unscored.start, sequence.computed + 1)
            for position in range(first, min(unscored.stop, sequence.computed + count + 1)):
                rows.scored.append((sequence, position))
                rows.at.append(before + position)
        start += count
        if count == sequence.pending:
            for continuation in _continuations(sequence):
                rows.drawn.append((sequence, continuation))
                last.append(start - 1)
    rows.at += last
    return rows


def _continuations(sequence: Sequence) -> list[Sequence]:
    request = sequence.request
    others = sequence.indices[1:] if request.n > 1 else ()
    return [sequence, *(Sequence(sequence.id, i, request, list(request.prompt)) for i in others)]
