"""Counters, gauges and histograms in Prometheus's text format."""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Sequence
from typing import Any

_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)
_GAUGES = {
    "running": ("sequences_running", "Sequences of which a step may compute tokens."),
    "waiting": ("sequences_waiting", "Sequences that wait for pages or for their turn."),
    "pages": ("pages_total", "Pages of the cache of keys and values."),
    "pages_used": ("pages_used", "Pages that sequences hold."),
    "pages_cached": (
        "pages_cached",
        "Pages without a sequence, kept for prompts that begin alike.",
    ),
}
_COUNTERS = {
    "preemptions": ("preemptions_total", "Sequences that gave up their pages to others."),
    "prefix_hit_tokens": ("prefix_hit_tokens_total", "Tokens of prompts found in the cache."),
    "prompt_tokens": ("prompt_tokens_total", "Tokens of prompts."),
    "generated_tokens": ("generated_tokens_total", "Tokens generated."),
}


class Histogram:
    """Counts of values up to each of some limits, in seconds."""

    def __init__(self, name: str, help: str, limits: Sequence[float] = _SECONDS):
        self._name, self._help, self._limits = f"kernelwright_{name}", help, limits
        self._counts = [0] * (len(limits) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect.bisect_left(self._limits, value)] += 1
        self._sum += value

    def lines(self) -> list[str]:
        lines = _head(self._name, self._help, "histogram")
        total = 0
        for limit, count in zip((*self._limits, "+Inf"), self._counts, strict=True):
            total += count
            lines.append(f'{self._name}_bucket{{le="{limit}"}} {total}')
        return [*lines, f"{self._name}_sum {self._sum!r}", f"{self._name}_count {total}"]


class Metrics:
    """What the server has measured.

    Attributes:
        responses: the number of HTTP responses by path and status.
        finished: the number of texts by their reason to finish.
    """

    def __init__(self):
        self.responses: Counter[tuple[str, int]] = Counter()
        self.finished: Counter[str] = Counter()
        self.first_token = Histogram(
            "time_to_first_token_seconds", "From a request's arrival to its first token."
        )
        self.per_token = Histogram(
            "time_per_output_token_seconds", "Mean time between the tokens of a text."
        )
        self.whole = Histogram("request_seconds", "From a request's arrival to its last token.")

    def text(self, statistics: Any, queued: int) -> str:
        """All metrics.

        Args:
            statistics: the engine's.
            queued: requests that wait for their first token.
        """
        lines: list[str] = []
        for field, (name, help) in _GAUGES.items():
            lines += _single(name, help, "gauge", getattr(statistics, field))
        lines += _single(
            "requests_queued", "Requests that wait for their first token.", "gauge", queued
        )
        for field, (name, help) in _COUNTERS.items():
            lines += _single(name, help, "counter", getattr(statistics, field))
        lines += _head("kernelwright_http_responses_total", "HTTP responses.", "counter")
        lines += [
            f'kernelwright_http_responses_total{{path="{path}",status="{status}"}} {count}'
            for (path, status), count in sorted(self.responses.items())
        ]
        lines += _head("kernelwright_texts_finished_total", "Texts by reason to finish.", "counter")
        lines += [
            f'kernelwright_texts_finished_total{{reason="{reason}"}} {count}'
            for reason, count in sorted(self.finished.items())
        ]
        for histogram in (self.first_token, self.per_token, self.whole):
            lines += histogram.lines()
        return "\n".join(lines) + "\n"


class Clock:
    """Measures one answer.

    Args:
        arrived: when the request came, in seconds.
    """

    def __init__(self, metrics: Metrics, arrived: float):
        self._metrics, self._arrived = metrics, arrived
        self._first: dict[int, float] = {}
        self._tokens: Counter[int] = Counter()

    def piece(self, choice: int, finish: str, now: float) -> None:
        """A token of a text has come."""
        self._tokens[choice] += 1
        if choice not in self._first:
            self._first[choice] = now
            self._metrics.first_token.add(now - self._arrived)
        if not finish:
            return
        self._metrics.finished[finish] += 1
        self._metrics.whole.add(now - self._arrived)
        if self._tokens[choice] > 1:
            between = (now - self._first[choice]) / (self._tokens[choice] - 1)
            self._metrics.per_token.add(between)


def _single(name: str, help: str, kind: str, value: float) -> list[str]:
    name = f"kernelwright_{name}"
    return [*_head(name, help, kind), f"{name} {value}"]


def _head(name: str, help: str, kind: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
