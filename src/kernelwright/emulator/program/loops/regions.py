"""Which statements of a kernel are executed by each thread in a loop, and which once for the block.

A kernel's statements are divided at its barriers. What stands between two of them is a region: its
statements are executed for one thread after the other. Loops and conditions around barriers, which
must be the same for all threads, are executed once, and so are statements that only compute such
values. The order is one that a GPU may choose: between barriers, threads are not ordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ..tokens import Token, angle_opening, opening, split
from .facts import PURE, UNIFORM, Facts, atomic, called, is_mark, together
from .tree import Declarator, Node, Refused

INDEX = "threadIdx"
_TOLD = frozenset({"blockIdx", "blockDim", "gridDim", "warpSize", "true", "false", "nullptr"})
_HOISTED = ("block", "if", "for", "while", "do")


@dataclass(eq=False)
class Variable:
    """A parameter or a variable that is declared where the block stands, not in one region.

    Attributes:
        kind: parameter, local, fixed (constexpr, static, in shared memory) or group.
        uniform: all threads have the same value, and one variable serves the block.
        again: it is computed anew, by its declaration, in each region that needs it.
        taken: its address is.
        regions: in which it stands.
        parts: the declaration and all assignments.
    """

    name: str
    kind: str
    node: Node | None = None
    of: Declarator | None = None
    uniform: bool = True
    again: bool = False
    taken: bool = False
    points: bool = False
    regions: set[Region] = field(default_factory=set)
    writes: list[Node] = field(default_factory=list)

    @property
    def array(self) -> bool:
        return self.of is not None and self.of.sizes[0] < self.of.sizes[1]

    @property
    def pointer(self) -> bool:
        return self.points or self.array

    @property
    def stored(self) -> bool:
        """Whether each thread's value outlives a region."""
        if self.uniform or self.again or self.kind in ("fixed", "group"):
            return False
        return self.kind == "parameter" or len(self.regions) > 1


@dataclass(eq=False)
class Region:
    """Statements that each thread executes. `ends`: a thread may return in it."""

    statements: list[Node] = field(default_factory=list)
    names: set[Variable] = field(default_factory=set)
    ends: bool = False
    last: bool = False  # nothing follows


@dataclass(eq=False)
class Once:
    """A statement that is executed once for the block."""

    node: Node


@dataclass(eq=False)
class Around:
    """A loop, a condition or a block: its head is executed once for the block."""

    node: Node
    parts: list[list[Region | Once | Around]]


