"""A rung as an exercise: which bodies a learner writes, and the hints for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A function whose body is taken out.

    Attributes:
        function: its name in the rung's source.
        hints: what the body does, step by step, in words.
        given: the body stays up to and including the first line that holds this text.
    """

    function: str
    hints: tuple[str, ...]
    given: str = ""


@dataclass(frozen=True)
class Exercise:
    """A rung that a learner writes. A subject holds its own in `exercises.py`, as EXERCISES.

    Attributes:
        rung: "sum.cuda_sequential".
        place: in the learning order of all subjects, from easy to hard.
        lesson: what it teaches, in a line.
        launch: what its plan launches, in a sentence.
        tasks: what is to be written.
    """

    rung: str
    place: int
    lesson: str
    launch: str
    tasks: tuple[Task, ...]

    @property
    def operator(self) -> str:
        return self.rung.rpartition(".")[0]
