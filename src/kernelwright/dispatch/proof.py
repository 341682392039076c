"""Proof: a rung serves by default only if what compiles today is what passed on a GPU.

`source_hash` covers what decides a kernel's bits: the entry's module, the modules and headers it
takes from this package, its .cu sources; comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from kernelwright.contract import Ladder, Rung
from kernelwright.toolchain.settings import settings

ROOT = Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
PROVEN = ROOT / "records" / "proven.json"


@cache
def source_hash(ladder: Ladder, rung: Rung) -> str:
    """First 16 hex digits of the SHA-256 of the rung's sources."""
    digest = hashlib.sha256()
    for path in sorted(sources(ladder, rung)):
        digest.update(path.name.encode() + b"\0" + _stripped(path).encode() + b"\0")
    digest.update(rung.entry.split(":")[1].encode())
    return digest.hexdigest()[:16]


def sources(ladder: Ladder, rung: Rung) -> set[Path]:
    """Every file that the rung is made of."""
    module = rung.entry.split(":")[0]
    found: set[Path] = set()
    _follow_python(ladder.folder / f"{module}.py", ladder.package, found)
    for name in rung.sources:
        _follow_include(ladder.folder / name, found)
    return found


def proven_on(ladder: Ladder, rung: Rung) -> tuple[str, ...]:
    """Machines on which the rung's present source passed."""
    return tuple(_proven().get(f"{ladder.name}.{rung.name}", {}).get(source_hash(ladder, rung), ()))


@cache
def _proven() -> dict[str, dict[str, list[str]]]:
    """What shipped records prove, and the user's own: machines by hash by rung."""
    found: dict[str, dict[str, list[str]]] = {}
    own = settings().records
    for path in (PROVEN, own / PROVEN.name) if own else (PROVEN,):
        for rung, by_hash in json.loads(path.read_text()).items() if path.exists() else ():
            for digest, machines in by_hash.items():
                known = found.setdefault(rung, {}).setdefault(digest, [])
                known += [m for m in machines if m not in known]
    return found


def _follow_python(path: Path, package: str, found: set[Path]) -> None:
    """The module and the kernel code it imports (its own folder, `ops._triton`), transitively."""
    if path in found:
        return
    found.add(path)
    folders = {package: path.parent, "kernelwright.ops._triton": ROOT / "ops" / "_triton"}
    for module, names in _imported(path.read_text()):
        base = importlib.util.resolve_name(module, package)
        for name in (base, *(f"{base}.{n}" for n in names)):
            owner, _, module = name.rpartition(".")
            if owner in folders and (folders[owner] / f"{module}.py").is_file():
                _follow_python(folders[owner] / f"{module}.py", owner, found)


@cache  # rungs share files: each is parsed once
def _imported(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Module, as it is written, and names of every `from ... import ...`."""
    return tuple(
        ("." * node.level + (node.module or ""), tuple(a.name for a in node.names))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
    )


def _follow_include(path: Path, found: set[Path]) -> None:
    if path in found:
        return
    found.add(path)
    for name in re.findall(r'#include\s*[<"](kw/[^>"]+)[>"]', path.read_text()):
        _follow_include(INCLUDE / name, found)


#: Where a header speaks PTX to a GPU and C++ to a CPU; neither branch has directives of its own.
_FOR_CPU = re.compile(
    r"^#ifdef __CUDA_ARCH__\n((?:(?!#).*\n)*?)(?:#else\n(?:(?!#).*\n)*?)?#endif\b.*", re.M
)


def _stripped(path: Path) -> str:
    """A file as a GPU's compiler reads it: no comments, and nothing that is for a CPU."""
    return _compiled(path.read_text(), path.suffix)


@cache
def _compiled(text: str, suffix: str) -> str:
    if suffix != ".py":
        text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
        return " ".join(_FOR_CPU.sub(r"\1", text).split())
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            first = body[0].value
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                node.body = body[1:] or [ast.Pass()]  # type: ignore[attr-defined]
    return _dump(tree)


def _dump(node: Any) -> str:
    """A syntax tree as text that is the same in every Python: `ast.unparse` writes other text,
    and `ast.dump` other empty fields (3.12 has `type_params`), from one version to the next."""
    if isinstance(node, ast.AST):
        filled = [(k, v) for k, v in ast.iter_fields(node) if v is not None and v != []]
        return f"{type(node).__name__}({', '.join(f'{k}={_dump(v)}' for k, v in filled)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_dump, node))}]"
    return repr(node)
