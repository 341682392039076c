"""What the engine is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

from kernelwright.infer.sampling import Sampling
from kernelwright.support.errors import UsageError

GREEDY = Sampling(temperature=0.0)


@dataclass(frozen=True)
class Request:
    """A prompt, and how it is continued.

    Attributes:
        prompt: tokens, at least one.
        max_tokens: the number of new tokens, at most; 0 is allowed with prompt_logprobs.
        sampling: how tokens are drawn; by default the most likely one is taken.
        seed: of the draws, at least 0 and less than 2^64. A draw depends on it, on the number of
            the continuation and on the position of the token, and on nothing else.
        n: the number of continuations.
        end_tokens: tokens that end a continuation.
        logprobs: the number of most likely tokens that are returned, with their log-probabilities,
            with each new token; None returns no log-probabilities.
        prompt_logprobs: the same for the tokens of the prompt.

    Raises:
        UsageError: a value is out of range.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling = GREEDY
    seed: int = 0
    n: int = 1
    end_tokens: frozenset[int] = frozenset()
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self):
        try:
            object.__setattr__(self, "prompt", tuple(index(token) for token in self.prompt))
        except TypeError as e:
            raise UsageError(f"prompt: must be a sequence of integers: {e}") from e
        if not self.prompt:
            raise UsageError("prompt: is empty")
        least = 1 if self.prompt_logprobs is None else 0
        if self.max_tokens < least:
            raise UsageError(f"max_tokens: must be at least {least}, is {self.max_tokens}")
        if not 0 <= self.seed < 2**64:
            raise UsageError(f"seed: must be at least 0 and less than 2^64, is {self.seed}")
        if self.n < 1:
            raise UsageError(f"n: must be at least 1, is {self.n}")
        for name in ("logprobs", "prompt_logprobs"):
            count = getattr(self, name)
            if count is not None and count < 0:
                raise UsageError(f"{name}: must not be negative, is {count}")


class Score(NamedTuple):
    """The log-probability of a token, and the most likely tokens in its place with theirs, the most
    likely first; tokens of equal probability in ascending order."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Output:
    """A new token of a continuation, or its end, or both.

    Attributes:
        id: of the request.
        index: the number of the continuation, from 0.
        token: None if the continuation ends without a further one.
        logprob, top: as in Score, if the request asks for them; otherwise None and empty.
        finish: why the continuation ends here: "stop" after an end token, "length" at max_tokens or
            at the end of the model's context, "cancelled", or "error" if the model's logits have no
            largest number; "" if it goes on.
        prompt_logprobs: in a request's first output, if it asks for them: None for the prompt's
            first token, a Score for each other one.
    """

    id: int
    index: int
    token: int | None
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    finish: str = ""
    prompt_logprobs: tuple[Score | None, ...] | None = None
