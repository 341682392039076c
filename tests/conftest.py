"""Puts kernel languages into their modes before any test, and keeps account of what did not run.

expected_skips.txt holds, for machines without a GPU, how many cases each rung ran and why the
others did not. `pytest tests --write-skips` writes it; a run of whole files compares with it.
"""

import difflib
import logging
import os
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import torch

import kernelwright.ops  # noqa: F401
from kernelwright import toolchain

logging.getLogger("torch.__trace").propagate = False  # thousands of lines beside a failure
HERE = Path(__file__).parent
EXPECTED = HERE / "expected_skips.txt"
OPS = "test_ops.py"
TOOL = re.compile("no .* on this machine$")  # that a debugger or a browser is missing is no news
GPU = torch.cuda.is_available()

if not GPU:
    for backend in ("triton", "numba"):
        if toolchain.missing(backend, torch.device("cpu")) is None:
            toolchain.prepare(backend)
if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)  # workers share the cores


@pytest.fixture
def binds(monkeypatch):
    """Names of the operators that a test binds to a rung, in order: what a cache hands out a second
    time is not there a second time."""
    from kernelwright.dispatch import binding

    seen, launcher = [], binding.launcher

    def counted(ladder, *args):
        seen.append(ladder.name)
        return launcher(ladder, *args)

    monkeypatch.setattr(binding, "launcher", counted)
    return seen


@pytest.fixture
def few_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_configure(config):
    # triton's interpreter converts arrays in a way that NumPy deprecates
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:triton.*")


def pytest_addoption(parser):
    parser.addoption("--write-skips", action="store_true", help="write tests/expected_skips.txt")


class Account:
    """What ran and what did not, as `pytest_runtest_logreport` hears it from every worker."""

    def __init__(self):
        self.files, self.ran, self.skipped = set(), Counter(), defaultdict(Counter)

    def hear(self, report):
        file = report.nodeid.split("::")[0].rpartition("tests/")[2]
        if not (report.when == "call" or report.skipped):
            return
        self.files.add(file)
        properties = dict(report.user_properties)
        key = (file, properties.get("rung", ""))
        if report.skipped:
            why = properties.get("skipped") or _reason(report)
            if not TOOL.match(why):
                self.skipped[key][why] += 1
        elif report.when == "call":
            self.ran[key] += 1

    def leave_out(self):
        """Count the cases that test_ops.py did not even collect here."""
        from kernelwright.dispatch import ladders
        from kernelwright.workbench.verify import here
        from kernelwright.workbench.where import skip

        for ladder in ladders():
            for rung in ladder.rungs:
                for case in ladder.operator.cases:
                    why = skip(ladder, rung, rung.configs[0], case, here())
                    if why:
                        self.skipped[OPS, f"{ladder.name}.{rung.name}"][why] += 1

    def sections(self):
        """Lines by file: one for each rung, or one for a file whose tests name none."""
        found = {}
        for key in sorted({*self.ran, *self.skipped}):
            file, rung = key
            reasons = [f"{n} {why}" for why, n in sorted(self.skipped[key].items())]
            if rung or reasons:
                ran = [f"{self.ran[key]} ran"] if rung else []
                found.setdefault(file, []).append(
                    f"{rung or 'skipped'}: {'; '.join(ran + reasons)}"
                )
        return found


account = Account()


def pytest_runtest_logreport(report):
    account.hear(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    if OPS in account.files:
        account.leave_out()
    partial = any("::" in a for a in config.args) or any(
        config.getoption(o, None) for o in ("keyword", "markexpr", "lf", "maxfail")
    )
    if GPU or sys.platform != "linux" or partial:
        return
    mine, before = account.sections(), _committed()
    after = {f: lines for f, lines in before.items() if f not in account.files} | mine
    if config.option.write_skips:
        EXPECTED.write_text("\n".join(_text(after)) + "\n")
    elif after != before:
        lines = difflib.unified_diff(_text(before), _text(after), EXPECTED.name, "here", n=0)
        config.account_diff = [line.rstrip() for line in lines]
        if session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    rungs = sum(n for (_, rung), n in account.ran.items() if rung)
    left = sum(sum(c.values()) for (_, rung), c in account.skipped.items() if rung)
    if rungs or left:
        terminalreporter.write_line(f"rung x case pairs: {rungs} ran, {left} did not")
    if getattr(config, "account_diff", None):
        terminalreporter.write_sep("=", "what did not run has changed", red=True)
        terminalreporter.write_line("\n".join(config.account_diff))
        terminalreporter.write_line("If that is meant: pytest tests --write-skips, and commit.")


def _reason(report) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _committed() -> dict[str, list[str]]:
    """The committed lines by file."""
    found, current = {}, []
    for line in EXPECTED.read_text().splitlines() if EXPECTED.exists() else ():
        if line.startswith("["):
            current = found[line.strip("[]")] = []
        else:
            current.append(line)
    return found


def _text(sections: dict[str, list[str]]) -> list[str]:
    return [line for file in sorted(sections) for line in (f"[{file}]", *sections[file])]
