"""Which tokens a step computes, and where their keys and values are stored."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from .pages import NO_PARENT, Content, Pages
from .sequence import Sequence

_ORDER = attrgetter("order")


class Piece(NamedTuple):
    """The next `count` tokens of a sequence that have no keys and values yet."""

    sequence: Sequence
    count: int


class Scheduler:
    """Divides a budget of tokens per step among sequences.

    First each running sequence gets the token that was drawn for it. What remains of the budget is
    for prompts: those of running sequences, then those of waiting ones. A prompt that does not fit
    is continued in the next step. A waiting sequence begins to run when there are pages for all its
    tokens, and one more for each running sequence. If a running sequence needs a page and there is
    none, the newest one loses its pages and waits; later its tokens are computed again.

    Args:
        pages: of the cache.
        sequences: how many run at a time, at most.
        step_tokens: the budget, at least `sequences`.
        longest: tokens of the longest possible sequence.

    Attributes:
        running, waiting: in the order of their arrival.
        table: int32 (sequences, pages): the pages of the running sequences, by row. Entries after a
            sequence's last page have no meaning.
        preemptions: how often a sequence lost its pages.
        reused: the number of tokens whose keys and values were there when their sequence began.
    """

    def __init__(self, pages: Pages, sequences: int, step_tokens: int, longest: int):
        self.pages, self.step_tokens = pages, step_tokens
        self.running: list[Sequence] = []
        self.waiting: list[Sequence] = []
        self.table = np.zeros((sequences, -(-longest // pages.size)), dtype=np.int32)
        self.preemptions = self.reused = 0
        self._rows = list(range(sequences - 1, -1, -1))  # not used by a sequence

    def add(self, sequence: Sequence) -> None:
        insort(self.waiting, sequence, key=_ORDER)

    def pieces(self) -> list[Piece]:
        """What the next step computes; there are pages for it."""
        drawn = [s for s in self.running if s.pending == 1]
        # a sequence of the list may have lost its pages to one before it
        pieces = [Piece(s, 1) for s in drawn if s.row >= 0 and self._grow(s)]
        budget = self.step_tokens - len(pieces)
        for sequence in (s for s in self.running if s.pending > 1):
            if budget:
                pieces.append(Piece(sequence, min(sequence.pending, budget)))
                budget -= pieces[-1].count
        while budget and self.waiting and self._begin(self.waiting[0]):
            sequence = self.waiting.pop(0)
            pieces.append(Piece(sequence, min(sequence.pending, budget)))
            budget -= pieces[-1].count
        return pieces

    def computed(self, piece: Piece) -> None:
        """Note that a piece has keys and values, and publish the pages that are full now."""
        sequence, size = piece.sequence, self.pages.size
        before, sequence.computed = sequence.computed, sequence.computed + piece.count
        for i in range(before // size, sequence.computed // size):
            parent = sequence.pages[i - 1] if i else NO_PARENT
            content = Content(parent, tuple(sequence.tokens[i * size : (i + 1) * size]))
            sequence.pages[i] = self.pages.publish(sequence.pages[i], content)
            self.table[sequence.row, i] = sequence.pages[i]

    def fork(self, parent: Sequence, child: Sequence) -> tuple[int, int] | None:
        """Let a child run, which has the computed tokens of its parent and one more. It waits if
        there is no room for it.

        Returns:
            Two pages, the first of which must be copied to the second before the next step: the
            incomplete page of the parent, if it has one.
        """
        full, rest = divmod(parent.computed, self.pages.size)
        copy = self.pages.take(1 if rest else 0) if self._rows else None
        if copy is None:
            self.add(child)
            return None
        self.pages.share(parent.pages[:full])
        self._run(child, parent.pages[:full] + copy)
        child.computed = parent.computed
        return (parent.pages[full], copy[0]) if rest else None

    def remove(self, sequence: Sequence) -> None:
        """Take back what a sequence has; it neither runs nor waits any longer."""
        if sequence.row < 0:
            self.waiting.remove(sequence)
        else:
            self._stop(sequence)

    def _begin(self, sequence: Sequence) -> bool:
        """Let a waiting sequence run if there are a row and pages for it."""
        if not self._rows:
            return False
        reusable = min(sequence.reusable, len(sequence.tokens) - 1)  # at least one is computed
        shared = self.pages.prefix(sequence.tokens, reusable)
        missing = -(-len(sequence.tokens) // self.pages.size) - len(shared)
        if missing + len(self.running) > self.pages.available:
            self.pages.release(shared)
            return False
        new = self.pages.take(missing)
        assert new is not None
        self._run(sequence, shared + new)
        sequence.computed = len(shared) * self.pages.size
        self.reused += sequence.computed
        return True

    def _grow(self, sequence: Sequence) -> bool:
        """Give a running sequence a page if it needs one; False if it had to stop itself."""
        if len(sequence.tokens) <= len(sequence.pages) * self.pages.size:
            return True
        while (new := self.pages.take(1)) is None:
            newest = self.running[-1]
            self._stop(newest)
            self.add(newest)
            self.preemptions += 1
            if newest is sequence:
                return False
        self.table[sequence.row, len(sequence.pages)] = new[0]
        sequence.pages += new
        return True

    def _run(self, sequence: Sequence, pages: list[int]) -> None:
        sequence.row, sequence.pages = self._rows.pop(), pages
        self.table[sequence.row, : len(pages)] = pages
        insort(self.running, sequence, key=_ORDER)

    def _stop(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self.pages.release(sequence.pages)
        self._rows.append(sequence.row)
        sequence.row, sequence.pages, sequence.computed = -1, [], 0
