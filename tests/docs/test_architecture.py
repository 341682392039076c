"""docs/architecture.md names what exists, and a call takes the path that it describes."""

import re
import sys
import tomllib
from itertools import pairwise

import pytest
import torch

import kernelwright as kw
from support.paths import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\n]+)`", PAGE)
PACKAGE = ROOT / "src" / "kernelwright"
PARTS = (
    "emulator",
    "emulator/program",
    "toolchain",
    "workbench/lessons",
    "integrations/transformers",
)
FOLDERS = [ROOT, ROOT / "tests" / "emulator", PACKAGE, *(PACKAGE / part for part in PARTS)]
OF_A_LADDER = {"heuristics.py", "__init__.py", "lesson.md", "lesson.zh.md", "measure.py"}


def test_files_exist():
    named = [c for c in CODE if re.fullmatch(r"[\w./-]*(\w\.(py|h|c|cpp|cu|md|toml)|/)", c)]
    assert len(named) > 50
    missing = [n for n in named if n not in OF_A_LADDER and not any((f / n).exists()
               for f in FOLDERS)]  # fmt: skip
    assert not missing


@pytest.mark.parametrize(
    "contract, start, end",
    [
        ("imports go one way", "| folder of", "The tools of"),
        ("the tools of the workbench use each other one way", "The tools of", "`include/kw/`"),
    ],
)
def test_tables_of_folders_are_the_import_contracts(contract, start, end):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (c["layers"] for c in settings["tool"]["importlinter"]["contracts"]
                 if c["name"] == contract)  # fmt: skip
    order = {n.strip().removeprefix("kernelwright."): i for i, layer in enumerate(layers)
             for n in layer.split(":")}  # fmt: skip
    table = PAGE[PAGE.index(start) : PAGE.index(end)]
    rows = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    folders = [f.rstrip("/") for row in rows for f in re.findall(r"`(\w+/?)[`<]?", row)
               if f.rstrip("/") != "family"]  # fmt: skip
    assert sorted(folders) == sorted(order)
    assert all(order[a] <= order[b] for a, b in pairwise(folders))


def test_the_first_call_takes_the_steps_of_the_table():
    files = []

    def listen(frame, event, _):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(PACKAGE)):
            files.append(name.removeprefix(f"{PACKAGE}/"))

    x = torch.randn(3, 17, 61)
    kw.softmax(x, -1)  # imports
    sys.setprofile(listen)
    try:
        kw.softmax(x.double(), -1)
    finally:
        sys.setprofile(None)
    table = PAGE[PAGE.index("### The first call") : PAGE.index("### Later calls")]
    steps = re.findall(r"^\| \d \| `([\w/]+\.py)`", table, re.M)
    before_a_gpu = [s for s in dict.fromkeys(steps) if not s.startswith("toolchain/")]
    last = {file: i for i, file in enumerate(files)}
    calls = [last[s] for s in before_a_gpu if s != "dispatch/binding.py"]
    assert calls == sorted(calls) and files.index("dispatch/binding.py") < calls[1]
