"""The quiz: 60 questions, each with one right choice and a page or a command that exists."""

import shlex

import pytest
import typer

from docs.test_titles import cited
from kernelwright import cli
from kernelwright.support.errors import UserError
from kernelwright.workbench.lessons import lesson, quiz

ITEMS = quiz.items()


def test_there_are_sixty_questions_of_six_topics():
    topics = [of.topic for of in ITEMS]
    assert len(ITEMS) == len({of.question for of in ITEMS}) == 60
    assert list(dict.fromkeys(topics)) == [
        "hierarchy", "coalescing", "atomics", "tensor cores", "attention", "parallelism",
    ]  # fmt: skip


def test_each_question_has_one_right_choice_and_letters_are_balanced():
    for of in ITEMS:
        assert of.answer in of.choices and len(set(of.choices)) == len(of.choices) == 4
    letters = [of.letter for of in ITEMS]
    assert max(letters.count(x) for x in quiz.LETTERS) <= 20


def shows(see):
    """Raises if a page, an anchor, a command or its argument does not exist."""
    if not see.startswith("kernelwright "):
        assert cited(see), see
        return
    name, *arguments = shlex.split(see)[1:]
    command = typer.main.get_command(cli.app).commands[name]
    found = command.make_context(name, arguments, resilient_parsing=False).params
    if name == "learn":
        lesson.named(found["name"])


@pytest.mark.parametrize("see", sorted({of.see for of in ITEMS}))
def test_what_shows_an_answer_exists(see):
    shows(see)


@pytest.mark.parametrize(
    "see",
    ["docs/none.md", 'docs: "none"', 'docs: "softmax", "none"', "kernelwright none",
     "kernelwright learn none", "kernelwright learn --none"],
)  # fmt: skip
def test_what_does_not_exist_is_found(see):
    usage = typer.BadParameter.__mro__[1]
    with pytest.raises((AssertionError, KeyError, UserError, usage)):
        shows(see)


def test_letters_and_choices_are_answers():
    of = quiz.Item("t", "q", ("x y", "z"), "z", "", "")
    given = {"b": True, " B ": True, "z": True, "Z": True, "a": False, "x y": False, "": False}
    assert {g: quiz.right(g, of) for g in given} == given


def test_a_quiz_may_be_ended_early(capsys, monkeypatch):
    answers = iter([ITEMS[0].letter, "no"])

    def given(*_, **__):
        try:
            return next(answers)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("rich.console.Console.input", given)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["learn", "--quiz"])
    out = capsys.readouterr().out
    assert stopped.value.code == 1 and "1 of 2 correct" in out and f"see {ITEMS[1].see}" in out
