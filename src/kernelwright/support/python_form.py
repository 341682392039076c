"""Python definitions in a form that is equal for texts that do the same.

It leaves out layout, comments, docstrings, the arguments of raised exceptions, the messages of
asserts, and annotations in functions; it numbers local names. Two functions with equal forms differ
by a renaming in which no two names that are visible at one place become equal, and every name that
other code may know stays: attributes, keywords, parameters that a caller can name, functions.

Triton compiles the text of a kernel by rules of its own: a comprehension is no scope, a name
without a value is looked up in the module, the values that both branches of an `if` set are ordered
by their names, and a debug build contains the messages of asserts. So of a kernel's names those are
numbered which are neither parameters nor names of the module nor set in both branches; asserts and
annotations stay. All names stay in functions that may look them up by their text or have other
decorators than `PLAIN`, and everything stays in modules that use Numba.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


Known = Mapping[str, str | None]  # the numbers of local names; None for those that stay

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_FUNCTIONS = (*_DEFINITIONS, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, *_COMPREHENSIONS)

#: Statements whose names stay, in a whole function.
_RARE = (ast.ClassDef, ast.Global, ast.Match, ast.Nonlocal)
#: Decorators that read neither the text of a function nor its annotations.
PLAIN = _set("cache cached_property classmethod property staticmethod torch.no_grad()")
_KERNEL = "triton.jit"
#: Functions that a kernel may call without importing them, in any version of Triton.
_OF_TRITON = _set(
    "abs all any bool dict divmod enumerate float getattr hasattr int isinstance issubclass len "
    "list map max min pow print range repr reversed round set slice sorted str sum tuple type zip"
)
_CATCH = _set("exc_info format_exc suppress")
_BY_TEXT = _set("_getframe currentframe dir eval exec locals vars")


@dataclass(frozen=True)
class Module:
    """What the form of a definition depends on in its module.

    Attributes:
        names: those that its top-level statements bind.
        compiled: its functions may be compiled by something else than `@triton.jit`.
    """

    names: frozenset[str] = frozenset()
    compiled: bool = False


def form(statements: Iterable[ast.stmt], module: Module, unread: Collection[ast.AST] = ()) -> str:
    """The form of the statements that bind a name.

    Args:
        unread: expressions whose values nothing reads.
    """
    if module.compiled:
        return "\n".join(map(text, statements))
    writer = _Writer(module, unread)
    return "\n".join(writer.of(statement, {}) for statement in statements)


def text(node: Any) -> str:
    """A syntax tree without bare strings, in a form that is the same in every Python version. The
    text of `ast.unparse` and the empty fields of `ast.dump` differ between versions (3.12 adds
    `type_params`)."""
    if isinstance(node, ast.AST):
        filled = [(k, v) for k, v in ast.iter_fields(node) if v is not None and v != []]
        return f"{type(node).__name__}({', '.join(f'{k}={text(v)}' for k, v in filled)})"
    if isinstance(node, list):
        return f"[{', '.join(text(n) for n in node if not is_text(n))}]"
    return repr(node)


def is_text(node: Any) -> bool:
    """A docstring, or a bare string after a constant."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, without operators and contexts, in half the time."""
    nodes: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            nodes += [v for v in value if isinstance(v, ast.AST)]
        elif isinstance(value, ast.AST) and value._fields:
            nodes.append(value)
    return nodes


@cache
def walk(node: ast.AST) -> list[ast.AST]:
    """A node and all nodes in it; not to be changed."""
    nodes = [node]
    for each in nodes:
        nodes += children(each)
    return nodes


def messages(statements: Iterable[ast.stmt]) -> set[ast.AST]:
    """The arguments of raised exceptions and the messages of asserts, except those of kernels."""
    nodes: set[ast.AST] = set()
    for statement in statements:
        if [ast.unparse(d) for d in getattr(statement, "decorator_list", ())] == [_KERNEL]:
            continue
        for n in walk(statement):
            if isinstance(n, ast.Raise) and isinstance(n.exc, ast.Call):
                nodes.update([*n.exc.args, *n.exc.keywords])
            elif isinstance(n, ast.Assert) and n.msg:
                nodes.add(n.msg)
    return nodes


def catches(nodes: Iterable[ast.AST]) -> bool:
    """Whether code may read the message of an exception, or continue after one."""
    for n in nodes:
        if isinstance(n, (ast.Name, ast.Attribute)):
            if _read(n) in _CATCH:
                return True
        elif isinstance(n, ast.ExceptHandler):
            return True
        if isinstance(n, _DEFINITIONS) and n.name in ("__exit__", "__aexit__"):
            return True
    return False


