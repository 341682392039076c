"""A copy of the package in which everything is different that a source hash does not cover: local
names, messages and layout."""

import ast
from pathlib import Path

from kernelwright.support import cuda_form, imports, includes, python_form

FOLDERS = ("contract", "ops", "support", "toolchain")  # on which rungs depend


def rewrite(package: Path) -> None:
    """Rewrite the files of a copy of the package."""
    codes = {p: includes.code(p) for p in package.rglob("*.cu*") if p.suffix in (".cu", ".cuh")}
    macros = frozenset(n for code in codes.values() for n in cuda_form._macros(code))
    words = frozenset(n for code in codes.values() for n in cuda_form._words(code))
    for path, code in codes.items():
        path.write_text(cuda_form._form(code, macros, words).replace("$", "renamed_"))
    for folder in FOLDERS:
        for path in (package / folder).rglob("*.py"):
            path.write_text(python(path.read_text()))


class _Renamer(python_form._Writer):
    """Renames what it would number."""

    def of(self, node, known):
        name = {ast.Name: "id", ast.arg: "arg"}.get(type(node))
        if name and known.get(getattr(node, name)):
            setattr(node, name, f"renamed_{known[getattr(node, name)]}")
            return ""
        return super().of(node, known)


def python(text: str) -> str:
    """A module with other local names and messages."""
    tree = ast.parse(text)
    definitions = [*imports._definitions(text, "", False).values()]
    if definitions and not definitions[0].module.compiled:
        for statement in tree.body:
            _Renamer(definitions[0].module, ()).of(statement, {})
        for node in python_form.messages(tree.body):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = "other words"
    return ast.unparse(tree)
