"""Random requests, and when they come."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from kernelwright.infer.engine import Request
from kernelwright.support.errors import UsageError

USUAL = (100, 1024)  # tokens of a prompt, and of an answer


@dataclass(frozen=True)
class Workload:
    """Requests whose prompts and answers have lengths drawn uniformly from a range.

    Attributes:
        shortest, longest: tokens of a prompt, and of an answer.
        seed: of lengths, tokens and arrivals.
    """

    requests: int
    shortest: int
    longest: int
    seed: int

    def __post_init__(self):
        if self.requests < 1:
            raise UsageError(f"requests: must be at least 1, is {self.requests}")
        if not 1 <= self.shortest <= self.longest:
            raise UsageError(f"lengths: {self.shortest}:{self.longest} is not a range from 1")

    def draw(self, vocabulary: int, context: int) -> list[Request]:
        """The requests; nothing but its length ends an answer.

        Raises:
            UsageError: the longest request exceeds the context.
        """
        if 2 * self.longest > context:
            raise UsageError(
                f"lengths: a prompt and an answer of {self.longest} tokens each exceed the "
                f"model's context of {context}"
            )
        draw = random.Random(self.seed)
        return [
            Request(
                prompt=draw.choices(range(vocabulary), k=draw.randint(self.shortest, self.longest)),
                max_tokens=draw.randint(self.shortest, self.longest),
            )
            for _ in range(self.requests)
        ]

    def arrivals(self, rate: float) -> list[float]:
        """When each request comes, in seconds: a Poisson process of `rate` requests per second; all
        at once if it is infinite."""
        if rate == math.inf:
            return [0.0] * self.requests
        draw = random.Random(self.seed)
        at, times = 0.0, []
        for _ in range(self.requests):
            at += draw.expovariate(rate)
            times.append(at)
        return times


def lengths(context: int) -> tuple[int, int]:
    """The usual range of lengths, or for a shorter context one in proportion that fits."""
    longest = min(USUAL[1], context // 2)
    return max(1, USUAL[0] * longest // USUAL[1]), longest
