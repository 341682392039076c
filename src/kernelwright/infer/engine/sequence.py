"""A continuation of a request, while the engine works on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .request import Request, Score


@dataclass(eq=False)
class Sequence:
    """The state of one continuation.

    Attributes:
        id: of the request.
        index: the number of the continuation. Continuation 0 computes the prompt for the others,
            which begin when its prompt is computed.
        tokens: of the prompt, then the new ones.
        computed: the number of tokens whose keys and values are in the pages.
        pages: in the order of the tokens; none while it waits.
        row: of the scheduler's table; -1 while it waits.
        scores: of the prompt's tokens from the second on, as far as they are known.
    """

    id: int
    index: int
    request: Request
    tokens: list[int]
    computed: int = 0
    pages: list[int] = field(default_factory=list)
    row: int = -1
    scores: list[Score] = field(default_factory=list)

    def __post_init__(self):
        # The counter is the position of the first new token, and each token uses one count.
        key = np.array([self.request.seed, self.index], dtype=np.uint64)
        self._random = np.random.Philox(key=key, counter=len(self.request.prompt))

    @property
    def order(self) -> tuple[int, int]:
        """Sequences that came first are served first."""
        return self.id, self.index

    @property
    def begins(self) -> bool:
        """Whether there is no new token yet."""
        return len(self.tokens) == len(self.request.prompt)

    @property
    def indices(self) -> range:
        """The continuations of the request that this one stands for: until its prompt is computed,
        the first stands for all."""
        all_of_them = self.begins and self.index == 0
        return range(self.request.n) if all_of_them else range(self.index, self.index + 1)

    @property
    def pending(self) -> int:
        """The number of tokens without keys and values."""
        return len(self.tokens) - self.computed

    @property
    def unscored(self) -> range:
        """Positions of the prompt's tokens that need a score."""
        if self.request.prompt_logprobs is None:
            return range(0)
        return range(1 + len(self.scores), len(self.request.prompt))

    @property
    def reusable(self) -> int:
        """The number of first tokens of which only keys and values are needed: the score of a token
        is computed with the token before it."""
        return self.unscored.start - 1 if self.unscored else len(self.tokens)

    def uniform(self) -> float:
        """The random number of the next token: at least 0 and less than 1, by Philox4x64-10 (Salmon
        et al. 2011) from the seed, the index and the position."""
        return (int(self._random.random_raw(4)[0]) >> 11) * 2.0**-53
