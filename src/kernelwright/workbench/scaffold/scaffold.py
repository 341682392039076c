"""`kernelwright new`: writes the folder of a new operator that passes `verify`, for the user to
change."""

from __future__ import annotations

import importlib
import keyword
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from string import Template

import kernelwright.ops.every  # noqa: F401  # pyright: ignore[reportUnusedImport]
from kernelwright.dispatch import ladders
from kernelwright.ops import PUBLIC
from kernelwright.support import durable
from kernelwright.support.errors import UserError
from kernelwright.support.settings import CHECKOUT, PACKAGE

from .stub import stub

TEMPLATES = Path(__file__).with_name("templates")


class CannotScaffold(UserError, ValueError):
    """The folder cannot be created; the message states the reason."""


def new(op: str, into: Path | None = None) -> list[Path]:
    """Write the folder of an operator; returns the paths that were written.

    Args:
        op: FAMILY/NAME, "elementwise/scale", for an operator of this checkout of Kernelwright: it
            is added to the table in ops/__init__.py. With `into`, only NAME. Names are Python
            identifiers in lower case.
        into: the parent folder, outside the package.

    Raises:
        CannotScaffold: the name is invalid, or the folder exists or cannot be created.
    """
    family, slash, name = op.rpartition("/")
    if not name.isidentifier() or name != name.lower() or name[0] == "_" or keyword.iskeyword(name):
        raise CannotScaffold(f"OP: {name!r} is not a Python name in lower case")
    if into is None and not CHECKOUT:
        raise CannotScaffold(
            "--into: this is not a checkout of Kernelwright; give the destination folder"
        )
    if into is None and family not in families():
        known = ", ".join(families())
        raise CannotScaffold(f"OP: give its family as well, FAMILY/{name}; there are {known}")
    if into and slash:
        raise CannotScaffold(f"OP: with --into it has no family: {name}")
    home = into or PACKAGE / "ops" / family
    if not home.is_dir():
        raise CannotScaffold(f"--into: there is no folder {home}")
    folder = home / name
    if folder.exists():
        raise CannotScaffold(f"OP: {folder} already exists")
    written: list[Path] = []
    with durable.new_folder(folder) as aside:
        for template in sorted(TEMPLATES.glob("*.tmpl")):
            file = template.name.removesuffix(".tmpl")
            text = Template(template.read_text()).substitute(op=name)
            (aside / file).write_text(text, encoding="utf-8")
            written.append(folder / file)
    if into is None:
        written.append(_enter(PACKAGE / "ops" / "__init__.py", f"{family}.{name}", name))
        public = {**PUBLIC, name: f"kernelwright.ops.{family}.{name}"}
        written.append(_stubbed(PACKAGE / "__init__.pyi", public))
    return written


def families() -> list[str]:
    """Folders of `ops` that contain ladders."""
    folders = (PACKAGE / "ops").iterdir()
    return sorted(p.name for p in folders if p.name[0] != "_" and (p / "__init__.py").is_file())


def spec(name: str, into: Path | None = None) -> Path:
    """Write NAME.py, a spec for judging a kernel, into a folder or the current one.

    Raises:
        CannotScaffold: the name is invalid, or the file already exists.
    """
    name = name.removesuffix(".py")
    if not name.isidentifier() or keyword.iskeyword(name):
        raise CannotScaffold(f"--spec: {name!r} is not a valid name of a Python file")
    path = (into or Path()) / f"{name}.py"
    if path.exists() or not path.parent.is_dir():
        why = "already exists" if path.exists() else "is not in an existing folder"
        raise CannotScaffold(f"--spec: {path} {why}")
    text = Template((TEMPLATES / "judged" / "spec.py.tmpl").read_text()).substitute(name=name)
    durable.write_text(path, text)
    return path


def load(folder: Path) -> list[str]:
    """Import an operator's folder outside the package; returns the operators that it registers.

    Its Python runs in this process: load only what you would run yourself.

    Raises:
        CannotScaffold: the folder does not contain an operator.
    """
    folder = folder.resolve()
    if not (folder / "__init__.py").is_file():
        raise CannotScaffold(f"OP: {folder} contains no operator (no __init__.py)")
    before = {ladder.name for ladder in ladders()}
    sys.path.insert(0, str(folder.parent))
    importlib.import_module(folder.name)
    return [ladder.name for ladder in ladders() if ladder.name not in before]


def operators(names: Iterable[str]) -> list[str]:
    """Names of operators as given, but a folder (anything with a slash) is loaded and replaced by
    the names of the operators in it."""
    names_of_all: list[str] = []
    for name in names:
        names_of_all += load(Path(name)) if "/" in name else [name]
    return names_of_all


def _enter(path: Path, ladder: str, op: str) -> Path:
    """Append a line to the table of ops/__init__.py."""
    text = path.read_text(encoding="utf-8")
    table = re.search(r"^LADDERS\b.*?^}\n", text, re.M | re.S)
    assert table, path
    line = f'    "{ladder}": ("{op}",),\n'
    text = text[: table.end() - 2] + line + text[table.end() - 2 :]
    path.write_text(text, encoding="utf-8")
    return path


def _stubbed(path: Path, public: dict[str, str]) -> Path:
    path.write_text(stub(public), encoding="utf-8")
    return path
