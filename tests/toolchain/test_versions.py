"""The tested versions of torch and triton, and the warning if others are installed."""

import re
import subprocess
import sys
import tomllib

import pytest

from kernelwright.toolchain import versions
from support.paths import ROOT

SETS = ("oldest", "middle", "newest")
USE = """
import importlib.metadata as metadata, sys, warnings
real = metadata.version
metadata.version = lambda name: {known}.get(name) or real(name)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import kernelwright as kw
    assert "torch" not in sys.modules and not caught
    import torch
    for _ in range(2):
        kw.silu(torch.ones(3))
        kw.relu(torch.ones(3))
print([str(w.message) for w in caught if "Kernelwright" in str(w.message)])
"""


def pinned(name, package):
    text = (ROOT / "constraints" / f"{name}.txt").read_text()
    return re.search(rf"^{package}==(\d+\.\d+)", text, re.M)[1]


@pytest.mark.parametrize("package", versions.TESTED)
def test_tested_is_what_the_constraints_pin(package):
    assert versions.TESTED[package] == tuple(pinned(name, package) for name in SETS)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = f"{package}>={versions.TESTED[package][0]}"
    assert any(d.split(";")[0] == oldest for d in project["dependencies"])


def test_an_untested_version_is_said_once_and_not_by_the_import():
    known = {"torch": "2.99.0", "triton": "3.99.0"}
    done = subprocess.run(
        [sys.executable, "-c", USE.replace("{known}", repr(known))],
        capture_output=True, text=True, cwd=ROOT / "src",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (said,) = eval(done.stdout)
    assert "not tested with torch 2.99.0 and triton 3.99.0, only with torch 2.11, 2.13" in said


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"torch": "2.15.3+cpu", "triton": "3.9.1"}, None),
        ({"torch": "2.14.1", "triton": "3.9.0"}, "not tested with torch 2.14.1, only"),
        ({"torch": "2.15.3", "triton": None}, None),
    ],
)
def test_the_minor_version_counts(known, words, monkeypatch, recwarn):
    monkeypatch.setattr(versions, "_installed", known.get)
    versions.warn_of_untested.__wrapped__()
    said = [str(w.message) for w in recwarn]
    assert len(said) == (words is not None) and (words or "") in "".join(said)
