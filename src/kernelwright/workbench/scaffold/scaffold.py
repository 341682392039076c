"""`kernelwright new`: an operator's folder that verifies as written, to be changed from there."""

from __future__ import annotations

import ast
import importlib
import keyword
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template

import kernelwright.ops  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.dispatch import ladders
from kernelwright.support.errors import UserError
from kernelwright.support.settings import CHECKOUT, PACKAGE

TEMPLATES = Path(__file__).with_name("templates")


class CannotScaffold(UserError, ValueError):
    """The folder cannot be made; the message says why."""


def new(op: str, into: Path | None = None) -> list[Path]:
    """Write the folder of an operator; the paths that were written.

    Args:
        op: its name, a Python identifier in lower case.
        into: the folder to put it in; by default ops/ of a checkout of Kernelwright, and the
            operator is entered in ops/__init__.py and in the package's.

    Raises:
        CannotScaffold: the name does not do, the folder is there already, or there is no place.
    """
    if not op.isidentifier() or op != op.lower() or op.startswith("_") or keyword.iskeyword(op):
        raise CannotScaffold(f"OP: {op!r} is not a Python name in lower case")
    if into is None and not CHECKOUT:
        raise CannotScaffold("--into: this is no checkout of Kernelwright; name a folder")
    home = into or PACKAGE / "ops"
    if not home.is_dir():
        raise CannotScaffold(f"--into: there is no folder {home}")
    folder = home / op
    if folder.exists():
        raise CannotScaffold(f"OP: {folder} is there already")
    folder.mkdir()
    written: list[Path] = []
    for template in sorted(TEMPLATES.glob("*.tmpl")):
        path = folder / template.name.removesuffix(".tmpl")
        path.write_text(Template(template.read_text()).substitute(op=op), encoding="utf-8")
        written.append(path)
    if into is None:
        written.append(_enter(home / "__init__.py", op))
        written.append(_publish(PACKAGE / "__init__.py", op))
    return written


def spec(name: str, into: Path | None = None) -> Path:
    """Write NAME.py, a spec that a kernel can be judged by, into a folder or the current one.

    Raises:
        CannotScaffold: the name does not do, or the file is there already.
    """
    name = name.removesuffix(".py")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise CannotScaffold(f"--spec: {name!r} is no name of a Python file")
    path = (into or Path()) / f"{name}.py"
    if path.exists() or not path.parent.is_dir():
        why = "is there already" if path.exists() else "is in no folder"
        raise CannotScaffold(f"--spec: {path} {why}")
    text = Template((TEMPLATES / "judged" / "spec.py.tmpl").read_text()).substitute(name=name)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path) -> list[str]:
    """Import an operator's folder that stands outside the package; the operators it registers.

    Its Python runs in this process: load only what you would run yourself.

    Raises:
        CannotScaffold: the folder is no operator's.
    """
    folder = folder.resolve()
    if not (folder / "__init__.py").is_file():
        raise CannotScaffold(f"OP: {folder} holds no operator (no __init__.py)")
    before = {ladder.name for ladder in ladders()}
    sys.path.insert(0, str(folder.parent))
    importlib.import_module(folder.name)
    return [ladder.name for ladder in ladders() if ladder.name not in before]


def operators(names: Iterable[str]) -> list[str]:
    """Names of operators as given; a folder (anything with a slash) is loaded and stands for the
    operators in it."""
    found: list[str] = []
    for name in names:
        found += load(Path(name)) if "/" in name else [name]
    return found


def _enter(path: Path, op: str) -> Path:
    """Add the operator's import to ops/__init__.py, in order, and its name to __all__."""
    lines = path.read_text(encoding="utf-8").splitlines()
    line = f"from .{op} import {op}"
    imports = [i for i, have in enumerate(lines) if have.startswith("from .")]
    after = [i for i in imports if lines[i] < line]
    lines.insert(after[-1] + 1 if after else imports[0], line)
    path.write_text(_exported("\n".join(lines) + "\n", op), encoding="utf-8")
    return path


def _publish(path: Path, op: str) -> Path:
    """Add the operator to what kernelwright/__init__.py takes from ops."""
    text = path.read_text(encoding="utf-8")
    taken = re.search(r"^    from \.ops import (\([^)]*\)|.*)$", text, re.M)
    assert taken, path
    names = sorted({*re.findall(r"\w+", taken[1]), op})
    block = f"    from .ops import {', '.join(names)}"
    if len(block) > 100:
        block = "\n".join(["    from .ops import (", *(f"        {n}," for n in names), "    )"])
    text = text[: taken.start()] + block + text[taken.end() :]
    path.write_text(_exported(text, op), encoding="utf-8")
    return path


def _exported(text: str, op: str) -> str:
    """The module with the operator in its __all__, sorted, laid out as the formatter does."""
    tree = ast.parse(text)
    old = next(n for n in tree.body if isinstance(n, ast.Assign) and "__all__" in ast.dump(n))
    names = sorted({*ast.literal_eval(old.value), op})
    block = [f"__all__ = [{', '.join(_quoted(n) for n in names)}]"]
    multiline = old.end_lineno != old.lineno  # a trailing comma stays: the formatter keeps it
    if multiline or len(block[0]) > 100:
        block = ["__all__ = [", *(f"    {_quoted(n)}," for n in names), "]"]
    lines = text.splitlines()
    lines[old.lineno - 1 : old.end_lineno] = block
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    return f'"{name}"'
