"""The result of a run of the tests: a skip for an unknown reason fails the run, and
`--record-suite` stores its counts."""

import subprocess
import time
from collections import Counter, defaultdict

import pytest

from kernelwright.machine import facts, here, slug
from kernelwright.workbench.records import suite
from support import cover
from support.paths import ROOT


class Account:
    """Receives all reports, including those of xdist's workers. `known`: a pattern of the reasons
    for which a test may be skipped."""

    def __init__(self, config, known):
        partial = config.option.keyword or any(".py" in argument for argument in config.args)
        if config.option.record_suite and partial:
            raise pytest.UsageError("--record-suite: keeps whole parts: leave out -k and files")
        self.config, self.known, self.start = config, known, time.time()
        self.counts, self.failures, self.unknown = Counter(), [], defaultdict(list)

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failures.append(report.nodeid)
        elif hasattr(report, "wasxfail"):  # its report is that of a skip
            self.counts["xfailed"] += 1
        elif report.skipped:
            self.counts["skipped"] += 1
            why = report.longrepr[2].removeprefix("Skipped: ")
            if not self.known.fullmatch(why):
                self.unknown[why].append(report.nodeid)
        elif report.when == "call":
            self.counts["passed"] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self.unknown and session.exitstatus == 0:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self.config.option.record_suite:
            suite.append(self.run(), self.config.option.record_suite)

    def pytest_terminal_summary(self, terminalreporter):
        if self.unknown:
            terminalreporter.write_sep("=", "skipped for reasons that are not known", red=True)
        for why, names in self.unknown.items():
            terminalreporter.write_line(f"{why}: {len(names)} tests, {names[0]} among them")

    def run(self):
        found = facts(here())
        return suite.SuiteRun(
            commit=self.config.option.commit or commit(),
            when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            machine=slug(here()),
            python=found["python"],
            torch=found["torch"],
            triton=found["triton"],
            driver=found["gpu"]["driver"] if found["gpu"] else None,
            scope="all" if cover.everything(self.config) else "cover",
            part="/".join(map(str, self.config.option.share)),
            passed=self.counts["passed"],
            failed=len(set(self.failures)),
            skipped=self.counts["skipped"],
            seconds=round(time.time() - self.start, 1),
            failures=tuple(dict.fromkeys(self.failures)),
        )


def commit():
    """The commit of the checkout, followed by "+" if there are uncommitted changes."""
    git = ["git", "-C", str(ROOT)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True)
    if head.returncode:
        raise pytest.UsageError("--record-suite: git does not know the commit; name it: --commit")
    changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True)
    return head.stdout.strip() + ("+" if changed.stdout else "")
