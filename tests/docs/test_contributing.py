"""CONTRIBUTING.md is true, and its example works as printed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kernelwright
from kernelwright.ops import LADDERS
from support import contributing
from support.contributing import ROOT, TEXT

PACKAGE = Path(kernelwright.__file__).parent
RUNGS = {"manual", "native", "cuda_thread", "triton_block"}


def commands(section):
    """The `kernelwright new` and `kernelwright verify` of a section, in order."""
    text = TEXT.split(f"\n### {section}. ")[1].split("\n### ")[0]
    lines = (line.split("   ")[0] for line in re.findall(r"^    (kernelwright .*)$", text, re.M))
    return [s.split()[1:] for s in lines if re.fullmatch(r"kernelwright (new|verify) \S+", s)]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout, because `new` writes into it."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        PACKAGE, root / "src/kernelwright", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def run(checkout, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright", *arguments],
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def verified(checkout, operator):
    """The rungs of an operator that pass; asserts that all do."""
    rows = json.loads(run(checkout, "verify", operator, "--json"))["rows"]
    assert {r["outcome"] for r in rows} == {"pass"}
    return {(r["operator"], r["rung"]) for r in rows}


@pytest.mark.long
def test_the_example_is_right_step_by_step(checkout):
    (new, (verify, operator)) = commands(1)
    assert (new, verify) == (["new", "elementwise/scale"], "verify")
    run(checkout, *new)
    folder = checkout / "src/kernelwright/ops/elementwise/scale"
    sides = {"scale", "scale.backward"}
    scaffolded = {(s, r) for s in sides for r in RUNGS - {"cuda_thread"}}
    assert verified(checkout, operator) == scaffolded

    contributing.follow(folder)
    assert ["verify", operator] in commands(6)
    assert verified(checkout, operator) == {(s, r) for s in sides for r in RUNGS}

    script = """
import torch, kernelwright as kw
x = torch.tensor([1.0, -2.0], requires_grad=True)
y = kw.scale(x, 3.0)
y.backward(torch.tensor([10.0, 100.0]))
print(y.tolist(), x.grad.tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )
    assert done.stdout == "[3.0, -6.0] [30.0, 300.0]\n", done.stderr


def test_the_layers_are_those_that_imports_are_checked_by():
    (contract, *_) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    layers = " > ".join(contract["layers"]).replace("kernelwright.", "").replace(" : ", ", ")
    assert f"`{layers}`" in " ".join(TEXT.split())


def test_the_smallest_complete_operator_is_named():
    """Complete: a rung in PyTorch, Triton and CUDA C++, a backward and a page."""
    sizes = {}
    for ladder in LADDERS:
        folder = PACKAGE / "ops" / ladder.replace(".", "/")
        files = [p for p in folder.iterdir() if p.is_file()]
        kinds = {re.split(r"[_.]", p.name)[0] for p in files if p.suffix in (".py", ".cu")}
        backward = any(".backward" in p.read_text() for p in files if p.suffix == ".py")
        if {"torch", "triton", "cuda"} <= kinds and backward and (folder / "README.md").exists():
            sizes[ladder] = sum(len(p.read_text().splitlines()) for p in files)
    smallest = min(sizes, key=sizes.__getitem__).replace(".", "/")
    assert f"The smallest complete operator to read is `ops/{smallest}`." in " ".join(TEXT.split())
