"""The reasons of `supports` whose wording changes no launch.

A rung's `supports` returns the reason why it cannot run a call, or None. The wording of a reason
changes no launch if no code reads it: every caller of a function that returns a reason must only
test the result, or return it in turn. A position is a place where a value is tested or returned:

    return other_dtype(x) or f"x: has {x.ndim} dimensions"
    if why := too_long(x):
        return why

If such a function is used in another way, for example as an argument, the wording of all its
reasons counts.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable

from .python_form import own_nodes, walk


def read_by(statements: Iterable[ast.stmt], *, tested: bool) -> frozenset[str]:
    """The names that code uses otherwise than to call a function in a position.

    Args:
        tested: what the function returns is in a position.
    """
    names: set[str] = set()
    for statement in statements:
        positions = _positions(statement, tested)
        called = {n.func for n in positions if isinstance(n, ast.Call)}
        for n in walk(statement):
            if n not in called:
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
                    names.add(n.id)
                elif isinstance(n, ast.Attribute):
                    names.add(n.attr)
    return frozenset(names)


def words(statements: Iterable[ast.stmt]) -> set[ast.AST]:
    """The reasons that functions return, if their callers use the result in a position."""
    return {n for s in statements for n in _positions(s, True) if _is_said(n)}


def _is_said(node: ast.AST) -> bool:
    """A text that is not empty."""
    if isinstance(node, ast.JoinedStr):
        return any(isinstance(v, ast.Constant) and v.value for v in node.values)
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""


def _positions(statement: ast.stmt, tested: bool) -> Collection[ast.AST]:
    """The values in a function's own statements that are in a position."""
    if not isinstance(statement, ast.FunctionDef) or statement.decorator_list:
        return ()
    inside = own_nodes(statement)
    waiting = [n.test for n in inside if isinstance(n, (ast.If, ast.IfExp, ast.While))]
    if tested:
        waiting += [n.value for n in inside if isinstance(n, ast.Return) and n.value]
    values, reads = _variables(statement, inside)
    known: dict[ast.AST, None] = {}
    while waiting:
        for node in waiting:
            known[node] = None
            waiting += [n for n in _within(node) if n not in known]
        tested_only = [v for v in values if known.keys() >= {*reads[v]}]
        waiting = [n for v in tested_only for n in values.pop(v)]
    return known.keys()


def _within(node: ast.AST) -> list[ast.expr]:
    """The values in a position that a value in a position tests or is one of."""
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return [node.operand]
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
        none = all(isinstance(c, ast.Constant) and c.value is None for c in node.comparators)
        return [node.left] if none else []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.args[:1] if node.func.id == "isinstance" else []
    return []


def _variables(
    function: ast.FunctionDef, inside: list[ast.AST]
) -> tuple[dict[str, list[ast.expr]], dict[str, list[ast.AST]]]:
    """The values that variables are set to, and the places where they are read."""
    values: dict[str, list[ast.expr]] = defaultdict(list)
    reads: dict[str, list[ast.AST]] = defaultdict(list)
    for n in inside:
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name) and not n.targets[1:]:
            values[n.targets[0].id].append(n.value)
        elif isinstance(n, ast.NamedExpr):
            values[n.target.id].append(n.value)
    for n in walk(function):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            reads[n.id].append(n)
        elif isinstance(n, (ast.NamedExpr, ast.AugAssign)) and isinstance(n.target, ast.Name):
            reads[n.target.id].append(n)
        elif isinstance(n, (ast.Global, ast.Nonlocal)):
            return {}, {}
    return values, reads
