"""Divides a kernel into statements that a loop executes for each thread, and statements that are
executed once for the block.

A region is the code between two barriers; one thread after the other executes it. Loops and
conditions around barriers must be the same for all threads. They are executed once for the block,
and so are statements that only compute values which all threads share. A GPU could choose the same
order, because threads are not ordered between barriers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..tokens import Token
from .parser import Node, Refused
from .program_index import PURE, ProgramIndex, called_names, has_atomic, is_binary
from .restrictions import INDEX, nested_statements
from .uniformity import Uniformity
from .variables import Variable


@dataclass(eq=False)
class ThreadLoop:
    """Statements that each thread executes. `ends`: they may contain a `return`."""

    statements: list[Node] = field(default_factory=list)
    names: set[Variable] = field(default_factory=set)
    ends: bool = False
    last: bool = False  # nothing follows


@dataclass(eq=False)
class BlockUniform:
    """A statement that is executed once for the block."""

    node: Node


@dataclass(eq=False)
class BlockControl:
    """A loop, a condition or a block: its head is executed once for the block."""

    node: Node
    parts: list[Plan]


@dataclass(eq=False)
class WarpSync:
    """A warp-wide operation whose operands the lanes have stored. `last`: lanes that do not
    execute it execute no later one either."""

    operands: Variable
    last: bool


Plan = list["ThreadLoop | BlockUniform | BlockControl | WarpSync"]


class Kernel(Uniformity):
    """The regions of a kernel.

    Raises:
        Refused: it cannot be shown that loops are equivalent.
    """

    def __init__(
        self,
        all_: list[Token],
        body: Node,
        parameters: dict[str, bool],
        types: set[str],
        program: ProgramIndex,
    ) -> None:
        super().__init__(all_, body, types, program)
        self.parameters = [Variable(n, "parameter", points=p) for n, p in parameters.items()]
        self.interchanged = set(
            self._candidates(body)
        )  # loops without barriers that are hoisted too
        while True:
            self._resolve()
            wrong = self._classify()
            if not wrong:
                break
            self.interchanged -= wrong
        self._alone()
        self.plan = self._sequence(self.body.parts)
        self._mark_last(self.plan)
        self._jumps(self.plan, inside=False)
        self._store()

    def _candidates(self, node: Node) -> Iterator[Node]:
        """Innermost loops without barriers that are worth interchanging with the loop over threads,
        because the compiler can then vectorize over threads."""
        for p in node.parts:
            if self.divided(p):
                yield from self._candidates(p)
            elif p.kind == "for" and self._simple(p.parts[1]):
                yield p

    def _simple(self, body: Node) -> bool:
        parts = body.parts if body.kind == "block" else [body]
        if any(p.kind not in ("expression", "declaration") for p in parts):
            return False
        code = list(self.program.expanded(self.tokens(body)))
        known = all(PURE.fullmatch(n) or n in self.types for n in called_names(code))
        return (
            known
            and not has_atomic(code)
            and all(not d.marks[0] < d.marks[1] for p in parts for d in p.declared)
        )

    def _sequence(self, statements: list[Node]) -> Plan:
        """The plan of a body's statements."""
        plan: Plan = []
        region = ThreadLoop()

        def close() -> None:
            nonlocal region
            if region.statements:
                plan.append(region)
            region = ThreadLoop()

        for p in statements:
            if p.kind == "barrier":
                close()
            elif p.kind == "warp_sync":
                close()
                if p in self.operands:
                    plan.append(WarpSync(self.operands[p], self._lonely(p)))
            elif p.kind == "empty" or self._is_recomputed(p):
                continue
            elif self.is_block_control(p):
                close()
                plan.append(
                    BlockControl(p, [self._sequence(body) for body in nested_statements(p)])
                )
            elif self.is_block_uniform(p):
                if not self._early(p, region):
                    close()
                at = len(plan)
                plan.insert(at, BlockUniform(p))
            else:
                region.statements.append(p)
                region.names |= self.names[p]
                region.ends |= any(t.text == "return" for t in self.tokens(p))
        close()
        return plan

    # ---- lanes that do not execute an operation of their warp

    def _alone(self) -> None:
        """Refuse a kernel in which lanes that skip a warp operation execute another one before the
        block's next barrier: the loops could take the two for one operation."""
        for node, v in self.condition_of.items():
            if v.uniform or not self._joins(node):
                continue
            if node.kind == "if" and len(node.parts) > 1 and all(map(self._joins, node.parts)):
                raise Refused("operations of a warp in both branches of a condition")
            if self._next_after(node) == "warp_sync":
                raise Refused("operations of a warp behind others, under a condition of threads")

    def _joins(self, node: Node) -> bool:
        """Whether a statement contains a warp operation in which lanes wait for each other."""
        return any(self._waits(n) for n in node.walk())

    def _waits(self, node: Node) -> bool:
        """Whether a statement is a warp operation in which lanes wait for others."""
        v = self.operands.get(node)
        if v is None or v.of is None:
            return False
        return all(t.text != "operands_activemask" for t in self.all[slice(*v.of.value)])

    def _lonely(self, node: Node) -> bool:
        """Whether lanes that skip a warp operation, by conditions around it, execute no later
        one."""
        return all(self._next_after(n) == "end" for n in self.conditions(node))

    def _next_after(self, node: Node) -> str:
        """The next sync point of threads that skip a statement: "barrier", "warp_sync", or "end" if
        there is none."""
        start = node
        for outer in reversed(self._enclosing[node]):
            if outer.kind == "block":
                at = next(i for i, p in enumerate(outer.parts) if p is node)
                if (first := self._first_of(outer.parts[at + 1 :])) != "end":
                    return first
            # a thread that has left such a loop does not return to it
            left = (
                start in self.condition_of
                and self.condition_of.get(outer) is self.condition_of[start]
            )
            if outer.kind in ("for", "while", "do") and not left:
                body = outer.parts[0 if outer.kind == "do" else -1]
                if (first := self._first_of([body])) != "end":
                    return first
            node = outer
        return "end"

    def _first_of(self, statements: list[Node]) -> str:
        """The kind of the first sync point in statements: as `_next_after`."""
        for p in statements:
            if p.kind == "barrier":
                return "barrier"
            if self._waits(p):
                return "warp_sync"
            if p.kind == "block":
                if (first := self._first_of(p.parts)) != "end":
                    return first
            elif self._joins(p):
                return "warp_sync"
        return "end"

    def _is_recomputed(self, node: Node) -> bool:
        return bool(node.declared) and all(self.named[d.name].recomputed for d in node.declared)

    def _early(self, node: Node, region: ThreadLoop) -> bool:
        """Whether statements that are executed once may be moved before the region in front of
        them."""
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
            if text in ("*", "&") and not is_binary(self.all, i):
                return False
        return not any(w is node for v in region.names for w in v.writes)

    def _mark_last(self, plan: Plan) -> None:
        if plan and isinstance(plan[-1], ThreadLoop):
            plan[-1].last = True

    def regions(self, plan: Plan | None = None) -> Iterator[ThreadLoop]:
        for p in self.plan if plan is None else plan:
            if isinstance(p, ThreadLoop):
                yield p
            elif isinstance(p, BlockControl):
                for part in p.parts:
                    yield from self.regions(part)

    def _jumps(self, plan: Plan, inside: bool) -> None:
        """Refuse jumps by which single threads leave a statement that is executed once."""
        for p in plan:
            if isinstance(p, ThreadLoop):
                if p.ends and inside:
                    raise Refused("a thread returns in a loop around a barrier")
                for s in p.statements:
                    self._escapes(s, False)
            elif isinstance(p, BlockControl):
                for part in p.parts:
                    self._jumps(part, inside or p.node.kind in ("for", "while", "do"))

    def _escapes(self, node: Node, inside: bool) -> None:
        if node.kind == "jump" and not inside and self.all[node.first].text != "return":
            raise Refused(f"a thread leaves a loop around a barrier by {self.all[node.first].text}")
        words = {t.text for t in self.tokens(node)}
        if node.kind == "switch" and not inside and "continue" in words:
            raise Refused("a thread leaves a step of a loop around a barrier")
        for p in node.parts:
            self._escapes(p, inside or node.kind in ("for", "while", "do"))

    # ---- values that outlive a region

    def _store(self) -> None:
        """Count the regions that use each variable; a recomputed variable uses those in its
        initializer."""
        for r in self.regions():
            left = list(r.names)
            own = set(r.statements)
            while left:
                v = left.pop()
                r.names.add(v)
                v.regions.add(r)
                if v.recomputed and v.node not in own and v.node is not None:
                    left += [x for x in self.names[v.node] if r not in x.regions]
        for v in self.variables:
            if not v.stored:
                continue
            if self._reference(v):
                raise Refused(f"the reference {v.name} outlives a barrier")

    def takes_long(self, region: ThreadLoop) -> bool:
        """Whether a thread may take so long in a region that the block would be reported as
        stuck."""
        loops = any(n.kind in ("for", "while", "do") for s in region.statements for n in s.walk())
        code = [t for s in region.statements for t in self.tokens(s)]
        return loops or bool(self.program.reached(code).keys() - {"operator"})

    def identified(self, region: ThreadLoop) -> bool:
        """Whether functions that a region calls may read threadIdx or the like."""
        code = [t for s in region.statements for t in self.tokens(s)]
        expanded = list(self.program.expanded(code))
        reached = self.program.reached(code)
        own = set(reached) - {"operator"}
        inside = [t for n in own for t in reached[n]]
        if any(t.text == INDEX for t in inside):
            return True
        known = self.types | self.program.types | own | self.program.macros.keys()
        return any(
            n not in known and not PURE.fullmatch(n)
            for n in called_names(expanded) | called_names(inside)
        )
