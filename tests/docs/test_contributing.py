"""What CONTRIBUTING.md tells a contributor is so, and its example works as it stands there."""

import ast
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

PACKAGE = Path(kernelwright.__file__).parent
ROOT = PACKAGE.parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RUNGS = {"manual", "native", "cuda_thread", "triton_block"}


def blocks():
    """(file, code) of each block of code, by the file that its first line names."""
    return re.findall(r"^```\w+\n((?://|#) (\S+?):?(?: [^\n]*)?\n.*?)^```$", TEXT, re.M | re.S)


def commands(section):
    """The `kernelwright new` and `kernelwright verify` of a section, in order."""
    text = TEXT.split(f"\n### {section}. ")[1].split("\n### ")[0]
    lines = (line.split("   ")[0] for line in re.findall(r"^    (kernelwright .*)$", text, re.M))
    return [s.split()[1:] for s in lines if re.fullmatch(r"kernelwright (new|verify) \S+", s)]


def name_of(node):
    """What a statement defines: a name, or a module that it imports from."""
    if isinstance(node, ast.Assign):
        return node.targets[0].id
    if isinstance(node, ast.Import):
        return f"import {node.names[0].name}"
    if isinstance(node, ast.ImportFrom):
        return f"import {node.module}"
    return getattr(node, "name", None)


def places(text):
    """(first line, line after the last) of each top-level definition by its name."""
    found = {}
    for node in ast.parse(text).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        found[name_of(node)] = (first - 1, node.end_lineno)
    return found


def without(text, name):
    lines = text.splitlines(keepends=True)
    first, last = places(text)[name]
    return "".join(lines[:first] + lines[last:])


def edited(text, block):
    """A file in which the definitions of a block stand."""
    new = block.splitlines(keepends=True)
    for name, (first, last) in places(block).items():
        lines, there = text.splitlines(keepends=True), places(text)
        imports = [
            end for other, (_, end) in there.items() if other and other.startswith("import ")
        ]
        start, end = there.get(name, (max(imports),) * 2)
        text = "".join([*lines[:start], *new[first:last], *lines[end:]])
    return text


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of this checkout, for `new` writes into it."""
    root = tmp_path_factory.mktemp("checkout")
    shutil.copytree(
        PACKAGE, root / "src/kernelwright", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


def run(checkout, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def verified(checkout, operator):
    """The rungs of an operator that pass, where all do."""
    rows = json.loads(run(checkout, "verify", operator, "--json"))["rows"]
    assert {r["outcome"] for r in rows} == {"pass"}
    return {(r["operator"], r["rung"]) for r in rows}


def test_the_example_is_right_step_by_step(checkout):
    (new, (verify, operator)) = commands(1)
    assert (new, verify) == (["new", "elementwise/scale"], "verify")
    run(checkout, *new)
    folder = checkout / "src/kernelwright/ops/elementwise/scale"
    sides = {"scale", "scale.backward"}
    scaffolded = {(s, r) for s in sides for r in RUNGS - {"cuda_thread"}}
    assert verified(checkout, operator) == scaffolded

    for code, name in blocks():
        path = folder / name
        path.write_text(edited(path.read_text(), code) if path.exists() else code)
    assert "`scale_fwd_block` and\n`scale_bwd_block` of the scaffold are removed" in TEXT
    kernels = folder / "triton_block.py"
    for kernel in ("scale_fwd_block", "scale_bwd_block"):
        kernels.write_text(without(kernels.read_text(), kernel))
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
    (contract, _) = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    layers = " > ".join(layer.removeprefix("kernelwright.") for layer in contract["layers"])
    assert f"`{layers}`" in " ".join(TEXT.split())


def test_the_smallest_complete_operator_is_named():
    """Complete: a rung in PyTorch, Triton and CUDA C++, a backward and a page."""
    sizes = {}
    for ladder in LADDERS:
        folder = PACKAGE / "ops" / ladder.replace(".", "/")
        files = [p for p in folder.iterdir() if p.is_file()]
        kinds = {re.split(r"[_.]", p.name)[0] for p in files if p.suffix in (".py", ".cu")}
        if {"torch", "triton", "cuda"} <= kinds and (folder / "README.md").exists():
            sizes[ladder] = sum(len(p.read_text().splitlines()) for p in files)
    smallest = min(sizes, key=sizes.__getitem__).replace(".", "/")
    assert f"The smallest complete operator to read is `ops/{smallest}`." in " ".join(TEXT.split())
