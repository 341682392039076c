"""docs/first_reduction.md: each of its kernels gives the output that the page shows."""

import io
import re
from dataclasses import asdict

import pytest
from rich.console import Console

from kernelwright.cli.render import exercises as show
from kernelwright.toolchain import availability
from kernelwright.workbench.exercise import check as checking
from kernelwright.workbench.exercise import exercise, files

PAGE = (exercise.DOC.parent / "first_reduction.md").read_text()
#: (body, the check's output): a code block, and the following indented lines that begin with an
#: outcome.
STEPS = re.findall(
    r"```cuda\n(.*?)```.*?\n((?:    (?:correct|wrong)  [^\n]*\n)(?:    [^\n]*\n)*)", PAGE, re.S
)


def test_the_page_has_its_steps():
    assert len(STEPS) == PAGE.count("```cuda") == 5
    assert [said.split()[0] for _, said in STEPS] == [
        "wrong", "correct", "correct", "wrong", "correct",
    ]  # fmt: skip
    for name in re.findall(r"kernelwright exercise ([a-z_.]+)", PAGE):
        assert exercise.named(name)


@pytest.mark.long
@pytest.mark.parametrize("step", range(5))
def test_each_step_says_what_the_page_shows(step, tmp_path):
    body, said = STEPS[step]
    of = files.source(exercise.named(said.split()[1]))
    if missing := availability.missing(of.rung.backend, checking.here()):
        pytest.skip(missing)
    path = tmp_path / of.file_name
    path.write_text(files.text(of).replace("  // TODO\n", body))
    found = asdict(checking.check(of, path))
    out = io.StringIO()
    Console(file=out, width=200).print(show.checked(of.exercise, path, found, None))
    printed = " ".join(out.getvalue().split())
    for line in said.splitlines():
        line = " ".join(line.split())
        if re.match("allocations|bounds|races", line):  # the order of the threads may vary
            assert _numberless(line) in _numberless(printed), out.getvalue()
        else:
            assert line in printed, out.getvalue()


def _numberless(text):
    """The text without numbers, except line numbers."""
    return re.sub(r"(?<!:)\b\d+", "N", text)
