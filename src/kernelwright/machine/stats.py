"""What samples say: medians, their intervals, and whether two sets of samples differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch

#: SM clocks further apart than this, as a part, leave a difference of that size undecided.
CLOCK_SPREAD = 0.02
DRAWS = 1000  # of a bootstrap


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def interval(samples: Sequence[float]) -> tuple[float, float]:
    """(low, high): bootstrap 95% interval of the median, which sampling stops by and tables print.
    Seeded, so that both see the same of the same samples."""
    values = torch.tensor(sorted(samples), dtype=torch.float64)
    below, above = _middles(len(values))
    medians = ((values[below] + values[above]) / 2).sort().values
    cut = round(0.025 * DRAWS)
    return medians[cut].item(), medians[DRAWS - 1 - cut].item()


@cache
def _middles(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The ranks of the two middle ones of n samples that are drawn with replacement."""
    generator = torch.Generator().manual_seed(0)
    ranks = torch.randint(n, (DRAWS, n), generator=generator).sort(dim=1).values
    return ranks[:, (n - 1) // 2], ranks[:, n // 2]


@dataclass(frozen=True)
class Comparison:
    """Whether `a` is faster than `b`.

    Attributes:
        verdict: "faster", "slower", "same" or "ambiguous".
        ratio: how many times as fast as b a is, by the median of the paired ratios.
        low, high: its bootstrap 95% interval.
        noise: what the A/A control differed by in the same run.
    """

    verdict: str
    ratio: float
    low: float
    high: float
    noise: float


def noise(a: Sequence[float], again: Sequence[float]) -> float:
    """How far an A/A control says that equal things may differ: the far end of the 95% interval
    of the paired ratio, as a part."""
    low, high = interval(_ratios(a, again))
    return max(abs(low - 1), abs(high - 1))


def compare(
    a: Sequence[float], b: Sequence[float], *, noise: float, clock_spread: float = 0.0
) -> Comparison:
    """Judge two sets of samples that were taken in turns: sample i of both in one round.

    Args:
        noise: of the run's A/A control, from `noise`. A difference below twice of it is "same".
        clock_spread: how far apart, as a part, the SM clock was read during the run. Above 2% a
            difference below it is "ambiguous".
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
    # one of them may have settled in an earlier round
    return [y / x for x, y in zip(a, b, strict=False)]
