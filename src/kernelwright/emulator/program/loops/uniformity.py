"""Finds values that are the same for all threads of a block, and values that can be recomputed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from functools import cached_property
from re import Pattern

from ..cuda_builtins import names_of
from ..tokens import split
from .parser import Declarator, Node, Refused
from .program_index import UNIFORM, called_names, is_binary, is_changed, is_mark
from .restrictions import INDICES, nested_statements
from .variables import HOISTED, Variable, Variables

#: Names outside of a kernel whose values all threads of a block share.
_SHARED = names_of("launch") | {"true", "false", "nullptr", "KwCount"}


class DivergentSyncPoints(Exception):
    """Statements that contain sync points under divergent conditions."""

    def __init__(self, nodes: list[Node]) -> None:
        super().__init__()
        self.nodes = nodes


class Uniformity(Variables):
    """A kernel's variables, with those that are uniform or can be recomputed marked."""

    def _classify(self) -> set[Node]:
        """Find uniform variables. Return loops that cannot be hoisted because a variable in their
        head is not uniform."""
        for v in self.variables:
            if v.kind == "local" and (v.array or self._reference(v) or self._constructed(v)):
                v.uniform = False
            if v.address_taken and v.kind != "fixed":
                v.uniform = False
        changed = True
        while changed:
            changed = False
            for v in self.variables:
                counts = v.uniform and v.kind in ("local", "parameter")
                if counts and not all(
                    self.is_block_uniform(w) and self._as_declared(v, w) for w in v.writes
                ):
                    v.uniform, changed = False, True
        wrong = {
            n for n in self.body.walk() if n in self.interchanged and not self._head_is_uniform(n)
        }
        if wrong:
            return wrong
        left: list[Node] = []
        for node in self.body.walk():
            hoisted = node is not self.body and self.divided(node) and node.kind in HOISTED
            if hoisted and not self._head_is_uniform(node):
                if self.holds_barrier(node):
                    raise Refused(f"a barrier under a condition of the threads ({node.kind})")
                if node not in self.condition_of:
                    left.append(node)
        if left:
            raise DivergentSyncPoints(left)
        self._find_recomputed()
        return self._slow()

    def conditions(self, node: Node) -> list[Node]:
        """The divergent conditions around a statement, the outermost first."""
        return [
            n
            for n in self._enclosing[node]
            if n.kind == "if" and n in self.condition_of and not self.condition_of[n].uniform
        ]

    def _as_declared(self, v: Variable, write: Node) -> bool:
        """Whether an assignment to a variable is under the divergent conditions of its declaration,
        and no others."""
        own = self.conditions(v.node) if v.node is not None else []
        return self.conditions(write) == own

    @cached_property
    def _enclosing(self) -> dict[Node, list[Node]]:
        enclosing: dict[Node, list[Node]] = {}

        def walk(node: Node, outer: list[Node]) -> None:
            enclosing[node] = outer
            for p in node.parts:
                walk(p, [*outer, node])

        walk(self.body, [])
        return enclosing

    def _stays_inside(self, node: Node) -> bool:
        """Whether a jump does not leave the divergent conditions around it."""
        outer = self._enclosing[node]
        conditions = self.conditions(node)
        if not conditions:
            return True
        if any(self.all[i].text == "return" for i in range(node.first, node.last)):
            return False
        inner = outer[outer.index(conditions[-1]) + 1 :]
        return any(n.kind in ("for", "while", "do") for n in inner)

    def _slow(self) -> set[Node]:
        """Hoisted loops that use arrays of single threads, which the compiler does not
        vectorize."""
        return {
            n
            for n in self.interchanged
            for m in n.walk()
            if any(v.array and v.kind == "local" for v in self.names.get(m, ()))
        }

    def _constructed(self, v: Variable) -> bool:
        """Whether a variable's constructor is one of the program."""
        if v.of is None or v.points:
            return False
        return any(t.text in self.program.classes for t in self.all[slice(*v.of.type_)])

    def _reference(self, v: Variable) -> bool:
        return v.of is not None and any(is_mark(t, "&") for t in self.all[slice(*v.of.marks)])

    def is_block_uniform(self, node: Node) -> bool:
        """Whether a statement, or the step of a loop, only computes uniform values: it is executed
        once for the block."""
        if self.is_block_control(node):  # the head of a loop
            step = node.head[1:] if node.kind == "for" else []
            return all(self._assigns(a, b) for a, b in step)
        if node not in self.names:
            return node.kind in ("type", "empty")
        if not self._at_block_level(node):
            return False
        if node.kind == "declaration":
            if node.fixed or self._is_group(node):
                return True
            return all(
                self.named[d.name].uniform and self._value_is_uniform(d) for d in node.declared
            )
        if node.kind == "expression":
            return self._assigns(node.first, node.last)
        if node.kind == "if":
            only = len(node.parts) == 1 and node.parts[0].jumps
            return only and self._is_uniform(*node.head[0]) and self._stays_inside(node)
        if node.kind == "jump":
            return self._stays_inside(node)
        return node.kind in ("type", "empty")

    def _at_block_level(self, node: Node) -> bool:
        if not hasattr(self, "_level") or self._level[0] != frozenset(self.interchanged):
            self._level = (frozenset(self.interchanged), set(self._block_level(self.body)))
        return node in self._level[1]

    def _block_level(self, node: Node) -> Iterator[Node]:
        if node.kind == "for":
            yield node.parts[0]
        for body in nested_statements(node):
            for p in body:
                yield p
                if self.is_block_control(p):
                    yield from self._block_level(p)

    def _value_is_uniform(self, d: Declarator) -> bool:
        a, b = d.value
        return a == b or self._is_uniform(a + 1 if self.all[a].text == "=" else a, b)

    def _head_is_uniform(self, node: Node) -> bool:
        if node.kind == "for":
            start, (condition, step) = node.parts[0], node.head
            return (
                (start.kind == "empty" or self.is_block_uniform(start))
                and self._is_uniform(*condition)
                and (step[0] == step[1] or self._assigns(*step))
            )
        return all(self._is_uniform(a, b) for a, b in node.head)

    def _assigns(self, a: int, b: int) -> bool:
        """Whether all_[a:b] are assignments of uniform values to uniform variables."""
        return all(self._assignment(x, y) for x, y in split(self.all, a, b, ","))

    def _assignment(self, a: int, b: int) -> bool:
        words = [t.text for t in self.all[a:b]]
        if len(words) == 3 and (words[1:] in (["+", "+"], ["-", "-"])):
            return self._uniform_name(a)
        if len(words) == 3 and words[:2] in (["+", "+"], ["-", "-"]):
            return self._uniform_name(b - 1)
        if not self._uniform_name(a) or not is_changed(self.all, a):
            return False
        equals = next((i for i in range(a + 1, b) if self.all[i].text == "="), None)
        return equals is not None and equals <= a + 3 and self._is_uniform(equals + 1, b)

    def _uniform_name(self, i: int) -> bool:
        v = self.named.get(i)
        return v is not None and v.uniform and v.kind in ("local", "parameter")

    def _is_uniform(self, a: int, b: int) -> bool:
        """Whether an expression has the same value for all threads and no side effects. All threads
        read the same value from the same address, because otherwise there would be a race."""
        if self.all[a].text == "KwAny":
            return True
        return self._expression(a, b, UNIFORM, frozenset(), lambda v: v.uniform)

    def _expression(
        self,
        a: int,
        b: int,
        functions: Pattern[str],
        names: Set[str],
        allowed: Callable[[Variable], bool],
    ) -> bool:
        part = self.all[a:b]
        expanded = list(self.program.expanded(part))
        if any(t.kind == "string" or (t.text in INDICES and not names) for t in expanded):
            return False
        macros = self.program.macros
        for n in called_names(expanded):
            known = functions.fullmatch(n) or n in self.program.formulas
            if not (known or n in self.types or n in macros):
                return False
        if any(is_changed(self.all, i) for i in range(a, b)):
            return False
        for i in range(a, b):
            v = self.named.get(i)
            if v is not None and not (v.kind != "group" and allowed(v)):
                return False
        return self._macros_allow(a, b, allowed)

    def _macros_allow(self, a: int, b: int, allowed: Callable[[Variable], bool]) -> bool:
        """Whether variables that macros name are allowed. They are compared by name, in any
        scope."""
        for t in self.all[a:b]:
            if t.kind == "name" and t.text in self.program.macros:
                meant = {m.text for m in self.program.expanded([t]) if m.kind == "name"}
                if any(v.name in meant and not allowed(v) for v in self.variables):
                    return False
        return True

    # ---- values that are recomputed

    def _find_recomputed(self) -> None:
        for v in self.variables:
            if (
                v.uniform
                or v.kind != "local"
                or v.array
                or v.address_taken
                or v in self.condition_of.values()
            ):
                continue
            if self._reference(v) or self._constructed(v):
                continue
            assert v.node is not None and v.of is not None
            a, b = v.of.value
            single = v.writes == [v.node] and a < b
            v.recomputed = (
                single and self._at_block_level(v.node) and self._recomputable(v, a + 1, b)
            )
        changed = True  # declarations of several names: all or none
        while changed:
            changed = False
            for v in self.variables:
                if v.recomputed and v.node is not None:
                    others = [self.named[d.name] for d in v.node.declared]
                    if not all(o.recomputed for o in others):
                        v.recomputed, changed = False, True
            for v in self.variables:
                if (
                    v.recomputed
                    and v.of is not None
                    and not self._recomputable(v, v.of.value[0] + 1, v.of.value[1])
                ):
                    v.recomputed, changed = False, True

    def _recomputable(self, of: Variable, a: int, b: int) -> bool:
        """Whether an expression has the same value wherever its variable is in scope."""
        for i in range(a, b):
            text = self.all[i].text
            if text in ("[", "->", "?") or (text in ("*", "&") and not is_binary(self.all, i)):
                return False
            if self._from_outside(i):
                return False
        return self._expression(a, b, UNIFORM, INDICES, lambda v: self._lasting(of, v))

    def known(self, a: int, b: int) -> bool:
        """Whether an expression has one value for the block, and its names are visible outside of
        its region."""
        return not any(self._from_outside(i) for i in range(a, b)) and self._is_uniform(a, b)

    def _from_outside(self, i: int) -> bool:
        t = self.all[i]
        if t.kind != "name" or i in self.named or self._member(i):
            return False
        outside = (
            self.program.macros.keys() | self.program.constants | self.types | _SHARED | INDICES
        )
        return t.text not in outside and not UNIFORM.fullmatch(t.text)

    def _lasting(self, of: Variable, v: Variable) -> bool:
        if v.recomputed:
            return True
        if v.kind == "fixed" and not v.array:
            return self._constant(v)
        if not v.uniform:
            return False
        assert of.node is not None
        # a loop's variable changes only after the scope of what the loop declares has ended
        return all(
            w is v.node
            or (
                self.is_block_control(w)
                and w.first <= of.node.first <= of.node.last <= w.last
                and w.kind == "for"
            )
            for w in v.writes
        )

    def _constant(self, v: Variable) -> bool:
        """Whether a fixed variable is not in shared memory."""
        return v.node is not None and all(t.text != "__shared__" for t in self.tokens(v.node))
