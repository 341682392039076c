"""tools/gpu_check.py without a GPU: its checks can fail, and are counted and recorded by name."""

import json
import random
import sys

import pytest
import torch

from kernelwright.machine import here
from kernelwright.workbench.records import suite
from support.publics import PUBLIC, Public
from tools import gpu_check


def test_functions_agree_with_pytorch_and_wrong_ones_do_not():
    assert (
        gpu_check._why(lambda rng: gpu_check.function(PUBLIC["gelu"], rng), random.Random(1)) == ""
    )
    wrong = Public(lambda x: torch.relu(x) + (x.shape[0] == 3), torch.relu)
    found = {gpu_check._why(lambda rng: gpu_check.function(wrong, rng), random.Random(i))
             for i in range(9)}  # fmt: skip
    assert any("AssertionError: (3, " in why for why in found)


def test_a_worker_prints_what_it_begins_and_what_comes_of_it(monkeypatch, capsys):
    def fails(rng):
        raise ValueError("one\ntwo")

    monkeypatch.setattr(gpu_check, "_checks", lambda part: {"a": lambda rng: None, "b": fails})
    gpu_check.work("patched", 0, 1, 0, until=0.0)
    lines = list(map(json.loads, capsys.readouterr().out.splitlines()))
    assert lines[:3] == [{"name": "a"}, {"name": "a", "why": ""}, {"name": "b"}]
    wrong = lines[3]
    assert wrong["name"] == "b" and wrong["why"].startswith("ValueError: one two (test_gpu_check")


def test_commands_that_fail_are_named(monkeypatch):
    monkeypatch.setattr(gpu_check, "COMMANDS", ({"good": ("list", "gelu")}, {"bad": ("lst",)}))
    outcome = gpu_check.commands()
    assert outcome.passed == 1
    assert outcome.failures["commands: bad"].startswith("exit code 2: ")


def test_what_hangs_is_ended_and_named(monkeypatch):
    monkeypatch.setattr(gpu_check, "PROCESSES", {"functions": 1})
    hangs = """import time; print('{"name": "a"}', flush=True); time.sleep(60)"""
    ended = gpu_check._ended
    monkeypatch.setattr(
        gpu_check, "_ended", lambda command: ended([sys.executable, "-c", hangs], 2)
    )
    outcome = gpu_check.workers("functions", 0, 0.0)
    assert outcome.failures == {"functions: process 0": "not over after 2 s in a: "}


def test_counts_and_names_are_recorded(monkeypatch, tmp_path, capsys):
    outcomes = [gpu_check.Outcome(part, passed=3, seconds=2.0) for part in gpu_check.PARTS]
    outcomes[0].failures["functions: gelu, turn 2"] = "AssertionError: no"
    known = {"python": "3.12", "torch": "2.11", "triton": "3.6", "gpu": {"driver": "580"}}
    monkeypatch.setattr("kernelwright.machine.facts", lambda device: known)
    gpu_check.recorded(outcomes, tmp_path / suite.FILE, "1a2b")
    (run,) = suite.load(tmp_path / suite.FILE)
    assert (run.commit, run.scope, run.passed, run.failed) == ("1a2b", suite.CHECK, 15, 1)
    assert run.failures == ("functions: gelu",)
    gpu_check.shown(outcomes, 7)
    assert "seed 7" in capsys.readouterr().out


def test_failures_are_printed_when_a_part_ends(monkeypatch, capsys):
    failures = {"commands: a": "exit code 3"}
    monkeypatch.setattr(
        gpu_check, "commands", lambda: gpu_check.Outcome("commands", 1, 0, 0, failures)
    )
    (outcome,) = gpu_check.run_parts(["commands"], 0, 0.0, None)
    assert outcome.failures == failures
    assert "FAILED commands: a - exit code 3" in capsys.readouterr().out


@pytest.mark.skipif(here().type == "cuda", reason="what a CPU does")
def test_without_a_gpu_it_says_so(monkeypatch):
    monkeypatch.setattr("sys.argv", ["gpu_check"])
    with pytest.raises(SystemExit, match="no GPU; `make test`"):
        gpu_check.main()
