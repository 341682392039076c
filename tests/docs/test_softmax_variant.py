"""Softmax's page: FasterTransformer's kernel is correct, and its counts are the emulator's."""

import re

import pytest

from kernelwright import cli
from support.paths import ROOT
from tools import movement

KERNEL = "examples/softmax_block_per_row.cu"
PAGE = (ROOT / "src/kernelwright/ops/reduce/softmax/README.md").read_text(encoding="utf-8")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        bool(movement.dissect.emulator.missing("dissected")), reason="no C++ compiler here"
    ),
]


def printed(capfd, monkeypatch, *arguments):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as stopped:
        cli.main(list(arguments))
    out = capfd.readouterr().out
    assert stopped.value.code == 0, out
    return out


def total(lines, pattern, column):
    """The sum of a column over the lines that contain a pattern."""
    found = [line.split("\t") for line in lines.splitlines() if re.search(pattern, line)]
    return sum(int(cells[column].replace(",", "")) for cells in found)


def test_the_kernel_is_correct(capfd, monkeypatch):
    out = printed(capfd, monkeypatch, "run", KERNEL, "--check", "all")
    assert float(re.search(r"error (\S+)", out)[1]) < 1e-5


def test_the_page_has_the_counts(capfd, monkeypatch):
    at = ["--launch", KERNEL.replace(".cu", ".py")]
    block = printed(capfd, monkeypatch, "dissect", f"{KERNEL}:softmax_block_per_row", *at)
    warp = printed(
        capfd, monkeypatch, "dissect", "softmax.cuda_warp", "--case", "4096x768-f32-dim=-1"
    )
    loads = total(block, "load x", 2), total(warp, "load x", 3)
    assert f"| loads of x, requests of a warp | {loads[0]:,} | {loads[1]:,} |" in PAGE
    shared = total(block, " shared", 2)
    assert " shared" not in warp and f"both ways | {shared:,} | 0 |" in PAGE
    branches = total(block, "\tbranch\t", 3)
    assert f"| divergent branches | {branches:,} | 0 |" in PAGE
    assert "# no divergent branches" in warp
