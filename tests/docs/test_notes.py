"""The table of topics: its exercises, quiz topics and chapters exist, what is missing is marked."""

import re

from kernelwright.workbench.exercise import exercise
from kernelwright.workbench.lessons import chapters, quiz
from support.paths import ROOT

TEXT = (ROOT / "docs" / "notes.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("| ") and not line.startswith(("| topic", "| ---", "| **"))
]


def test_a_cell_is_filled_or_marked_as_missing():
    assert len(ROWS) > 35
    assert [row[0] for row in ROWS if len(row) != 5 or not all(row)] == []


def test_exercises_and_questions_exist():
    names = set(re.findall(r"`([\w.]+)`", "".join(row[3] for row in ROWS)))
    assert names - {e.name or e.rung for e in exercise.exercises()} == set()
    questions = "".join(row[4] for row in ROWS)
    assert set(re.findall(r'quiz "([^"]+)"', questions)) <= {item.topic for item in quiz.items()}
    known = chapters.markdown()
    assert [c for c in re.findall(r'chapter "([^"]+)"', questions) if f"| {c} |" not in known] == []
