"""Exercises: what a learner writes or repairs, the hints, and the counter to improve."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """A function whose body is removed, or in which a fault is planted.

    Attributes:
        function: its name in the rung's source.
        hints: what the body does, step by step, in words; `--hint` gives one at a time.
        given: the body is kept up to and including the first line that contains this text.
        planted: (text of the rung, what stands there instead), each text once in the body; the rest
            of the body is kept.
    """

    function: str
    hints: tuple[str, ...]
    given: str = ""
    planted: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Target:
    """A counter of the emulator that a good solution keeps low.

    Attributes:
        counter: a key of `workbench.exercise.watched.COUNTERS`.
        most: the largest value, on the largest float32 input without special values.
    """

    counter: str
    most: float


@dataclass(frozen=True)
class Exercise:
    """A rung that a learner writes or repairs. The `exercises.py` of an operator lists its own as
    EXERCISES.

    Attributes:
        rung: the solution, "sum.cuda_sequential".
        place: its position in the learning order of all exercises, from easy to hard.
        lesson: the task in one line: what is computed and under which condition, not how.
        launch: what its plan launches, in one sentence.
        tasks: the functions to write.
        targets: the counters that `--check` compares once the results are right; CUDA C++ only.
        name: the name by which it is selected, if that is not the rung's.
    """

    rung: str
    place: int
    lesson: str
    launch: str
    tasks: tuple[Task, ...]
    targets: tuple[Target, ...] = ()
    name: str = ""

    @property
    def id(self) -> str:
        return self.name or self.rung

    @property
    def faulty(self) -> bool:
        """Whether the task is to find a fault instead of writing a body."""
        return any(task.planted for task in self.tasks)

    @property
    def hints(self) -> tuple[str, ...]:
        return tuple(hint for task in self.tasks for hint in task.hints)
