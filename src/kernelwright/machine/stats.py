"""Statistics of samples: medians, their intervals, and whether two sets of samples differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

#: If the SM clock varies by a larger fraction than this, differences of that size are ambiguous.
CLOCK_SPREAD = 0.02
DRAWS = 1000  # resamples of a bootstrap


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """(low, high): bootstrap 95% interval of the median, used by the stopping rule and in tables.
    The bootstrap is seeded, so that equal samples always give the same interval."""
    values = torch.tensor(sorted(samples), dtype=torch.float64)
    below, above = _middles(len(values))
    medians = ((values[below] + values[above]) / 2).sort().values
    cut = round(0.025 * DRAWS)
    return medians[cut].item(), medians[DRAWS - 1 - cut].item()


@cache
def _middles(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ranks of the two middle values of n samples drawn with replacement."""
    generator = torch.Generator().manual_seed(0)
    ranks = torch.randint(n, (DRAWS, n), generator=generator).sort(dim=1).values
    return ranks[:, (n - 1) // 2], ranks[:, n // 2]


@dataclass(frozen=True)
class Comparison:
    """Whether `a` is faster than `b`.

    Attributes:
        verdict: "faster", "slower", "same" or "ambiguous".
        ratio: the speedup of a over b: the median of the paired ratios.
        low, high: its bootstrap 95% interval.
        noise: the A/A noise of the same run.
    """

    verdict: str
    ratio: float
    low: float
    high: float
    noise: float


def noise(a: Sequence[float], again: Sequence[float]) -> float:
    """The A/A noise: the largest distance from 1 in the 95% interval of the paired ratio of two
    identical candidates, as a fraction."""
    low, high = interval(_ratios(a, again))
    return max(abs(low - 1), abs(high - 1))


def compare(
    a: Sequence[float], b: Sequence[float], *, noise: float, clock_spread: float = 0.0
) -> Comparison:
    """Compare two sets of samples that were taken alternately: sample i of both is from one round.

    Args:
        noise: the run's A/A noise, from `noise`. A difference below twice the noise is "same".
        clock_spread: the spread of the SM clock during the run, as a fraction. If it exceeds 2%,
            smaller differences are "ambiguous".
    """
    ratios = _ratios(a, b)
    ratio = median(ratios)
    low, high = interval(ratios)
    return Comparison(_verdict(ratio, low, high, noise, clock_spread), ratio, low, high, noise)


def _verdict(ratio: float, low: float, high: float, noise: float, clock_spread: float) -> str:
    difference = abs(ratio - 1)
    if clock_spread > CLOCK_SPREAD and difference <= clock_spread:
        return "ambiguous"
    if difference < 2 * noise:
        return "same"
    if low > 1:
        return "faster"
    return "slower" if high < 1 else "ambiguous"


def _ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    # sampling of one of them may have ended in an earlier round
    return [y / x for x, y in zip(a, b, strict=False)]
