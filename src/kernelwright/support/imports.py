"""The definitions that a Python function depends on: its own, and those that it names,
transitively.

Files are parsed, not imported. The unit is a name bound by a top-level statement of a module: a
function, a class, a constant, an import. A definition depends on another if its code reads that
name, directly (`cdiv`) or through a module (`shape.rows_of`), and the name comes from a package
that is followed. Imports may be absolute or relative, of a module or from one, at the top or inside
a function, or re-exported by an `__init__`. A name provided by a module's `__getattr__` depends on
that function. A module used as a value is included as a whole. Statements that bind no name
(`TABLE.update(...)`) are included as soon as anything of their module is. Annotations are not
followed, because they create no values; nor is what a message of an exception names, unless
something that is reached catches exceptions.

For definitions of other packages, only the name is included.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path

from . import python_form, reasons

Names = tuple[str, ...]  # a dotted name: ("shape", "rows_of")
Target = tuple[str, Names]  # a module and a dotted name in it; no name: the module itself
Place = tuple[str, str]  # a module and a name that it binds; "" for statements that bind nothing

#: Functions that find code by a name computed at run time.
DYNAMIC = {"__import__", "eval", "exec", "globals"}


#: Where something else than `@triton.jit` may compile functions.
_COMPILED = re.compile(r"^\s*(import|from)\s+numba\b|\bjit\(", re.M)


class CannotFollow(ValueError):
    """Code refers to other code by a name that does not appear in its text."""


class Packages:
    """Packages whose modules are followed. Their files are read when first needed.

    Args:
        folders: the folder of each, by its import name. `texts` omit that name, so the same files
            under another name have the same texts.
        closed: modules whose definitions are not followed; those of their submodules are.
        messages: what the messages of exceptions name is followed in any case.
    """

    def __init__(
        self, folders: Mapping[str, Path], closed: Iterable[str] = (), *, messages: bool = False
    ):
        self._folders = dict(folders)
        self._closed = frozenset(closed)
        self._messages = messages
        self._name = re.compile(rf"\b({'|'.join(map(re.escape, folders))})\b")
        self._files: dict[str, Path | None] = {}
        self._steps: dict[Target, tuple[Place | None, list[Target]]] = {}
        self._uses: dict[tuple[Place, bool], list[Target]] = {}
        self._read: dict[str, Mapping[str, _Definition]] = {}

    def reached(self, roots: Iterable[Target], tested: Iterable[Target] = ()) -> dict[Place, str]:
        """The definitions that `roots` depend on, and their `python_form`.

        Args:
            tested: further roots, functions that return None or a reason, which nothing reads.

        Raises:
            CannotFollow: a definition cannot be found; the message gives the file and the name.
        """
        tested = list(tested)
        definitions, others = self._reached(roots), self._reached(tested)
        if not self._messages and any(d.catches for d in (*definitions.values(), *others.values())):
            return self._with_messages.reached(roots, tested)
        unread = {name for _, name in others} - {name for _, name in definitions}
        read: set[str] | None = None
        while read is None or unread & read:
            unread -= read or set()
            each = (d.without_reasons if n in unread else d for (_, n), d in others.items())
            read = set[str]().union(*(d.read for d in each))
        every = {**(self._reached(tested, unread) if unread else others), **definitions}
        return {place: definition.code for place, definition in every.items()}

    def _reached(
        self, roots: Iterable[Target], unread: Collection[str] = ()
    ) -> dict[Place, _Definition]:
        """The definitions that roots depend on.

        Args:
            unread: names of functions whose reasons nothing reads.
        """
        definitions: dict[Place, _Definition] = {}
        left, seen = list(roots), set[Target]()
        while left:
            target = left.pop()
            if target in seen or self.file(target[0]) is None:
                continue
            seen.add(target)
            if target not in self._steps:
                self._steps[target] = self._step(*target)
            place, further = self._steps[target]
            left += further
            if place is not None and place not in definitions:
                definition = self._module(place[0])[place[1]]
                if place[1] in unread:
                    definition = definition.without_reasons
                definitions[place] = definition
                key = place, definition.tested
                if key not in self._uses:
                    self._uses[key] = [*self._named(place[0], definition)]
                left += self._uses[key]
        return definitions

    @cached_property
    def _with_messages(self) -> Packages:
        return Packages(self._folders, self._closed, messages=True)

    def texts(self, roots: Iterable[Target], tested: Iterable[Target] = ()) -> list[str]:
        """Module, name and code of each definition that is `reached`, sorted by name.

        Raises:
            CannotFollow: see `reached`.
        """
        definitions = sorted(self.reached(roots, tested).items())
        return [_without(self._name, t) for place, code in definitions for t in (*place, code)]

    def file(self, module: str) -> Path | None:
        """The file of a module of these packages; None for any other module."""
        if module not in self._files:
            package, *rest = module.split(".")
            path = self._folders[package].joinpath(*rest) if package in self._folders else None
            choices = (path / "__init__.py", path.with_suffix(".py")) if path else ()
            self._files[module] = next((p for p in choices if p.is_file()), None)
        return self._files[module]

    def _step(self, module: str, names: Names) -> tuple[Place | None, list[Target]]:
        """The definition at the beginning of a dotted name, if there is one, and what the rest of
        the name refers to."""
        known = {} if module in self._closed else self._module(module)
        if not names:
            return None, [(module, (name,)) for name in known]
        name, *rest = names
        inner = (f"{module}.{name}", tuple(rest))
        if name in known:
            passed_on = known[name].imports.get(name, ())
            if (module, (name,)) in passed_on:  # `from . import shape` in an __init__
                return (module, name), [inner]
            return (module, name), [(other, (*its, *rest)) for other, its in passed_on]
        if self.file(inner[0]):
            return None, [inner]
        if "__getattr__" in known:
            return (module, "__getattr__"), []
        if module in self._closed or name.startswith("__"):
            return None, []
        raise CannotFollow(f"{self.file(module)}: does not define {name}")

    def _named(self, module: str, definition: _Definition) -> Iterator[Target]:
        """The targets that the names in a definition refer to, and the statements of its module
        that bind no name."""
        known = self._module(module)
        if "" in known:
            yield module, ("",)
        for first, *rest in definition.names:
            if first in DYNAMIC or "import_module" in (first, *rest):
                what = f"{'.'.join((first, *rest))}: write the name that it looks up in the code"
                raise CannotFollow(f"{self.file(module)}: {what}")
            for other, its in definition.imports.get(first, ()):
                yield other, (*its, *rest)
            if first in known:
                yield module, (first, *rest)
        for other, _ in definition.imports.get("*", ()):
            if self.file(other):
                raise CannotFollow(f"{self.file(module)}: from {other} import *: import by name")

    def _module(self, module: str) -> Mapping[str, _Definition]:
        if module not in self._read:
            path = self.file(module)
            assert path is not None, module
            package = module if path.name == "__init__.py" else module.rpartition(".")[0]
            text = path.read_text(encoding="utf-8")
            self._read[module] = _definitions(text, package, self._messages)
        return self._read[module]


@cache
def _without(name: re.Pattern[str], text: str) -> str:
    return name.sub("_", text)


def code(path: Path) -> str:
    """The form of a module, in which comments, docstrings, messages of exceptions, local names and
    layout do not count."""
    statements = ast.parse(path.read_text(encoding="utf-8")).body
    return python_form.form(statements, python_form.Module(), python_form.messages(statements))


@dataclass(frozen=True, eq=False)
class _Definition:
    """The statements of a module that bind a name."""

    statements: tuple[ast.stmt, ...]
    package: str  # from which relative imports start
    module: python_form.Module
    messages: bool  # whether messages of exceptions count
    tested: bool = False  # nothing reads the reasons that it returns

    @cached_property
    def code(self) -> str:
        return python_form.form(self.statements, self.module, self.unread)

    @cached_property
    def unread(self) -> set[ast.AST]:
        """Expressions whose values nothing reads."""
        nodes = set[ast.AST]() if self.messages else python_form.messages(self.statements)
        return nodes | reasons.words(self.statements) if self.tested else nodes

    @cached_property
    def without_reasons(self) -> _Definition:
        return replace(self, tested=True)

    @cached_property
    def read(self) -> set[str]:
        """Names that it uses otherwise than to test what a function returns."""
        others = {part for names in self.names for part in names}  # than local ones
        sources = ((bound, its) for bound, targets in self.imports.items() for _, its in targets)
        renamed = {its[0] for bound, its in sources if its and its[0] != bound}
        return renamed | (others & reasons.read_by(self.statements, tested=self.tested))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return [node for statement in self.statements for node in python_form.walk(statement)]

    @cached_property
    def catches(self) -> bool:
        return python_form.catches(self.nodes)

    @cached_property
    def names(self) -> frozenset[Names]:
        """Dotted names that the code reads, except local variables of its functions."""
        nothing = frozenset[str]()
        return frozenset(n for s in self.statements for n in _names(s, nothing, self.unread))

    @cached_property
    def imports(self) -> Mapping[str, set[Target]]:
        """The targets that the code imports, by bound name; "*" for `import *`."""
        targets: dict[str, set[Target]] = defaultdict(set)
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for a in node.names:
                    target = a.name if a.asname else a.name.split(".")[0]
                    targets[a.asname or target].add((target, ()))
            elif isinstance(node, ast.ImportFrom):
                written = "." * node.level + (node.module or "")
                module = importlib.util.resolve_name(written, self.package)
                for a in node.names:
                    targets[a.asname or a.name].add((module, (a.name,)))
        return targets


@cache  # packages are read again, but few of their files have changed
def _definitions(text: str, package: str, messages: bool) -> Mapping[str, _Definition]:
    """A module's statements by the name that they bind; under "" those that bind none."""
    by_name: dict[str, list[ast.stmt]] = defaultdict(list)
    for statement in ast.parse(text).body:
        for part in _parts(statement):
            for name in set(_bound(part)) or {""}:
                by_name[name].append(part)
    module = python_form.Module(frozenset(by_name), _COMPILED.search(text) is not None)
    return {
        name: _Definition(tuple(parts), package, module, messages)
        for name, parts in by_name.items()
    }


