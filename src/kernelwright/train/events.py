"""Events of a training run, and the interface of their listeners."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from .memory import Memory
from .settings import Settings


@dataclass(frozen=True)
class Start:
    """Facts known before the first step.

    Attributes:
        first: the step that the run begins with.
        predicted: memory of a step, or None if it is not predicted (FSDP).
        roof: operations per second of a large matrix product, measured by the first process.
        of_token: operations of training on one token.
        notes: messages for the user.
    """

    settings: Settings
    folder: Path
    data: str
    train_tokens: int
    vocabulary: int
    parameters: int
    processes: int
    device: str
    first: int
    predicted: Memory | None
    roof: float
    of_token: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """A completed step.

    Attributes:
        loss: the mean loss of the step's sequences, before the update.
        norm: the norm of the gradients before clipping.
        bad: steps so far whose gradient was not finite.
        tokens_per_s: of all processes.
        utilization: share of the roof.
    """

    number: int
    loss: float
    norm: float
    lr: float
    bad: int
    tokens_per_s: float
    utilization: float


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        validation: the last validation's loss, None if nothing was held out.
        measured: memory of a step, or None if no step was taken.
    """

    folder: Path
    steps: int
    loss: float
    validation: float | None
    measured: Memory | None
    samples: tuple[str, ...]
    seconds: float


class Watcher(Protocol):
    """Receives a run's events, in the first process."""

    def said(self, text: str) -> None: ...
    def started(self, start: Start) -> None: ...
    def stepped(self, step: Step) -> None: ...
    def evaluated(self, step: int, loss: float) -> None: ...
    def saved(self, step: int) -> None: ...


class Silent:
    """A watcher that ignores all events."""

    def said(self, text: str) -> None: ...
    def started(self, start: Start) -> None: ...
    def stepped(self, step: Step) -> None: ...
    def evaluated(self, step: int, loss: float) -> None: ...
    def saved(self, step: int) -> None: ...
