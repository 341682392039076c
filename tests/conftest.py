"""Puts kernel languages into their modes before any test, and keeps account of what did not run.

expected_skips.txt holds, for machines without a GPU, how many cases each rung ran and why the
others did not. `pytest tests --write-skips` writes it; a run of whole files compares with it.
"""

import difflib
import logging
import os
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
COUNTED = ("test_ops.py", "test_binding.py", "wrong/test_wrong.py")
GPU = torch.cuda.is_available()

if not GPU:
    for backend in ("triton", "numba"):
        if toolchain.missing(backend, torch.device("cpu")) is None:
            toolchain.prepare(backend)
if os.environ.get("PYTEST_XDIST_WORKER"):
    torch.set_num_threads(1)  # workers share the cores


def pytest_configure(config):
    # triton's interpreter converts arrays in a way that NumPy deprecates
    config.addinivalue_line("filterwarnings", "ignore::DeprecationWarning:triton.*")


def pytest_addoption(parser):
    parser.addoption("--write-skips", action="store_true", help="write tests/expected_skips.txt")


class Account:
    """What ran and what did not, as `pytest_runtest_logreport` hears it from every worker."""

    def __init__(self):
        self.ran, self.skipped = Counter(), defaultdict(Counter)

    def hear(self, report):
        file = next((f for f in COUNTED if report.nodeid.split("::")[0].endswith(f)), None)
        if file is None or not (report.when == "call" or report.skipped):
            return
        properties = dict(report.user_properties)
        key = (file, properties.get("rung", ""))
        if report.skipped:
            self.skipped[key][properties.get("skipped") or _reason(report)] += 1
        elif report.when == "call":
            self.ran[key] += 1

    def leave_out(self):
        """Count the cases that test_ops.py did not even collect here."""
        from kernelwright.dispatch import ladders
        from kernelwright.workbench.verify import here, skip

        for ladder in ladders():
            for rung in ladder.rungs:
                for case in ladder.operator.cases:
                    why = skip(ladder, rung, rung.configs[0], case, here())
                    if why:
                        self.skipped["test_ops.py", f"{ladder.name}.{rung.name}"][why] += 1

    def lines(self, files):
        keys = sorted({*self.ran, *self.skipped})
        for file in files:
            yield f"[{file}]"
            for key in (k for k in keys if k[0] == file):
                reasons = [f"{n} {why}" for why, n in sorted(self.skipped[key].items())]
                if key[1] or reasons:
                    ran = [f"{self.ran[key]} ran"] if key[1] else []
                    yield f"{key[1] or 'skipped'}: {'; '.join(ran + reasons)}"


account = Account()


def pytest_runtest_logreport(report):
    account.hear(report)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    config = session.config
    if hasattr(config, "workerinput") or config.option.collectonly:
        return
    seen = [f for f in COUNTED if any(k[0] == f for k in (*account.ran, *account.skipped))]
    if "test_ops.py" in seen:
        account.leave_out()
    config.account_lines = lines = list(account.lines(seen))
    partial = any("::" in a for a in config.args) or any(
        config.getoption(o) for o in ("keyword", "markexpr", "lf", "maxfail")
    )
    config.account_diff = []
    if GPU or sys.platform != "linux" or partial:
        return
    if config.option.write_skips:
        EXPECTED.write_text("\n".join(_sections(EXPECTED, COUNTED, lines)) + "\n")
    else:
        config.account_diff = list(
            difflib.unified_diff(
                _committed(seen), lines, "expected_skips.txt", "here", "", "", 0, ""
            )
        )
        if config.account_diff and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter, config):
    if not getattr(config, "account_lines", None):
        return
    rungs = sum(n for (_, rung), n in account.ran.items() if rung)
    left = sum(sum(c.values()) for (_, rung), c in account.skipped.items() if rung)
    terminalreporter.write_line(f"rung x case pairs: {rungs} ran, {left} did not")
    if config.account_diff:
        terminalreporter.write_sep("=", "what did not run has changed", red=True)
        for line in config.account_diff:
            terminalreporter.write_line(line)
        terminalreporter.write_line("If that is meant: pytest tests --write-skips, and commit.")


def _reason(report) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")


def _committed(files) -> list[str]:
    return [line for f in files for line in _by_file(EXPECTED).get(f, [])]


def _sections(path, files, lines) -> list[str]:
    """The committed lines with those of the files that ran replaced."""
    fresh = _split(lines)
    merged = {**_by_file(path), **fresh}
    return [line for f in files for line in merged.get(f, [])]


def _by_file(path) -> dict[str, list[str]]:
    return _split(path.read_text().splitlines()) if path.exists() else {}


def _split(lines) -> dict[str, list[str]]:
    found, current = {}, []
    for line in lines:
        if line.startswith("["):
            current = found[line.strip("[]")] = []
        current.append(line)
    return found
