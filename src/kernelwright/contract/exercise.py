"""Exercises: the function bodies of a rung that a learner writes, and hints for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A function whose body is removed.

    Attributes:
        function: its name in the rung's source.
        hints: what the body does, step by step, in words.
        given: the body is kept up to and including the first line that contains this text.
    """

    function: str
    hints: tuple[str, ...]
    given: str = ""


@dataclass(frozen=True)
class Exercise:
    """A rung that a learner writes. Each operator's are in its `exercises.py`, as EXERCISES.

    Attributes:
        rung: "sum.cuda_sequential".
        place: its position in the learning order of all exercises, from easy to hard.
        lesson: what it teaches, in one line.
        launch: what its plan launches, in one sentence.
        tasks: the functions to write.
    """

    rung: str
    place: int
    lesson: str
    launch: str
    tasks: tuple[Task, ...]

    @property
    def operator(self) -> str:
        return self.rung.rpartition(".")[0]
