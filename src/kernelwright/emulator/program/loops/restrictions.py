"""A kernel's code. Refuses kernels to which a loop over threads would not be equivalent: those that
wait for other threads, and those that the parser does not understand."""

from __future__ import annotations

from collections.abc import Iterator

from ..cuda_builtins import BLOCK_BARRIERS, names_of, pattern, rows
from ..tokens import Token
from .parser import Node, Refused
from .program_index import (
    PURE,
    UNIFORM,
    ProgramIndex,
    called_names,
    has_atomic,
    has_launch,
    is_binary,
    is_changed,
    is_mark,
    is_retry_loop,
    synchronizing_name,
    without_retry_loops,
)

(INDEX,) = names_of("index")
#: Built-in variables that differ between threads.
INDICES = frozenset({INDEX, "KwThread"})
#: Functors of cooperative groups that take two values.
_OPERATIONS = pattern(rows("operator"))


class KernelCode:
    """The tokens and statements of a kernel.

    Args:
        types: names of its template's parameters.

    Raises:
        Refused: with the construct that loops do not support.
    """

    def __init__(
        self,
        all_: list[Token],
        body: Node,
        types: set[str],
        program: ProgramIndex,
    ) -> None:
        self.all, self.body, self.types, self.program = all_, body, types, program
        self._groups: set[str] = set()
        self._check()

    def tokens(self, node: Node) -> list[Token]:
        return self.all[node.first : node.last + 1]

    def _check(self) -> None:
        for node in self.body.walk():
            if node.kind in ("expression", "declaration"):
                self._group_statement(node)
        left = [t for n in self._leaves(self.body) for t in self._own(n)]
        expanded = list(self.program.expanded(left))
        if (name := synchronizing_name(expanded)) is not None:
            raise Refused(f"it uses {name}")
        if has_launch(left):
            raise Refused("it launches a kernel")
        after = (left[i + 2].text if i + 2 < len(left) else "" for i in range(len(left)))
        for t, name in zip(left, after, strict=True):
            if t.text == "goto" or (
                t.text in self.program.groups and not _OPERATIONS.fullmatch(name)
            ):
                raise Refused("it uses another cooperative group, or goto")
        if "?" in called_names(expanded):
            raise Refused("it calls what an expression yields")
        for i, t in enumerate(left):
            if is_mark(t, "[") and (i == 0 or left[i - 1].text in ("=", "(", ",", "return", "{")):
                raise Refused("it has a lambda")
        for name, bodies in self.program.reached(left).items():
            its = without_retry_loops(bodies)
            if (culprit := synchronizing_name(its)) is not None:
                raise Refused(f"{name} uses {culprit}")
            if name != "operator" and has_launch(list(bodies)):
                raise Refused(f"{name} launches a kernel")
            if has_atomic(its) and any(t.text in ("while", "do") for t in its):
                raise Refused(f"{name} repeats an atomic operation")
        for node in self.body.walk():
            waits = node.kind in ("while", "do") or (node.kind == "for" and self._open(node))
            repeats = waits and not self.divided(node) and not self._retries(node)
            if (
                repeats
                and has_atomic(self.program.expanded(self.tokens(node)))
                and not self._counts(node)
            ):
                raise Refused("a loop repeats an atomic operation")
            if repeats and any(t.text == "KwPtx" for t in self.tokens(node)):
                raise Refused("a loop may wait for what asm reads")

    def _open(self, node: Node) -> bool:
        """Whether the condition of a `for` contains an atomic operation, or is missing."""
        condition = self.all[slice(*node.head[0])]
        return not condition or has_atomic(self.program.expanded(condition))

    def _counts(self, node: Node) -> bool:
        """Whether the number of iterations depends only on arithmetic of the loop's own variables,
        so that the loop does not wait for another thread."""
        a, b = node.head[0]
        inside = self.all[node.first : node.last + 1]
        if a == b or any(t.text in ("break", "return", "goto") for t in inside):
            return False
        spans, seen = [(a, b)], set[str]()
        while spans:
            a, b = spans.pop()
            part = list(self.program.expanded(self.all[a:b]))
            if has_atomic(part) or any(not UNIFORM.fullmatch(n) for n in called_names(part)):
                return False
            for i in range(a, b):
                t = self.all[i]
                points = t.text in ("[", "->") or (
                    t.text in ("*", "&") and not is_binary(self.all, i)
                )
                if t.kind == "mark" and points:
                    return False
                if t.kind == "name" and t.text not in seen:
                    seen.add(t.text)
                    spans += self._assigned(node, t.text)
        return not any(
            self._given_away(i) for i in range(node.first, node.last) if self.all[i].text in seen
        )

    def _assigned(self, node: Node, name: str) -> list[tuple[int, int]]:
        """The statements in a loop that may change a variable."""
        spans: list[tuple[int, int]] = []
        for i in range(node.first, node.last):
            if self.all[i].text == name and is_changed(self.all, i):
                a = b = i
                while self.all[a - 1].text not in (";", "{", "}"):
                    a -= 1
                while self.all[b].text not in (";", "{", "}"):
                    b += 1
                spans.append((a, b))
        return spans

    def _given_away(self, i: int) -> bool:
        """Whether the address of the variable at `i` is taken, or a function may change it."""
        before, after = self.all[i - 1], self.all[i + 1].text
        if before.text == "&" and not is_binary(self.all, i - 1):
            return True
        if before.text not in ("(", ",") or after not in (",", ")"):
            return False
        k, depth = i - 1, 0
        while depth or self.all[k].text != "(":
            depth += (self.all[k].text in ")]}") - (self.all[k].text in "([{")
            k -= 1
        return self.all[k - 1].kind == "name" and not PURE.fullmatch(self.all[k - 1].text)

    def _retries(self, node: Node) -> bool:
        return is_retry_loop(self.all, node.first, node.last)

    def _leaves(self, node: Node) -> Iterator[Node]:
        if self._retries(node):
            return
        if node.parts:
            for p in node.parts:
                yield from self._leaves(p)
        yield node

    def _own(self, node: Node) -> list[Token]:
        """The tokens of a node outside of its parts and of barriers."""
        if node.kind in ("barrier", "warp_sync") or node.fixed or self._is_group(node):
            return []
        if node.kind == "type" and self.all[node.first].text == "namespace":
            return []
        if not node.parts:
            return self.tokens(node)
        return [t for a, b in node.head for t in self.all[a:b]]

    def _is_group(self, node: Node) -> bool:
        return any(self.all[d.name].text in self._groups for d in node.declared)

    def _group_statement(self, node: Node) -> None:
        """Record a declaration of a block's group, and mark calls of its sync and of __syncthreads
        as barriers."""
        words = [t.text for t in self.tokens(node)]
        if node.kind == "declaration":
            if words[-4:] == ["this_thread_block", "(", ")", ";"] and len(node.declared) == 1:
                self._groups.add(self.all[node.declared[0].name].text)
            return
        if words[0] in self.program.groups:
            words = words[2:]
        one = next((w for w in words if w in self._groups), "")
        if "".join(words) in {barrier.format(one) for barrier in BLOCK_BARRIERS}:
            node.kind = "barrier"
        elif words[0] in ("KwWarpSync", "KwFlow"):
            node.kind = "warp_sync"

    def holds_barrier(self, node: Node) -> bool:
        return any(n.kind == "barrier" for n in node.walk())

    def divided(self, node: Node) -> bool:
        """Whether a statement contains a barrier or a warp operation."""
        return any(n.kind in ("barrier", "warp_sync") for n in node.walk())

    def _member(self, i: int) -> bool:
        if i == 0:
            return False
        before = self.all[i - 1]
        arrow = before.text == "->"
        return before.text in (".", "::") or arrow


def nested_statements(node: Node) -> list[list[Node]]:
    """The statements of each branch or body of a compound statement."""
    if node.kind == "block":
        return [node.parts]
    parts = node.parts[1:] if node.kind == "for" else node.parts
    return [p.parts if p.kind == "block" else [p] for p in parts]