def _read(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


class _Writer:
    """Writes syntax trees with the numbers of local names."""

    def __init__(self, module: Module, unread: Collection[ast.AST]):
        self._module = module
        self._unread = unread
        self._numbers = map(str, count())
        self._outermost: ast.AST | None = None  # the scope that is being written
        self._kind = ""  # of that scope

    def of(self, node: Any, known: Known) -> str:
        """The text of a node."""
        if isinstance(node, list):
            return f"[{', '.join(self.of(n, known) for n in node if not is_text(n))}]"
        if not isinstance(node, ast.AST):
            return repr(node)
        if node in self._unread:
            return "unread"
        if isinstance(node, ast.Name):
            return f"Name({known.get(node.id) or repr(node.id)}, {type(node.ctx).__name__})"
        if isinstance(node, _SCOPES):
            return self._scope(node, known)
        if isinstance(node, ast.arg):
            note = "" if self._kind == "plain" else self.of(node.annotation, known)
            return f"arg({known.get(node.arg) or repr(node.arg)}, {note})"
        if isinstance(node, ast.AnnAssign) and self._kind == "plain":
            if not node.value:
                return f"Declared({self.of(node.target, known)})"
            node = ast.Assign([node.target], node.value)
        return self._fields(node, known)

    def _fields(self, node: ast.AST, known: Known, **inside: Known | None) -> str:
        """A node with its fields.

        Args:
            inside: the names known in a field, if they differ; None leaves the field out.
        """
        parts: list[str] = []
        for name, value in ast.iter_fields(node):
            names = inside.get(name, known)
            if names is not None and value is not None and value != []:
                parts.append(f"{name}={self.of(value, names)}")
        return f"{type(node).__name__}({', '.join(parts)})"

    def _scope(self, node: Any, known: Known) -> str:
        outermost = self._outermost is None
        if outermost:
            self._outermost, self._kind = node, _kind(node)
        inner = {**known, **self._own(node)}
        if isinstance(node, _COMPREHENSIONS):
            first, *rest = node.generators  # the first iterator is evaluated outside
            parts = [self.of(first.iter, known), self._fields(first, inner, iter=None)]
            parts += [self.of(rest, inner), self._fields(node, inner, generators=None)]
        else:
            parts = [self._fields(node.args, inner, defaults=known, kw_defaults=known)]
            left_out = {"returns": None} if self._kind == "plain" else {}
            parts.append(self._fields(node, known, args=None, body=inner, **left_out))
        if outermost:
            self._outermost, self._kind = None, ""
        return " ".join(parts)

    def _own(self, node: Any) -> Known:
        """The names that belong to a scope, and their numbers."""
        names, kept = list[str](), set[str]()
        if self._kind == "kernel" and node is self._outermost:
            names = _stored(walk(node))
            kept = {a.arg for a in walk(node.args) if isinstance(a, ast.arg)}
            kept |= self._module.names | _OF_TRITON | _set_in_both_branches(node)
        elif self._kind == "plain" and isinstance(node, _COMPREHENSIONS):
            names = _stored(n for g in node.generators for n in walk(g.target))
        elif self._kind == "plain":
            called = isinstance(node, _DEFINITIONS) and self._only_called(node)
            names, kept = _of_function(node, called)
        return {n: None if n in kept else next(self._numbers) for n in dict.fromkeys(names)}

    def _only_called(self, function: Any) -> bool:
        """Whether the outermost function uses one in it only to call it, without keywords."""
        if function is self._outermost:
            return False
        inside = walk(self._outermost)
        called = {n.func for n in inside if isinstance(n, ast.Call) and not n.keywords}
        uses = (n for n in inside if isinstance(n, ast.Name) and n.id == function.name)
        return called.issuperset(uses)


def _kind(node: Any) -> str:
    """How the names of an outermost scope are numbered; "" if they are not."""
    inside = walk(node)
    if any(
        isinstance(n, _RARE)
        or (isinstance(n, (ast.Name, ast.Attribute)) and _read(n) in _BY_TEXT)
        or (isinstance(n, _DEFINITIONS) and getattr(n, "type_params", None))
        for n in inside
    ):
        return ""
    functions = [n for n in inside if isinstance(n, _FUNCTIONS)]
    decorators = [ast.unparse(d) for f in functions for d in getattr(f, "decorator_list", ())]
    if decorators == [_KERNEL] and len(functions) == 1:
        return "kernel"
    return "plain" if PLAIN.issuperset(decorators) else ""


def _of_function(node: Any, called: bool) -> tuple[list[str], set[str]]:
    """A function's own names in the order of the text, and those of them that stay.

    Args:
        called: the function is only called by others of the same function, without keywords.
    """
    args, inside = node.args, own_nodes(node)
    variable = [a.arg for a in (args.vararg, args.kwarg) if a]
    named = [a.arg for a in (*args.args, *args.kwonlyargs)]
    own = [a.arg for a in args.posonlyargs] + named + variable + _stored(inside)
    kept = set() if called else {*named}
    for n in inside:
        if isinstance(n, ast.alias):
            kept.add((n.asname or n.name).split(".")[0])
        elif isinstance(n, (*_DEFINITIONS, ast.ExceptHandler)):
            kept.add(n.name or "")
    return [*own, *kept], kept


@cache
def own_nodes(function: Any) -> list[ast.AST]:
    """The nodes of a function's own scope, without those that its comprehensions bind; not to be
    changed."""
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    nodes: list[ast.AST] = [*body]
    for node in nodes:
        if isinstance(node, ast.comprehension):
            nodes += [node.iter, *node.ifs]
        elif not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            nodes += children(node)
    return nodes


def _stored(nodes: Iterable[ast.AST]) -> list[str]:
    return [n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


def _set_in_both_branches(node: ast.AST) -> set[str]:
    names: set[str] = set()
    for n in walk(node):
        if isinstance(n, ast.If):
            one, other = (_stored(m for s in part for m in walk(s)) for part in (n.body, n.orelse))
            names |= {*one} & {*other}
    return names
