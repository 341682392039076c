"""The figures of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .drive import Run, Served

MILLI = 1e3


@dataclass(frozen=True)
class Limits:
    """What a good answer keeps: milliseconds to the first token, and between tokens."""

    first: float
    per_token: float

    def keeps(self, request: Served) -> bool:
        per_token = request.per_token or 0.0
        return request.to_first * MILLI <= self.first and per_token * MILLI <= self.per_token


@dataclass(frozen=True)
class Spread:
    """Milliseconds of all requests."""

    mean: float
    p50: float
    p99: float

    @staticmethod
    def of(seconds: Sequence[float]) -> Spread:
        if not seconds:
            return Spread(math.nan, math.nan, math.nan)
        p50, p99 = np.percentile(seconds, (50, 99))
        return Spread(float(np.mean(seconds)) * MILLI, float(p50) * MILLI, float(p99) * MILLI)


@dataclass(frozen=True)
class Row:
    """A run in figures.

    Attributes:
        rate: requests that arrive per second; None if all come at once.
        seconds: from the first arrival to the last token.
        served: requests per second.
        generated, total: tokens per second, those of answers, and of prompts too.
        first, per_token, whole: milliseconds to the first token, between tokens, to the last one.
        good: requests per second that keep the limits.
        of_roof: the share of the memory's rate that weights and cache account for.
    """

    rate: float | None
    requests: int
    seconds: float
    served: float
    generated: float
    total: float
    first: Spread
    per_token: Spread
    whole: Spread
    good: float
    steps: int
    tokens_per_step: float
    preemptions: int
    of_roof: float


def row(run: Run, rate: float, limits: Limits, of_roof: float) -> Row:
    requests, seconds = run.requests, run.seconds
    generated = sum(r.tokens for r in requests)
    total = generated + sum(r.prompt for r in requests)
    return Row(
        rate=None if rate == math.inf else rate,
        requests=len(requests),
        seconds=seconds,
        served=len(requests) / seconds,
        generated=generated / seconds,
        total=total / seconds,
        first=Spread.of([r.to_first for r in requests]),
        per_token=Spread.of([r.per_token for r in requests if r.per_token is not None]),
        whole=Spread.of([r.last - r.arrived for r in requests]),
        good=sum(map(limits.keeps, requests)) / seconds,
        steps=run.steps,
        tokens_per_step=total / run.steps,
        preemptions=run.preemptions,
        of_roof=of_roof,
    )


@dataclass(frozen=True)
class Result:
    """A benchmark: the same requests all at once, then at some rates.

    Attributes:
        model: a folder or a preset.
        settings: of the engine and of the workload.
        environment: the machine and its software.
        weights, token: bytes that a step reads, and of a token's keys and values.
        bandwidth: measured, in bytes per second.
    """

    model: str
    settings: dict[str, Any]
    environment: dict[str, Any]
    weights: int
    token: int
    bandwidth: float
    limits: Limits
    rows: list[Row]
