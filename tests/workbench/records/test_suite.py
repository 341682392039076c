"""Results of runs of the tests: counted, stored by commit, merged and shown by `ledger`."""

import json
import re
import subprocess
from dataclasses import replace
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from kernelwright.cli.render import results
from kernelwright.workbench.records import ledger, merge, suite
from kernelwright.workbench.records.suite import SuiteRun
from support import recorded

RUN = SuiteRun(
    commit="1a2b3c4d5e6f7a8b", when="2030-01-01T10:00:00Z", machine="nvidia-h200", python="3.12.3",
    torch="2.11.0", triton="3.6.0", driver="580.1", scope="cover", part="1/2", passed=10, failed=0,
    skipped=2, seconds=30.0,
)  # fmt: skip
SECOND = replace(RUN, part="2/2", when="2030-01-01T10:05:00Z", passed=7, failed=1,
                 failures=("tests/test_a.py::test_b",))  # fmt: skip


def shown(found):
    console = Console(width=200, record=True, file=StringIO())
    console.print(found)
    return console.export_text()


def test_parts_of_a_commit_are_counted_together():
    (found,) = suite.standing([SECOND, RUN])
    assert (found.passed, found.failed, found.skipped, found.seconds) == (17, 1, 4, 60.0)
    assert found.failures == ("tests/test_a.py::test_b",) and found.missing == ()
    assert found.when == SECOND.when
    (half,) = suite.standing([RUN])
    assert half.missing == ("2/2",)


def test_a_part_that_ran_again_counts_once():
    again = replace(SECOND, when="2030-01-01T11:00:00Z", passed=8, failed=0, failures=())
    (found,) = suite.standing([RUN, SECOND, again])
    assert (found.passed, found.failed) == (18, 0)


@pytest.mark.parametrize("changed", [{"commit": "0" * 16}, {"scope": "all"}, {"torch": "2.13.0"}])
def test_another_commit_scope_or_torch_is_another_run(changed):
    (found,) = suite.standing([RUN, replace(SECOND, **changed)])
    assert found.passed == SECOND.passed and found.missing == ("1/2",)


def test_runs_are_kept_merged_once_and_shown(tmp_path, monkeypatch):
    brought = tmp_path / "brought" / suite.FILE
    suite.append(RUN, brought)
    suite.append(SECOND, brought)
    assert suite.load(brought) == [RUN, SECOND]
    shipped = tmp_path / "shipped"
    assert merge.merge([brought.parent], shipped).taken == 2
    assert merge.merge([brought.parent], shipped).taken == 0
    assert suite.load(shipped / suite.FILE) == [RUN, SECOND]
    said = shown(results.ledger(ledger.ledger(shipped)))
    assert re.search(
        r"Tests on nvidia-h200: 17 passed, 1 failed, 4 skipped in 60 s, 2030-01-01T10:05:00Z "
        r"at 1a2b3c4d5e6f, torch 2\.11\.0 \(the tests of make test\)\s+"
        r"#\s+this checkout's git does not know that commit\s+"
        r"#\s+tests/test_a\.py::test_b: no reason is known",
        said,
    )


def test_a_failure_needs_a_reason(tmp_path):
    """Of the newest run on each machine; older runs do not count."""
    older = replace(RUN, part="1/1", when="2029-01-01T10:00:00Z", failures=("tests/old.py::x",))
    newest = replace(SECOND, part="1/1")
    for run in (older, newest, replace(newest, machine="nvidia-h100", failures=())):
        suite.append(run, tmp_path / suite.FILE)
    (problem,) = ledger._of_runs(tmp_path)
    assert problem.startswith("nvidia-h200: tests/test_a.py::test_b failed")
    assert problem in ledger.check(tmp_path)
    reason = "PyTorch adds bfloat16 in an order that differs from call to call"
    (tmp_path / suite.KNOWN).write_text(json.dumps({"tests/test_a.py::test_b": reason}))
    assert not [*ledger._of_runs(tmp_path)]
    assert f"tests/test_a.py::test_b: {reason}" in shown(results.ledger(ledger.ledger(tmp_path)))


def test_a_ledger_counts_the_files_that_changed_since_a_run(tmp_path, monkeypatch):
    def git(*words):
        done = subprocess.run(
            ["git", "-C", str(tmp_path), "-c", "user.name=n", "-c", "user.email=e", *words],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        return done.stdout.strip()

    monkeypatch.setattr(suite, "ROOT", tmp_path)
    for folder in suite.SOURCES:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "a.py").touch()
    git("init", "-q"), git("add", "-A"), git("commit", "-qm", "first")
    commit = git("rev-parse", "HEAD")
    assert suite.changed_since(commit) == 0
    (tmp_path / suite.SOURCES[0] / "a.py").write_text("1\n")
    (tmp_path / suite.SOURCES[1] / "a.py").write_text("1\n")
    (tmp_path / "README.md").write_text("1\n")
    git("add", "-A"), git("commit", "-qm", "second")
    assert suite.changed_since(commit) == suite.changed_since(f"{commit}+") == 2
    assert suite.changed_since("0" * 40) is None


def test_a_ledger_says_that_no_gpu_ran_the_tests(tmp_path):
    assert "The tests have not been run on a GPU." in shown(results.ledger(ledger.ledger(tmp_path)))


# the result of a run


def report(name, outcome, when="call", why=""):
    return SimpleNamespace(
        nodeid=name, when=when, longrepr=("f.py", 1, f"Skipped: {why}"),
        passed=outcome == "passed", failed=outcome == "failed", skipped=outcome == "skipped",
    )  # fmt: skip


@pytest.fixture
def account():
    option = SimpleNamespace(keyword="", record_suite=None, commit="abc", share=(2, 7), all=True)
    config = SimpleNamespace(option=option, args=("tests",))
    return recorded.Account(config, re.compile("needs a GPU"))


def test_a_run_is_counted(account):
    for each in (
        report("a", "passed", "setup"), report("a", "passed"), report("a", "passed", "teardown"),
        report("b", "failed"), report("b", "failed", "teardown"),
        report("c", "skipped", "setup", "needs a GPU"),
    ):  # fmt: skip
        account.pytest_runtest_logreport(each)
    run = account.run()
    assert (run.passed, run.failed, run.skipped, run.failures) == (1, 1, 1, ("b",))
    assert (run.scope, run.part, run.commit) == ("all", "2/7", "abc")


@pytest.mark.parametrize(("why", "status"), [("needs a GPU", 0), ("a row is too short", 1)])
def test_a_skip_for_a_reason_that_is_not_known_fails(account, why, status):
    account.pytest_runtest_logreport(report("c", "skipped", "setup", why))
    session = SimpleNamespace(exitstatus=0)
    account.pytest_sessionfinish(session)
    assert session.exitstatus == status


def test_only_whole_parts_are_kept(account):
    option = SimpleNamespace(**{**vars(account.config.option), "record_suite": "file"})
    for args, keyword in ((("tests/test_a.py",), ""), (("tests",), "softmax")):
        config = SimpleNamespace(option=option, args=args)
        option.keyword = keyword
        with pytest.raises(pytest.UsageError, match="leave out -k and files"):
            recorded.Account(config, account.known)