class Kernel:
    """The analysis of one kernel.

    Raises:
        Refused: it cannot be shown that loops are equivalent.
    """

    def __init__(
        self,
        all_: list[Token],
        body: Node,
        parameters: dict[str, bool],
        types: set[str],
        facts: Facts,
    ) -> None:
        self.all, self.body, self.facts = all_, body, facts
        self.types = types
        self.parameters = [Variable(n, "parameter", points=p) for n, p in parameters.items()]
        self._groups: set[str] = set()
        self._check()
        self.apart = set(self._candidates(body))  # loops without barriers that are hoisted too
        while True:
            self._resolve()
            wrong = self._classify()
            if not wrong:
                break
            self.apart -= wrong
        self.plan = self._sequence(self.body.parts)
        self._mark_last(self.plan)
        self._jumps(self.plan, inside=False)
        self._store()

    # ---- what is refused at once

    def tokens(self, node: Node) -> list[Token]:
        return self.all[node.first : node.last + 1]

    def _check(self) -> None:
        for node in self.body.walk():
            if node.kind in ("expression", "declaration"):
                self._group_statement(node)
        left = [t for n in self._leaves(self.body) for t in self._own(n)]
        meaning = list(self.facts.meaning(left))
        if (name := together(meaning)) is not None:
            raise Refused(f"it uses {name}")
        if any(t.text in self.facts.groups or t.text == "goto" for t in left):
            raise Refused("it uses another cooperative group, or goto")
        if "?" in called(meaning):
            raise Refused("it calls what an expression yields")
        for i, t in enumerate(left):
            if is_mark(t, "[") and (i == 0 or left[i - 1].text in ("=", "(", ",", "return", "{")):
                raise Refused("it has a lambda")
        for name, bodies in self.facts.reached(left).items():
            if (found := together(bodies)) is not None:
                raise Refused(f"{name} uses {found}")
            if atomic(bodies) and any(t.text in ("while", "do") for t in bodies):
                raise Refused(f"{name} repeats an atomic operation")
        for node in self.body.walk():
            waits = node.kind in ("while", "do") or (node.kind == "for" and self._open(node))
            if waits and not self.holds_barrier(node):
                if atomic(self.facts.meaning(self.tokens(node))):
                    raise Refused("a loop repeats an atomic operation")

    def _open(self, node: Node) -> bool:
        """Whether a `for` may end by what its head reads from memory, or has no condition."""
        condition = self.all[slice(*node.head[0])]
        return not condition or atomic(self.facts.meaning(condition))

    def _leaves(self, node: Node) -> Iterator[Node]:
        if node.parts:
            for p in node.parts:
                yield from self._leaves(p)
        yield node

    def _own(self, node: Node) -> list[Token]:
        """The tokens of a node that none of its parts holds; those of barriers are known."""
        if node.kind == "barrier" or node.fixed or self._is_group(node):
            return []
        if not node.parts:
            return self.tokens(node)
        return [t for a, b in node.head for t in self.all[a:b]]

    def _is_group(self, node: Node) -> bool:
        return any(self.all[d.name].text in self._groups for d in node.declared)

    def _group_statement(self, node: Node) -> None:
        """Note a declaration of a block's group; make its sync and __syncthreads barriers."""
        words = [t.text for t in self.tokens(node)]
        if node.kind == "declaration":
            if words[-4:] == ["this_thread_block", "(", ")", ";"] and len(node.declared) == 1:
                self._groups.add(self.all[node.declared[0].name].text)
            return
        if words[0] in self.facts.groups:
            words = words[2:]
        one = next((w for w in words if w in self._groups), "")
        barriers = (
            "__syncthreads();",
            "this_thread_block().sync();",
            f"{one}.sync();",
            f"sync({one});",
            "sync(this_thread_block());",
        )
        if "".join(words) in barriers:
            node.kind = "barrier"

    def holds_barrier(self, node: Node) -> bool:
        return any(n.kind == "barrier" for n in node.walk())

    def _candidates(self, node: Node) -> Iterator[Node]:
        """Innermost loops without barriers of a form that is worth a loop over threads in each of
        their steps: a CPU executes these as vectors."""
        for p in node.parts:
            if self.holds_barrier(p):
                yield from self._candidates(p)
            elif p.kind == "for" and self._simple(p.parts[1]):
                yield p

    def _simple(self, body: Node) -> bool:
        parts = body.parts if body.kind == "block" else [body]
        if any(p.kind not in ("expression", "declaration") for p in parts):
            return False
        code = list(self.facts.meaning(self.tokens(body)))
        known = all(PURE.fullmatch(n) or n in self.types for n in called(code))
        return (
            known
            and not atomic(code)
            and all(not d.marks[0] < d.marks[1] for p in parts for d in p.declared)
        )

    def around(self, node: Node) -> bool:
        """Whether a statement's head is executed once for the block."""
        return node in self.apart or self.holds_barrier(node)

    # ---- what the names mean

    def _resolve(self) -> None:
        """The variables, and which of them each statement of the block names."""
        for p in self.parameters:
            p.__init__(p.name, "parameter", points=p.points)
        self.variables = list(self.parameters)
        self.named: dict[int, Variable] = {}  # by token
        self.names: dict[Node, set[Variable]] = {}
        self.unknown: dict[Node, set[str]] = {}
        self._scope(self.body, {p.name: p for p in self.parameters})

    def _scope(self, node: Node, known: dict[str, Variable | None]) -> None:
        """Walk a statement where the block stands."""
        if node.kind == "barrier":
            return
        if not self.around(node) and node is not self.body:
            self._leaf(node, known)
            return
        if node.kind not in _HOISTED:
            raise Refused(f"a barrier in the statement {node.kind}")
        known = dict(known)
        if node.kind == "for":
            self._leaf(node.parts[0], known)
        for a, b in node.head:
            self._mention(node, a, b, known)
        for body in bodies(node):
            inside = dict(known)
            for p in body:
                self._scope(p, inside)

    def _leaf(self, node: Node, known: dict[str, Variable | None]) -> None:
        """A statement of a region, or one that is executed once."""
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
                        self.named[i].taken = True
            known[name] = v
            self.named[d.name] = v
            self.names.setdefault(node, set()).add(v)
            self.variables.append(v)

    def _inner(self, leaf: Node, node: Node, known: dict[str, Variable | None]) -> None:
        """Mentions in the parts of a statement, whose own variables hide others."""
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
        """A macro, or a name from outside."""
        if t.text not in self.facts.macros:
            self.unknown.setdefault(leaf, set()).add(t.text)
            return
        meaning = list(self.facts.meaning([t]))
        for m in meaning:
            v = known.get(m.text) if m.kind == "name" else None
            if v is not None:
                self.names[leaf].add(v)
        if any(_changes(meaning, k) for k in range(len(meaning))):
            for v in self.names[leaf]:
                v.writes.append(leaf)
                v.taken = True

    def _member(self, i: int) -> bool:
        if i == 0:
            return False
        before = self.all[i - 1]
        arrow = before.text == "->"
        return before.text in (".", "::") or arrow

    def _written(self, leaf: Node, i: int, v: Variable) -> None:
        after = self.all[i + 1].text
        if _changes(self.all, i):
            v.writes.append(leaf)
        if v.pointer and after in ("[", "->"):  # its own value stays
            return
        if _taken(self.all, i) or after == "[" or self._may_change(i):
            v.writes.append(leaf)
            v.taken = True

    def _may_change(self, i: int) -> bool:
        """Whether a method, a function or a macro may change the variable at `i`."""
        before, after = self.all[i - 1].text, self.all[i + 1].text
        if after == "." and self.all[i + 3].text == "(":
            return self.all[i].text not in self._groups
        if before == ")" and self.all[i - 2].text == "&":  # a cast to a reference
            return True
        if before not in ("(", ",") or after not in (",", ")"):
            return False
        paren = self._argument_of(i)
        if paren is None:
            return False
        callee = self.all[paren - 1]
        if callee.text == ">":
            start = angle_opening(self.all, paren - 1)
            if start is None or any(t.text == "&" for t in self.all[start:paren]):
                return True
            callee = self.all[start - 1]
        if callee.kind != "name":
            return False
        if callee.text in self.facts.macros:
            return any(_mutates(m) for m in self.facts.macros[callee.text])
        plain = PURE.fullmatch(callee.text) or callee.text in self.facts.by_value
        return not plain and callee.text not in self.types

    def _argument_of(self, i: int) -> int | None:
        """The bracket that opens the argument list in which a token stands."""
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
            elif text in (";", "{", "["):
                return None
            k -= 1
        return None

    # ---- which values are the same for all threads

    def _classify(self) -> set[Node]:
        """Find uniform variables; return the loops that cannot be hoisted for want of them."""
        for v in self.variables:
            if v.kind == "local" and (v.array or self._reference(v)):
                v.uniform = False
            if v.taken and v.kind != "fixed":
                v.uniform = False
        changed = True
        while changed:
            changed = False
            for v in self.variables:
                if v.uniform and v.kind in ("local", "parameter"):
                    if not all(self.once(w, v) for w in v.writes):
                        v.uniform, changed = False, True
        wrong = {n for n in self.body.walk() if n in self.apart and not self._head_is_uniform(n)}
        if wrong:
            return wrong
        for node in self.body.walk():
            if node is not self.body and self.holds_barrier(node) and node.kind in _HOISTED:
                if not self._head_is_uniform(node):
                    raise Refused(f"a barrier under a condition of the threads ({node.kind})")
        self._again()
        return self._slow()

    def _slow(self) -> set[Node]:
        """Hoisted loops that use arrays of the threads, which do not become vectors."""
        return {
            n
            for n in self.apart
            for m in n.walk()
            if any(v.array and v.kind == "local" for v in self.names.get(m, ()))
        }

    def _reference(self, v: Variable) -> bool:
        return v.of is not None and any(is_mark(t, "&") for t in self.all[slice(*v.of.marks)])

    def once(self, node: Node, v: Variable | None = None) -> bool:
        """Whether a statement only computes uniform values, and is executed once for the block.

        Args:
            v: the variable that it must be an assignment to, if it is in a loop's head.
        """
        if self.around(node):  # the head of a loop
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
            return only and self._is_uniform(*node.head[0])
        return node.kind in ("type", "jump", "empty")

    def _at_block_level(self, node: Node) -> bool:
        if not hasattr(self, "_level") or self._level[0] != frozenset(self.apart):
            self._level = (frozenset(self.apart), set(self._block_level(self.body)))
        return node in self._level[1]

    def _block_level(self, node: Node) -> Iterator[Node]:
        if node.kind == "for":
            yield node.parts[0]
        for body in bodies(node):
            for p in body:
                yield p
                if self.around(p):
                    yield from self._block_level(p)

    def _value_is_uniform(self, d: Declarator) -> bool:
        a, b = d.value
        return a == b or self._is_uniform(a + 1 if self.all[a].text == "=" else a, b)

    def _head_is_uniform(self, node: Node) -> bool:
        if node.kind == "for":
            start, (condition, step) = node.parts[0], node.head
            return (
                (start.kind == "empty" or self.once(start))
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
        if not self._uniform_name(a) or not _changes(self.all, a):
            return False
        equals = next((i for i in range(a + 1, b) if self.all[i].text == "="), None)
        return equals is not None and equals <= a + 3 and self._is_uniform(equals + 1, b)

    def _uniform_name(self, i: int) -> bool:
        v = self.named.get(i)
        return v is not None and v.uniform and v.kind in ("local", "parameter")

    def _is_uniform(self, a: int, b: int) -> bool:
        """Whether an expression has the same value for all threads, and changes nothing. What it
        reads from memory is the same, because a difference would be a race."""
        return self._expression(a, b, UNIFORM, frozenset(), lambda v: v.uniform)

    def _expression(self, a: int, b: int, functions, names, allowed) -> bool:
        part = self.all[a:b]
        meaning = list(self.facts.meaning(part))
        if any(t.kind == "string" or t.text == INDEX and INDEX not in names for t in meaning):
            return False
        macros = self.facts.macros
        for n in called(meaning):
            if not (functions.fullmatch(n) or n in self.types or n in macros):
                return False
        if any(_changes(self.all, i) for i in range(a, b)):
            return False
        for i in range(a, b):
            v = self.named.get(i)
            if v is not None and not (v.kind != "group" and allowed(v)):
                return False
        return self._macros_allow(a, b, allowed)

    def _macros_allow(self, a: int, b: int, allowed) -> bool:
        """Whether the variables that macros name are allowed: by their names, in any scope."""
        for t in self.all[a:b]:
            if t.kind == "name" and t.text in self.facts.macros:
                meant = {m.text for m in self.facts.meaning([t]) if m.kind == "name"}
                if any(v.name in meant and not allowed(v) for v in self.variables):
                    return False
        return True

    # ---- what is computed anew

    def _again(self) -> None:
        for v in self.variables:
            if v.uniform or v.kind != "local" or v.array or self._reference(v) or v.taken:
                continue
            assert v.node is not None and v.of is not None
            a, b = v.of.value
            single = v.writes == [v.node] and a < b
            v.again = single and self._at_block_level(v.node) and self._recomputable(v, a + 1, b)
        changed = True  # declarations of several names: all or none
        while changed:
            changed = False
            for v in self.variables:
                if v.again and v.node is not None:
                    others = [self.named[d.name] for d in v.node.declared]
                    if not all(o.again for o in others):
                        v.again, changed = False, True
            for v in self.variables:
                if (
                    v.again
                    and v.of is not None
                    and not self._recomputable(v, v.of.value[0] + 1, v.of.value[1])
                ):
                    v.again, changed = False, True

    def _recomputable(self, of: Variable, a: int, b: int) -> bool:
        """Whether an expression has the same value wherever its variable is in scope."""
        for i in range(a, b):
            text = self.all[i].text
            if text in ("[", "->", "?") or (text in ("*", "&") and not _binary(self.all, i)):
                return False
            if self._from_outside(i):
                return False
        return self._expression(a, b, UNIFORM, {INDEX}, lambda v: self._lasting(of, v))

    def _from_outside(self, i: int) -> bool:
        t = self.all[i]
        if t.kind != "name" or i in self.named or self._member(i):
            return False
        outside = self.facts.macros.keys() | self.facts.constants | self.types | _TOLD | {INDEX}
        return t.text not in outside and not UNIFORM.fullmatch(t.text)

    def _lasting(self, of: Variable, v: Variable) -> bool:
        if v.again:
            return True
        if v.kind == "fixed" and not v.array:
            return self._constant(v)
        if not v.uniform:
            return False
        assert of.node is not None
        # a loop's own variable changes only when what the loop declares is gone
        return all(
            w is v.node
            or (
                self.around(w)
                and w.first <= of.node.first <= of.node.last <= w.last
                and w.kind == "for"
            )
            for w in v.writes
        )

    def _constant(self, v: Variable) -> bool:
        """Of a fixed variable, whether it is not in shared memory."""
        return v.node is not None and all(t.text != "__shared__" for t in self.tokens(v.node))

    # ---- the regions

    def _sequence(self, statements: list[Node]) -> list[Region | Once | Around]:
        """What the statements of a body become."""
        made: list[Region | Once | Around] = []
        region = Region()

        def close() -> None:
            nonlocal region
            if region.statements:
                made.append(region)
            region = Region()

        for p in statements:
            if p.kind == "barrier":
                close()
            elif p.kind == "empty" or self._anew(p):
                continue
            elif self.around(p):
                close()
                made.append(Around(p, [self._sequence(body) for body in bodies(p)]))
            elif self.once(p):
                if not self._early(p, region):
                    close()
                at = len(made)
                made.insert(at, Once(p))
            else:
                region.statements.append(p)
                region.names |= self.names[p]
                region.ends |= any(t.text == "return" for t in self.tokens(p))
        close()
        return made

    def _anew(self, node: Node) -> bool:
        return bool(node.declared) and all(self.named[d.name].again for d in node.declared)

    def _early(self, node: Node, region: Region) -> bool:
        """Whether what is executed once may come before the region that stands before it."""
        if not region.statements:
            return True
        if region.ends or node.kind in ("if", "jump"):
            return False
        if node.fixed or node.kind == "type" or self._is_group(node):
            return True
        for i in range(node.first, node.last):
            text = self.all[i].text
            if text in ("[", "->", "/", "%") or self._from_outside(i):
                return False
            v = self.named.get(i)
            if v is not None and v.kind == "fixed" and not v.array and not self._constant(v):
                return False
            if text in ("*", "&") and not _binary(self.all, i):
                return False
        return not any(w is node for v in region.names for w in v.writes)

    def _mark_last(self, plan: list[Region | Once | Around]) -> None:
        if plan and isinstance(plan[-1], Region):
            plan[-1].last = True

    def regions(self, plan: Iterable[Region | Once | Around] | None = None) -> Iterator[Region]:
        for p in self.plan if plan is None else plan:
            if isinstance(p, Region):
                yield p
            elif isinstance(p, Around):
                for part in p.parts:
                    yield from self.regions(part)

    def _jumps(self, plan: Iterable[Region | Once | Around], inside: bool) -> None:
        """Refuse jumps of single threads out of what the block does together."""
        for p in plan:
            if isinstance(p, Region):
                if p.ends and inside:
                    raise Refused("a thread returns in a loop around a barrier")
                for s in p.statements:
                    self._escapes(s, False)
            elif isinstance(p, Around):
                for part in p.parts:
                    self._jumps(part, inside or p.node.kind in ("for", "while", "do"))

    def _escapes(self, node: Node, inside: bool) -> None:
        if node.kind == "jump" and not inside and self.all[node.first].text != "return":
            raise Refused(f"a thread leaves a loop around a barrier by {self.all[node.first].text}")
        if node.kind == "switch" and not inside:
            if any(t.text == "continue" for t in self.tokens(node)):
                raise Refused("a thread leaves a step of a loop around a barrier")
        for p in node.parts:
            self._escapes(p, inside or node.kind in ("for", "while", "do"))

    # ---- what outlives a region

    def _store(self) -> None:
        """Count the regions of each variable; what is computed anew needs what it is made of."""
        for r in self.regions():
            left = list(r.names)
            own = set(r.statements)
            while left:
                v = left.pop()
                r.names.add(v)
                v.regions.add(r)
                if v.again and v.node not in own and v.node is not None:
                    left += [x for x in self.names[v.node] if r not in x.regions]
        for v in self.variables:
            if not v.stored:
                continue
            if self._reference(v):
                raise Refused(f"the reference {v.name} outlives a barrier")

    def identified(self, region: Region) -> bool:
        """Whether functions that a region calls may ask which thread calls them."""
        code = [t for s in region.statements for t in self.tokens(s)]
        meaning = list(self.facts.meaning(code))
        reached = self.facts.reached(code)
        own = set(reached) - {"operator"}
        inside = [t for n in own for t in reached[n]]
        if any(t.text == INDEX for t in inside):
            return True
        known = self.types | self.facts.types | own | self.facts.macros.keys()
        return any(
            n not in known and not PURE.fullmatch(n) for n in called(meaning) | called(inside)
        )


def bodies(node: Node) -> list[list[Node]]:
    """The statements in each part of a statement that is around others."""
    if node.kind == "block":
        return [node.parts]
    parts = node.parts[1:] if node.kind == "for" else node.parts
    return [p.parts if p.kind == "block" else [p] for p in parts]


def _binary(all_: list[Token], i: int) -> bool:
    before = all_[i - 1]
    return (
        before.kind in ("name", "number") and before.text != "return" or before.text in (")", "]")
    )


def _changes(all_: list[Token], i: int) -> bool:
    """Whether the name at `i` is assigned to, or stepped."""

    def text(k: int) -> str:
        return all_[k].text if 0 <= k < len(all_) else ""

    def near(k: int) -> bool:
        return 0 < k < len(all_) and all_[k - 1].end == all_[k].start

    if all_[i].kind != "name":
        return False
    k = i + 1
    while text(k) == ".":  # a part of it
        k += 2
        if text(k) == "[":
            return True
    if text(k) in ("+", "-") and text(k + 1) == text(k) and near(k + 1):
        return True
    if text(i - 1) in ("+", "-") and text(i - 2) == text(i - 1) and near(i - 1):
        return True
    if text(k) == "=":
        return text(k + 1) != "=" or not near(k + 1)
    if text(k) in ("+", "-", "*", "/", "%", "&", "|", "^") and text(k + 1) == "=":
        return near(k + 1)
    shift = text(k) in ("<", ">") and text(k + 1) == text(k) and text(k + 2) == "="
    return shift and near(k + 1) and near(k + 2)


def _taken(all_: list[Token], i: int) -> bool:
    before = all_[i - 1] if i else None
    if before is None or not is_mark(before, "&") or _binary(all_, i - 1):
        return False
    # && is no address
    return not (i > 1 and all_[i - 2].text == "&" and all_[i - 2].end == before.start)


def _mutates(macro: list[Token]) -> bool:
    """Whether a macro's text assigns, steps or takes an address."""
    words = " ".join(t.text for t in macro)
    unknown = any(not PURE.fullmatch(n) for n in called(macro))
    return unknown or any(w in words for w in ("=", "&", "+ +", "- -"))
