"""A name that begins with an underscore is used only in its own module; such a module, only in its
own folder."""

import ast
import re

from support.paths import ROOT

PACKAGE = ROOT / "src" / "kernelwright"
#: Modules whose private names are still used elsewhere: rungs' hashes contain these names, so they
#: are renamed with the next change of these rungs. May only become fewer.
HASHED = {
    "ops.attention._split_keys",
    "ops.elementwise._activations",
    "ops.embedding.lookup.cuda",
    "ops.embedding.lookup.cuda_runs",
    "ops.loss.cross_entropy.cuda",
    "ops.norm.layer_norm.cuda",
    "ops.norm.layer_norm.heuristics",
    "ops.random._keep",
    "ops.random._philox",
}
#: A file without any of these needs no parsing.
POSSIBLE = re.compile(
    r"import [^\n(]*\b_[a-zA-Z]|import \([^)]*\b_[a-zA-Z]|from [\w.]*\b_[a-zA-Z]"
    r"|(?<!\bself)(?<!\bcls)\._[a-zA-Z]"
)


def _module(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


MODULES = {_module(p): p for p in sorted(PACKAGE.rglob("*.py"))}


def _private(name):
    return name.startswith("_") and not name.startswith("__")


def _imports(module, tree):
    """(module that is imported from, name, name here) of each import from this package."""
    folder = module if MODULES[module].name == "__init__.py" else module[:-1]
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        named = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            source = folder[: len(folder) - node.level + 1] + named
        elif named[0] == "kernelwright":
            source = named[1:]
        else:
            continue
        for alias in node.names:
            yield source, alias.name, alias.asname or alias.name


def _offenses(module):
    """{(module, private name of it)} that a module uses and may not."""
    text = MODULES[module].read_text(encoding="utf-8")
    if not POSSIBLE.search(text):
        return set()
    tree = ast.parse(text)
    found, imported = set(), {}
    for source, name, here in _imports(module, tree):
        whole = (*source, name)
        if whole in MODULES:
            imported[here] = whole
        elif _private(name) and source in MODULES:
            found.add((source, name))
        for path in (source, whole):
            if (
                path in MODULES
                and path
                and _private(path[-1])
                and module[: len(path) - 1] != path[:-1]
            ):
                found.add((path, ""))
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            source = imported.get(node.value.id)
            if source and _private(node.attr) and (*source, node.attr) not in MODULES:
                found.add((source, node.attr))
    return found


def test_private_names_are_used_in_their_module_only():
    offenses = {(".".join(m), ".".join(s), n) for m in MODULES for s, n in _offenses(m)}
    assert not {o for o in offenses if o[1] not in HASHED}
    assert {source for _, source, _ in offenses} == HASHED