def _parts(statement: ast.stmt) -> Iterator[ast.stmt]:
    """An import split into one per bound name; other statements unchanged; bare strings
    omitted."""
    if isinstance(statement, ast.Import):
        yield from (ast.Import([a]) for a in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        for a in statement.names:
            yield ast.ImportFrom(statement.module, [a], statement.level)
    elif not python_form.is_text(statement):
        yield statement


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that code binds in its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        names = (a.asname or a.name.split(".")[0] for a in node.names)
        yield from (n for n in names if n != "*")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    else:
        for child in python_form.children(node):
            if not isinstance(node, ast.comprehension) or child is not node.target:
                yield from _bound(child)


def _names(
    node: ast.AST, variables: frozenset[str], unread: Collection[ast.AST]
) -> Iterator[Names]:
    """Dotted names that code reads, except `variables` of the enclosing functions."""
    if node in unread:
        return
    attributes: list[str] = []
    base = node
    while isinstance(base, ast.Attribute):
        attributes.insert(0, base.attr)
        base = base.value
    if isinstance(base, ast.Name):
        if isinstance(base.ctx, ast.Load) and base.id not in variables:
            yield base.id, *attributes
        return
    if isinstance(node, ast.Global):
        yield from ((name,) for name in node.names)
    inside: list[ast.AST] = []
    own = variables
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        inside = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
        own = variables | _variables(node)
    annotations = getattr(node, "annotation", None), getattr(node, "returns", None)
    for child in python_form.children(node):
        if child not in annotations:
            yield from _names(child, own if child in inside else variables, unread)


def _variables(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """A function's local names, except those that it imports."""
    own = {a.arg for a in python_form.children(function.args) if isinstance(a, ast.arg)}
    for node in python_form.own_nodes(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            own.add(node.name)
    for node in python_form.walk(function):
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            own -= set(node.names)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            own -= set(_bound(node))
    return own
