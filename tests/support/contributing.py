"""The example of CONTRIBUTING.md, executed in a folder made by `kernelwright new`."""

import ast
import re
from pathlib import Path

import kernelwright

ROOT = Path(kernelwright.__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def follow(folder):
    """Turn the scaffolded square into `scale`, as the text describes."""
    for code, name in blocks():
        path = folder / name
        path.write_text(edited(path.read_text(), code) if path.exists() else code)
    assert "`scale_fwd_block` and\n`scale_bwd_block` of the scaffold are removed" in TEXT
    kernels = folder / "triton_block.py"
    for kernel in ("scale_fwd_block", "scale_bwd_block"):
        kernels.write_text(without(kernels.read_text(), kernel))


def blocks():
    """(file, code) of each code block; the first line names the file."""
    return re.findall(r"^```\w+\n((?://|#) (\S+?):?(?: [^\n]*)?\n.*?)^```$", TEXT, re.M | re.S)


def name_of(node):
    """The name that a statement defines, or the module that it imports from."""
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
    """The text of a file with the definitions of a block inserted."""
    new = block.splitlines(keepends=True)
    for name, (first, last) in places(block).items():
        lines, there = text.splitlines(keepends=True), places(text)
        after = max(end for n, (_, end) in there.items() if str(n).startswith("import "))
        start, end = there.get(name, (after, after))
        text = "".join([*lines[:start], *new[first:last], *lines[end:]])
    return text
