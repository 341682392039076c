"""A training run in the terminal."""

from __future__ import annotations

import math
import time
from collections import deque
from itertools import pairwise
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernelwright.support.words import counted

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 60  # losses of the small curve
_LINES_EVERY = 2.0  # seconds between lines if there is no terminal


class Display:
    """Shows a run's events: as a picture that is redrawn on a terminal, as lines elsewhere."""

    def __init__(self, out: Console):
        self.out = out
        self._live = Live(console=out, refresh_per_second=4) if out.is_terminal else None
        self._start: Any = None
        self._step: Any = None
        self._losses: deque[float] = deque(maxlen=100_000)
        self._validation = ""
        self._saved = ""
        self._begun = self._printed = 0.0

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def said(self, text: str) -> None:
        self.out.print(f"{text} ...", markup=False)

    def started(self, start: Any) -> None:
        self._start, self._begun = start, time.monotonic()
        s = start.settings
        where = f"{start.processes} x {start.device}" if start.processes > 1 else start.device
        lines = [
            f"{s.model}: {start.parameters:,} parameters; {start.data}: {start.train_tokens:,} "
            f"tokens of a vocabulary of {start.vocabulary}",
            f"steps {start.first} to {s.steps} of {s.batch} sequences, {s.precision}, on {where} "
            f"(products at {start.roof / 1e12:.3g} TFLOP/s), into {start.folder}",
        ]
        if start.predicted is not None:
            lines.append(
                f"memory of a step, predicted: {size(start.predicted.peak)}, of which "
                f"{size(start.predicted.held)} weights and optimizer"
            )
        for line in [*lines, *start.notes]:
            self.out.print(line, markup=False, soft_wrap=True)
        if self._live is not None:
            self._live.start()

    def stepped(self, step: Any) -> None:
        self._step = step
        if math.isfinite(step.loss):
            self._losses.append(step.loss)
        if self._live is not None:
            self._live.update(self._picture())
        elif time.monotonic() - self._printed >= _LINES_EVERY:
            self._print()

    def evaluated(self, step: int, loss: float) -> None:
        self._validation = f"validation {loss:.4f} at step {step}"
        if self._live is None:
            self.out.print(self._validation)

    def saved(self, step: int) -> None:
        self._saved = f"checkpoint at step {step}"

    def finished(self, result: Any, picture: object) -> None:
        if self._live is not None:
            self._live.stop()
        for i, sample in enumerate(result.samples):
            self.out.print(f"\n--- sample {i + 1} ---", style="bold")
            self.out.print(sample, markup=False)
        held = "" if result.validation is None else f", validation {result.validation:.4f}"
        self.out.print(f"\nloss {result.loss:.4f}{held} after {result.steps} steps, "
                       f"{duration(result.seconds)}")  # fmt: skip
        if result.measured is not None:
            self.out.print(f"memory of a step, measured: {size(result.measured.peak)}")
        for what in (f"picture: {picture}", f"more text: kernelwright generate {result.folder}"):
            self.out.print(what, markup=False, soft_wrap=True)

    def _print(self) -> None:
        self._printed = time.monotonic()
        self.out.print(f"step {self._step.number}/{self._start.settings.steps}  {self._facts()}")

    def _facts(self) -> str:
        s = self._step
        bad = f"  {counted(s.bad, 'step')} skipped (gradients not finite)" if s.bad else ""
        return (
            f"loss {s.loss:.4f}  {s.tokens_per_s:,.0f} tokens/s  "
            f"{s.utilization:.0%} of the roof  {duration(self._left())} left{bad}"
        )

    def _left(self) -> float:
        done = self._step.number - self._start.first
        total = self._start.settings.steps - self._start.first
        return (time.monotonic() - self._begun) / max(1, done) * (total - done)

    def _picture(self) -> Group:
        s, steps = self._step, self._start.settings.steps
        head = Table.grid(padding=(0, 2))
        head.add_row(f"step {s.number}/{steps}", ProgressBar(steps, s.number, width=40))
        rest = "  ".join(x for x in (self._validation, self._saved) if x)
        curve = Text(sparkline(list(self._losses)), style="green")
        return Group(head, Text(self._facts()), curve, Text(rest, style="dim"))


def sparkline(values: list[float]) -> str:
    """A curve in one line of text; each character is the mean of the same number of values."""
    if not values:
        return ""
    count = min(_WIDTH, len(values))
    cuts = [len(values) * i // count for i in range(count + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(cuts)]
    low, high = min(means), max(means)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    bars = "".join(_BARS[round((v - low) * scale)] for v in means)
    return f"{bars}  {means[0]:.2f} to {means[-1]:.2f}"


def size(count: float) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**29 else f"{count / 2**20:.1f} MiB"


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
