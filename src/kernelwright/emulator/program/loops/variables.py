"""The variables of a kernel: which statements use them, and which may change them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from ..tokens import Token, angle_opening, opening
from .parser import Declarator, Node, Refused
from .program_index import PURE, called_names, is_binary, is_changed, is_mark
from .restrictions import KernelCode, nested_statements

if TYPE_CHECKING:
    from .regions import ThreadLoop

HOISTED = ("block", "if", "for", "while", "do")


@dataclass(eq=False)
class Variable:
    """A parameter, or a variable that is declared outside of regions and may be used in several.

    Attributes:
        kind: parameter, local, fixed (constexpr, static, in shared memory) or group.
        uniform: all threads have the same value, and one variable serves the block.
        recomputed: its declaration is repeated in each region that needs it.
        address_taken: its address is taken, or other code may change it.
        points: it is a pointer.
        escapes: pointers to it may outlive a region.
        regions: those that use it.
        parts: the declaration and all assignments.
    """

    name: str
    kind: str
    node: Node | None = None
    of: Declarator | None = None
    uniform: bool = True
    recomputed: bool = False
    address_taken: bool = False
    points: bool = False
    escapes: bool = False
    regions: set[ThreadLoop] = field(default_factory=set)
    writes: list[Node] = field(default_factory=list)

    @property
    def array(self) -> bool:
        return self.of is not None and self.of.sizes[0] < self.of.sizes[1]

    @property
    def pointer(self) -> bool:
        return self.points or self.array

    @property
    def stored(self) -> bool:
        """Whether the value of each thread outlives a region, and is stored in an array."""
        if self.uniform or self.recomputed or self.kind in ("fixed", "group"):
            return False
        return self.kind == "parameter" or self.escapes or len(self.regions) > 1


class Variables(KernelCode):
    """The variables of a kernel.

    Attributes:
        parameters: its parameters.
        variables: its parameters, and the variables that are declared outside of regions.
        named: the variable of a token.
        operands: the variables of warp operations.
        condition_of: the variables of divergent conditions.
        names: the variables in each statement outside of regions.
        interchanged: loops without barriers whose heads are executed once for the block.
    """

    parameters: list[Variable]
    interchanged: set[Node]

    def is_block_control(self, node: Node) -> bool:
        """Whether a statement's head is executed once for the block."""
        return node in self.interchanged or self.divided(node)

    def _resolve(self) -> None:
        """Find the variables, and those that each statement outside of regions uses."""
        for p in self.parameters:
            p.__init__(p.name, "parameter", points=p.points)
        self.variables = list(self.parameters)
        self.named: dict[int, Variable] = {}  # by token
        self.names: dict[Node, set[Variable]] = {}
        self.unknown: dict[Node, set[str]] = {}
        self.operands: dict[Node, Variable] = {}  # the operands of a warp-wide operation
        self.condition_of: dict[Node, Variable] = {}  # by a divergent condition
        self._scope(self.body, {p.name: p for p in self.parameters})

    def _scope(self, node: Node, known: dict[str, Variable | None]) -> None:
        """Visit a statement outside of regions."""
        if node.kind == "barrier":
            return
        if node.kind == "warp_sync":
            self._note_warp_sync(node, known)
            return
        if not self.is_block_control(node) and node is not self.body:
            self._leaf(node, known)
            return
        if node.kind not in HOISTED:
            raise Refused(f"a barrier in the statement {node.kind}")
        known = dict(known)
        if node.kind == "for":
            self._leaf(node.parts[0], known)
        for a, b in node.head:
            self._mention(node, a, b, known)
        self._note_condition(node, known)
        for body in nested_statements(node):
            inside = dict(known)
            for p in body:
                self._scope(p, inside)

    def _note_condition(self, node: Node, known: dict[str, Variable | None]) -> None:
        """if (KwC1), while (KwAny(KwL2)): a variable of each thread, from
        `warp_sync.with_predicates`."""
        words = [t.text for a, b in node.head for t in self.all[a:b] if t.kind == "name"]
        if words and node.kind in ("if", "do") and re.fullmatch(r"Kw[CL]\d+", words[-1]):
            v = known.get(words[-1])
            if v is not None and words[:-1] in ([], ["KwAny"]):
                v.escapes, self.condition_of[node] = True, v

    def _note_warp_sync(self, node: Node, known: dict[str, Variable | None]) -> None:
        """The operands of a warp operation are stored, because other lanes read them."""
        v = known.get(self.all[node.first + 2].text)
        if v is not None:
            v.escapes = True
            self.operands[node] = v

    def _leaf(self, node: Node, known: dict[str, Variable | None]) -> None:
        """Visit a statement of a region, or one that is executed once."""
        if node.kind != "declaration":
            self._inner(node, node, known)
            return
        for d in node.declared:
            self._mention(node, *d.type_, known)
            self._mention(node, *d.sizes, known)
            self._mention(node, *d.value, known)
            name = self.all[d.name].text
            kind = "group" if name in self._groups else "fixed" if node.fixed else "local"
            marks = {t.text for t in self.all[slice(*d.marks)]}
            v = Variable(name, kind, node, d, points="*" in marks)
            v.writes.append(node)
            if "&" in marks:
                for i in range(*d.value):
                    if i in self.named:
                        self.named[i].address_taken = self.named[i].escapes = True
            known[name] = v
            self.named[d.name] = v
            self.names.setdefault(node, set()).add(v)
            self.variables.append(v)

    def _inner(self, leaf: Node, node: Node, known: dict[str, Variable | None]) -> None:
        """Visit the parts of a statement, whose own variables hide others."""
        if not node.parts:
            if node.kind == "declaration":
                for d in node.declared:
                    self._mention(leaf, *d.type_, known)
                    self._mention(leaf, *d.sizes, known)
                    self._mention(leaf, *d.value, known)
                    known[self.all[d.name].text] = None
            else:
                self._mention(leaf, node.first, node.last + 1, known)
            return
        inside = dict(known)
        if node.kind == "for":
            self._inner(leaf, node.parts[0], inside)
        for a, b in node.head:
            self._mention(leaf, a, b, inside)
        for p in node.parts[1:] if node.kind == "for" else node.parts:
            self._inner(leaf, p, inside)

    def _mention(self, leaf: Node, a: int, b: int, known: dict[str, Variable | None]) -> None:
        names = self.names.setdefault(leaf, set())
        for i in range(a, b):
            t = self.all[i]
            if t.kind != "name" or self._member(i):
                continue
            v = known.get(t.text)
            if v is not None:
                self.named[i] = v
                names.add(v)
                self._written(leaf, i, v)
            elif t.text not in known:
                self._unknown(leaf, t, known)

    def _unknown(self, leaf: Node, t: Token, known: dict[str, Variable | None]) -> None:
        """Record the use of a macro, or of a name from outside of the kernel."""
        if t.text not in self.program.macros:
            self.unknown.setdefault(leaf, set()).add(t.text)
            return
        expanded = list(self.program.expanded([t]))
        for m in expanded:
            v = known.get(m.text) if m.kind == "name" else None
            if v is not None:
                self.names[leaf].add(v)
        if any(is_changed(expanded, k) for k in range(len(expanded))):
            for v in self.names[leaf]:
                v.writes.append(leaf)
                v.address_taken = v.escapes = True

    def _written(self, leaf: Node, i: int, v: Variable) -> None:
        after = self.all[i + 1].text
        if is_changed(self.all, i):
            v.writes.append(leaf)
        if v.array and (after != "[" or self.all[i - 1].text == "&"):
            v.escapes = True
        if v.pointer and after in ("[", "->"):  # not of the variable itself
            return
        if _taken(self.all, i) or after == "[" or self._may_change(i):
            v.writes.append(leaf)
            v.address_taken = v.escapes = True

    def _may_change(self, i: int) -> bool:
        """Whether a method, a function or a macro may change the variable at `i`."""
        if self._groups and self.all[i].text in self._groups:
            return False
        k = i + 1
        while self.all[k].text == ".":  # a part of it
            k += 2
        before, after = self.all[i - 1].text, self.all[k].text
        if after == "(" and k > i + 1:  # a method
            return True
        if before == ")" and self.all[i - 2].text == "&":  # a cast to a reference
            return True
        alone = before in ("(", ",") and after in (",", ")")
        paren = self._argument_of(i)
        while paren is not None:
            callee = self.all[paren - 1]
            if callee.kind == "name" and callee.text in self.program.macros:
                if any(_mutates(m) for m in self.program.macros[callee.text]):
                    return True
            elif alone and callee.text not in ("(", ","):
                if self._takes_references(paren):
                    return True
                alone = False
            paren = self._argument_of(paren)
        return False

    def _takes_references(self, paren: int) -> bool:
        """Whether a call may change its arguments, which begin behind `paren`."""
        callee = self.all[paren - 1]
        if callee.text == ">":
            start = angle_opening(self.all, paren - 1)
            if start is None or any(t.text == "&" for t in self.all[start:paren]):
                return True
            callee = self.all[start - 1]
        if callee.kind != "name":
            return False
        plain = PURE.fullmatch(callee.text) or callee.text in self.program.by_value
        return not plain and callee.text not in self.types

    def _argument_of(self, i: int) -> int | None:
        """The ( of the argument list that contains a token."""
        k = i - 1
        while k > 0:
            text = self.all[k].text
            if text in (")", "]", "}"):
                before = opening(self.all, k)
                if before is None:
                    return None
                k = before
            elif text == "(":
                return k
            elif text in (";", "{"):
                return None
            k -= 1
        return None


def _taken(all_: list[Token], i: int) -> bool:
    before = all_[i - 1] if i else None
    if before is None or not is_mark(before, "&") or is_binary(all_, i - 1):
        return False
    # && does not take an address
    return not (i > 1 and all_[i - 2].text == "&" and all_[i - 2].end == before.start)


def _mutates(macro: list[Token]) -> bool:
    """Whether a macro's text contains an assignment, an increment, a decrement or an address-of."""
    unknown = any(not PURE.fullmatch(n) for n in called_names(macro))
    parts = ("" if b.start == a.end else " " for a, b in pairwise(macro))
    words = "".join(t.text + gap for t, gap in zip(macro, [*parts, ""], strict=True))
    words = re.sub(r"(?<![<>])[<>]=|[=!]=|&&", " ", words)
    return unknown or any(w in words for w in ("=", "&", "++", "--"))
