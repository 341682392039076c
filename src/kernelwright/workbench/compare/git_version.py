"""Another commit of this repository, imported in addition to this one.

Two commits in two processes would have two contexts on the GPU, which are time-sliced and evict
each other's cache lines, and this would distort the times. The other commit's package is therefore
written to a temporary folder under another name (`kernelwright` becomes
`kernelwright_at_1a2b3c...` in every line of its Python) and imported into this process. It keeps
its own kernels, headers, launcher, selection and operator namespace, and its launches can alternate
with ours. `git archive` leaves nothing in the repository, even if the run is killed.
"""

from __future__ import annotations

import atexit
import importlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from kernelwright.support.errors import UsageError
from kernelwright.support.settings import PACKAGE

NAME = "kernelwright"


@cache
def root() -> Path:
    """The repository in which this package is checked out.

    Raises:
        UsageError: the package is not in a checkout.
    """
    top = _git("rev-parse", "--show-toplevel", at=PACKAGE)
    if top is None or not (Path(top) / "src" / NAME).is_dir():
        raise UsageError(
            "@COMMIT: this Kernelwright is not a git checkout, so there are no other commits"
        )
    return Path(top)


@cache
def resolve(commit: str) -> str:
    """The full hash of a commit.

    Raises:
        UsageError: there is no such commit.
    """
    resolved = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}")
    if resolved is None:
        raise UsageError(f"@{commit}: {root()} has no such commit")
    return resolved


@cache
def package(sha: str) -> str:
    """Import the package as of a commit; returns its name in sys.modules."""
    name = f"{NAME}_at_{sha[:12]}"
    folder = Path(tempfile.mkdtemp(prefix="kernelwright-commit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = [f"src/{NAME}", *(["records"] if _git("ls-tree", sha, "records") else [])]
    done = subprocess.run(
        ["git", "-C", str(root()), "archive", "--format=tar", sha, *paths], capture_output=True
    )
    if done.returncode:
        raise UsageError(f"@{sha[:12]}: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(folder, filter="data")
    (folder / "src" / NAME).rename(folder / "src" / name)
    (folder / "pyproject.toml").touch()  # marks a checkout, which uses its own records and tables
    for path in (folder / "src" / name).rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        path.write_text(re.sub(rf"\b{NAME}\b", name, text), encoding="utf-8")
    sys.path.append(str(folder / "src"))
    every = (folder / "src" / name / "ops" / "every.py").is_file()  # since 2026-11-23
    importlib.import_module(f"{name}.ops.every" if every else f"{name}.ops")
    _hashed_as_committed(name)
    return name


def _hashed_as_committed(name: str) -> None:
    """Make hashes independent of the new name. Proofs of the other commit contain hashes of sources
    with the name `kernelwright`; otherwise no rung would be proven, and PyTorch would be called."""
    proof = importlib.import_module(f"{name}.dispatch.proof")
    compiled = getattr(proof, "_compiled", None)
    if compiled:  # in older commits without it, only rungs given by name are compared
        vars(proof)["_compiled"] = lambda text, suffix: compiled(text.replace(name, NAME), suffix)


def _git(*arguments: str, at: Path | None = None) -> str | None:
    """git's output, or None if it fails."""
    where = root() if at is None else at
    try:
        done = subprocess.run(["git", "-C", str(where), *arguments], capture_output=True, text=True)
    except FileNotFoundError:
        raise UsageError("@COMMIT: git is not installed") from None
    return done.stdout.strip() if done.returncode == 0 else None
