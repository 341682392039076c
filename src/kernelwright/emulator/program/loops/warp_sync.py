"""Rewrites a kernel so that each warp-wide operation is a statement of its own.

    x += __shfl_down_sync(~0u, x, 4);
        becomes auto KwB1 = kw::loops::operands_shfl_down_sync(KwThread, ~0u, x, 4);
        KwWarpSync(KwB1);
        x += KwB1.result();
    s[t] += s[t + 4];                                     where s is a pointer to volatile
        becomes KwFlow(); auto KwV1 = s[t] + (s[t + 4]); KwFlow(); s[t] = KwV1; KwFlow();

Functions that contain such operations are inlined. Tiles of a warp become masks. What cannot be
split is left unchanged, and the kernel is rejected later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from ..cuda_builtins import BLOCK_MEMBERS, TILE_MEMBERS, pattern, rows
from ..lockstep import VOLATILE, qualifies_asm, writes
from ..tokens import Token, closing, split
from .asm_calls import with_calls
from .definitions import code_of, parameter
from .inliner import NO_TYPE, Call, Inliner, call_at, value_type
from .parser import Node, Parser, Refused
from .preprocessor import Choice
from .program_index import ProgramIndex, is_mark

#: Operations of a warp for which warp_sync.h has a function operands_NAME.
WARP_OPERATIONS = pattern(row for row in rows("warp", "generated") if row.loops)
_TILE_OPERATIONS = pattern(row for row in rows("warp") if row.tile)
_PASSES = 60
_CAST = "KwVolatile"  # stands for `volatile` in a cast

Edit = tuple[int, int, str]


def applied(text: str, edits: list[Edit]) -> str:
    """A text with parts replaced; of several insertions at one place, the first comes first."""
    parts, at = [], 0
    for start, end, other in sorted(edits, key=lambda e: e[:2]):
        parts += [text[at:start], other]
        at = end
    return "".join([*parts, text[at:]])


class WarpSyncRewriter:
    """One kernel's body.

    Args:
        volatile: its parameters that are pointers to volatile.
        head: the tokens of its parameters.
        lines: the line numbers of its file.
        choice: the outcomes of the preprocessor's conditions.
    """

    def __init__(
        self,
        program: ProgramIndex,
        volatile: set[str],
        head: list[Token],
        lines: list[str],
        choice: Choice,
    ) -> None:
        self.program, self.volatile = program, set(volatile)
        self.tiles: dict[str, str] = {}  # their sizes
        parameters = [parameter(head[a:b]) for a, b in split(head, 1, len(head), ",") if a < b]
        declared = {p.name for p in parameters}
        self.inliner = Inliner(program, declared, self.tiles, lines, choice)
        self.inliner.types = {p.name: value_type(p) for p in parameters}
        self.count = 0
        self._memory: set[str] = set()  # variables that are volatile themselves
        self._scalars: set[str] = set()  # those in shared memory that are no arrays
        self.shared: set[str] = set()  # of functions, declared in the text

    def body(self, text: str) -> str:
        """The body of the kernel, from { to }.

        Raises:
            Refused: it contains a warp-wide operation in an unsupported form.
        """
        for _ in range(_PASSES):
            text = self._without_volatile(with_calls(text, self.program))
            self.all, _ = code_of(text)
            tree, self.text = Parser(self.all).block(0), text
            if not self.inliner.count:
                own = (self.all[d.name].text for n in tree.walk() for d in n.declared)
                self.inliner.declared |= set(own)
            self._know_types(tree)
            edits = list(self._tiles(tree)) or list(self._block(tree, True))
            if not edits:
                break
            text = applied(text, edits)
        else:
            raise Refused("too many operations of a warp in one statement")
        self._waits(tree)
        self._understood(tree)
        text = re.sub(r"KwFlow\(\);(?=\s*(?:/\*@\d+\*/)?\s*KwFlow\(\);)", "", text)
        new = [one for one in self.inliner.shared.values() if one not in self.shared]
        self.shared |= set(new)
        if shared := " ".join(new):
            text = applied(text, [(text.index("{") + 1, text.index("{") + 1, f" {shared}")])
        return text

    def _know_types(self, tree: Node) -> None:
        """Record the types of variables; a name with several types has none."""
        types: dict[str, tuple[str, ...] | None] = {}
        for d in (d for n in tree.walk() for d in n.declared):
            words = [t.text for a, b in (d.type_, d.marks, d.sizes) for t in self.all[a:b]]
            name = self.all[d.name].text
            its = tuple(w for w in words if w not in NO_TYPE)
            if name in types and types[name] != its:
                types[name] = None
            else:
                types[name] = None if {"auto", "[", "decltype"} & set(its) else its
        for name, its in types.items():
            known = self.inliner.types.get(name, its)
            self.inliner.types[name] = its if known == its else None

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"Kw{kind}{self.count}"

    def source(self, a: int, b: int) -> str:
        """The text of all_[a:b]."""
        return self.text[self.all[a].start : self.all[b - 1].end] if a < b else ""

    # ---- volatile

    def _without_volatile(self, text: str) -> str:
        """The text without `volatile`. Records the names of pointers to volatile, and of volatile
        arrays and shared variables. In a cast, a mark takes the keyword's place."""
        all_, _ = code_of(text)
        edits: list[Edit] = []
        for i, t in enumerate(all_):
            if t.text not in VOLATILE or qualifies_asm(all_, i):
                continue
            end = next((k for k in range(i, len(all_)) if all_[k].text in ";,)=(["), i)
            name, after = all_[end - 1], all_[end].text
            start = next((k for k in range(i, 0, -1) if all_[k].text in ";{}"), 0)
            if name.kind == "name" and after != ")":
                pointer = any(x.text == "*" for x in all_[i:end]) or after == "["
                shared = any(x.text == "__shared__" for x in all_[start:end])
                kind = self.volatile if pointer or shared else self._memory
                kind.add(name.text)
                if shared and not pointer:
                    self._scalars.add(name.text)
            edits.append((t.start, t.end, _CAST if after in (")", ">", "(") else ""))
        return applied(text, edits)

    def _waits(self, tree: Node) -> None:
        variables, members = self.program.volatile_outside
        names = self.volatile | self._memory | variables | members
        for node in tree.walk():
            if node.kind not in ("for", "while", "do"):
                continue
            spans = list(node.head)
            if node.kind != "for" or node.head[0][0] == node.head[0][1]:  # it may end anywhere
                spans.append((node.first, node.last))
            if names & {self.all[i].text for a, b in spans for i in range(a, b)}:
                raise Refused("a loop waits for a volatile value")

    def _understood(self, tree: Node) -> None:
        """Check that each write to volatile memory has been split into two statements.

        Raises:
            Refused: one has not, or other code may access volatile memory.
        """
        variables, members = self.program.volatile_outside
        for first, end in writes(self.all, self.volatile | variables | members):
            its = self.all[first:end]
            place = {t.text for t in its}
            dots = (".", "->")
            chosen = {b.text for a, b in pairwise(its) if a.text in dots and b.text in members}
            exchanged = chosen or place & (self.volatile | variables)
            if exchanged and not self.all[end + 1].text.startswith("KwV"):
                raise Refused("a write to volatile memory in a form that is not understood")
        allowed = {
            i
            for n in tree.walk()
            if n.kind == "declaration"
            and self.volatile & {self.all[d.name].text for d in n.declared}
            for i in range(n.first, n.last + 1)
        }
        for i, t in enumerate(self.all):
            if t.text == _CAST and i not in allowed:
                raise Refused("a cast to volatile")
            bare = t.text in self.volatile and t.text not in self._scalars and i not in allowed
            if bare and self.all[i + 1].text != "[" and self.all[i - 1].text != "*":
                member = self.all[i - 1].text in (".", "->")
                if not member:
                    raise Refused("a pointer to volatile that goes elsewhere")

    def _write(self, node: Node) -> str | None:
        """A write through a pointer to volatile as two statements: all lanes read before one
        writes."""
        first = node.first + (self.all[node.first].text == "*")
        name, after = self.all[first].text, self.all[first + 1].text
        if name not in self.volatile or (
            first == node.first and after != "[" and name not in self._scalars
        ):
            return None
        equals = next((i for i in range(first, node.last) if self._assigns(i)), None)
        if equals is None or self.all[equals + 1].text.startswith("KwV"):
            return None
        to = equals
        while self.all[to - 1].end == self.all[to].start and is_mark(
            self.all[to - 1], "+", "-", "*", "/", "&", "|", "^", "%", "<", ">"
        ):
            to -= 1
        place, value = self.source(node.first, to), self.source(equals + 1, node.last)
        if to < equals:
            value = f"{place} {self.source(to, equals)} ({value})"
        v = self.fresh("V")
        return f"KwFlow(); auto {v} = {value}; KwFlow(); {place} = {v}; KwFlow();"

    def _assigns(self, i: int) -> bool:
        """Whether the token at `i` is the = of an assignment, outside of brackets."""
        t, before, after = self.all[i], self.all[i - 1], self.all[i + 1]
        if t.text != "=" or (after.text == "=" and after.start == t.end):
            return False
        near = before.end == t.start
        return not (near and before.text in ("=", "!")) and not (
            near and before.text in "<>" and self.all[i - 2].text != before.text
        )

    # ---- tiles of a warp

    def _tiles(self, tree: Node) -> Iterator[Edit]:
        for node in tree.walk():
            words = [t.text for t in self.all[node.first : node.last + 1]]
            if node.kind == "declaration" and "tiled_partition" in words:
                at = node.first + words.index("tiled_partition")
                call = call_at(self.all, at)
                size = None if call is None else self._size(call)
                if call is None or size is None or len(node.declared) != 1:
                    raise Refused("a tile whose size is not known")
                if {self.all[i].text for a, b in call.arguments for i in range(a, b)} & {
                    *self.tiles
                }:
                    raise Refused("a tile of a tile")
                name = self.all[node.declared[0].name].text
                self.tiles[name] = size
                yield self.all[node.first].start, self.all[node.last].end, ";"
                return
        blocks = {
            self.all[n.declared[0].name].text
            for n in tree.walk()
            if n.kind == "declaration"
            and [t.text for t in self.all[n.last - 3 : n.last]] == ["this_thread_block", "(", ")"]
        }
        for i, t in enumerate(self.all):
            if t.kind != "name" or not is_mark(self.all[i + 1], "."):
                continue
            known = TILE_MEMBERS if t.text in self.tiles else BLOCK_MEMBERS
            method, end = self.all[i + 2].text, closing(self.all, i + 3)
            if method in known and end is not None and t.text in {*self.tiles, *blocks}:
                value = known[method].format(n=self.tiles.get(t.text))
                yield t.start, self.all[end].end, value

    def _size(self, call: Call) -> str | None:
        """The size of a tile: a template argument, or a number."""
        if len(call.explicit) == 1:
            return self.source(*call.explicit[0])
        number = self.source(*call.arguments[1]) if len(call.arguments) == 2 else ""
        return number if number.isdigit() else None

    def _tile_operation(self, i: int) -> tuple[int, int, str] | None:
        """tile.shfl(x, 0), sync(tile) or reduce(tile, x, op) at `i`: (first, last, bring)."""
        name = self.all[i].text
        if name in self.tiles and is_mark(self.all[i + 1], "."):
            method, end = self.all[i + 2].text, closing(self.all, i + 3)
            size = self.tiles[name]
            if end is None or not (method == "sync" or _TILE_OPERATIONS.fullmatch(f"__{method}")):
                return None
            if method == "ballot" and size != "32":
                raise Refused("a ballot of a tile smaller than a warp")
            arguments = self.source(i + 4, end)
            mask = f"KwThread, kw::loops::tile_mask<{size}>(KwThread)"
            if method == "sync":
                return i, end, f"operands_syncwarp({mask})"
            width = f", {size}" if method.startswith("shfl") else ""
            return i, end, f"operands_{method}_sync({mask}, {arguments}{width})"
        call = call_at(self.all, i) if name in ("sync", "reduce") else None
        if call is None or not call.arguments:
            return None
        tile = self.source(*call.arguments[0])
        if tile not in self.tiles:
            return None
        size = self.tiles[tile]
        if name == "sync":
            mask = f"KwThread, kw::loops::tile_mask<{size}>(KwThread)"
            return call.first, call.last, f"operands_syncwarp({mask})"
        rest = self.source(call.arguments[1][0], call.last)
        return call.first, call.last, f"operands_reduce<{size}>(KwThread, {rest})"

    # ---- statements

    def _block(self, node: Node, in_block: bool) -> Iterator[Edit]:
        """Edits of a statement and of the statements in it; each is split at most once."""
        if node.kind in ("declaration", "expression"):
            yield from self._leaf(node, in_block)
        elif node.kind == "if":
            yield from self._before(node, *node.head[0], in_block)
        elif node.kind == "for" and node.parts[0].kind != "empty":
            start = node.parts[0]
            yield from self._before(node, start.first, start.last, in_block)
        for p in node.parts[1:] if node.kind == "for" else node.parts:
            yield from self._block(p, node.kind == "block")

    def _leaf(self, node: Node, in_block: bool) -> Iterator[Edit]:
        if node.fixed:
            return
        start, end = self.all[node.first].start, self.all[node.last].end
        if node.kind == "declaration" and len(node.declared) > 1:
            for d in node.declared[1:]:
                comma = self.all[d.marks[0] - 1]
                yield comma.start, comma.end, f"; {self.source(*d.type_)} "
            return
        unit = self._unit(node.first, node.last)
        if node.kind == "expression":
            commas = split(self.all, node.first, node.last, ",")
            if len(commas) > 1 and (unit or self._names_volatile(node)):
                if not in_block:
                    yield start, start, "{ "
                    yield end, end, " }"
                for _, comma in commas[:-1]:
                    yield self.all[comma].start, self.all[comma].end, ";"
                return
            if unit is None and (statements := self._write(node)):
                yield start, end, statements if in_block else f"{{ {statements} }}"
                return
        if unit is not None:
            yield from self._hoisted(node, unit, in_block)

    def _names_volatile(self, node: Node) -> bool:
        return any(t.text in self.volatile for t in self.all[node.first : node.last])

    def _before(self, node: Node, a: int, b: int, in_block: bool) -> Iterator[Edit]:
        """Moves a warp-wide operation out of a condition, before its statement."""
        unit = self._unit(a, b)
        if unit is not None:
            yield from self._hoisted(node, unit, in_block, a)

    def _hoisted(
        self, node: Node, unit: tuple[int, int], in_block: bool, start: int | None = None
    ) -> Iterator[Edit]:
        first, last = unit
        if self._conditional(node.first if start is None else start, first):
            raise Refused("an operation of a warp in a part of an expression")
        before, by = self._replacement(first, last)
        alone = node.kind == "expression" and first == node.first and last + 1 == node.last
        place, end = self.all[node.first].start, self.all[node.last].end
        if not in_block:
            before = "{ " + before
            yield end, end, " }"
        if alone:
            yield place, end, before
            return
        yield place, place, before + " "
        yield self.all[first].start, self.all[last].end, by

    def _conditional(self, start: int, at: int) -> bool:
        """Whether the evaluation of a statement may skip the operand at `at`."""
        depth = 0
        for i in range(at - 1, start - 1, -1):
            t = self.all[i]
            if t.kind != "mark":
                continue
            depth += (t.text in ")]}") - (t.text in "([{")
            near = i > start and self.all[i - 1].end == t.start
            twice = near and t.text in "&|" and self.all[i - 1].text == t.text
            if depth <= 0 and (t.text == "?" or twice):
                return True
        return False

    def _unit(self, a: int, b: int) -> tuple[int, int] | None:
        """The first innermost warp operation in all_[a:b], as the indices of its tokens."""
        for i in range(a, b):
            outer = self._place(i)
            if outer is not None:
                inside = next((k for k in range(i + 1, outer[1]) if self.all[k].text == "("), None)
                inner = self._unit(inside, outer[1]) if inside is not None else None
                return inner or outer
        return None

    def _place(self, i: int) -> tuple[int, int] | None:
        t = self.all[i]
        if t.kind != "name":
            return None
        if tile := self._tile_operation(i):
            return tile[0], tile[1]
        call = call_at(self.all, i)
        if call is None:
            return None
        given = {self.source(*a) for a in call.arguments}
        if (
            WARP_OPERATIONS.fullmatch(t.text)
            or t.text in self.program.synchronizing_functions
            or given & self.tiles.keys()
        ):
            return call.first, call.last
        return None

    def _replacement(self, first: int, last: int) -> tuple[str, str]:
        """(statements, the name of the result) that replace a warp operation."""
        at = next(i for i in range(first, last) if self._place(i) == (first, last))
        tile, name = self._tile_operation(at), self.all[at].text
        if tile is None and not WARP_OPERATIONS.fullmatch(name):
            call = call_at(self.all, at)
            assert call is not None
            return self.inliner.code(self.all, call, self.text)
        arguments = self.source(at + 2, last)
        if tile is not None:
            operands = tile[2]
        elif name == "KwWarpAsm":
            b = self.fresh("B")
            return f"auto {b} = KwGather({arguments}); KwWarpSync({b});", ""
        else:
            operands = f"operands_{name[2:]}(KwThread{', ' if arguments else ''}{arguments})"
        b = self.fresh("B")
        return f"auto {b} = kw::loops::{operands}; KwWarpSync({b});", f"{b}.result()"


def with_predicates(text: str, all_: list[Token], nodes: list[Node], fresh) -> str:
    """Predicates divergent conditions and loops that contain sync points: a condition is stored in
    a variable, and a loop becomes one that all threads execute.

    if (x) { ... }
        becomes { const bool KwC1 = bool(x); if (KwC1) { ... } }
    for (int i = t; i < n; ++i) { ... }
        becomes { int i = t; bool KwL2 = true; do { if (KwL2) KwL2 = bool(i < n);
        if (KwL2) { { ... } ++i; } } while (KwAny(KwL2)); }

    Raises:
        Refused: such a loop has jumps.
    """

    def source(a: int, b: int) -> str:
        return text[all_[a].start : all_[b - 1].end] if a < b else ""

    edits: list[Edit] = []
    replaced: list[Node] = []
    for node in nodes:
        if any(n.first <= node.first <= n.last for n in replaced):
            continue  # in the next pass
        replaced.append(node)
        head = source(*node.head[0])
        start, end = all_[node.first].start, all_[node.last].end
        if node.kind == "if":
            if all_[node.first + 1].text == "constexpr":
                raise Refused("a constant condition that is not understood")
            c = fresh("C")
            a, b = node.head[0]
            edits.append((start, start, f"{{ const bool {c} = bool({head}); "))
            edits.append((all_[a].start, all_[b - 1].end, c))
            for p in node.parts:
                if p.kind != "block":
                    edits.append((all_[p.first].start, all_[p.first].start, "{ "))
                    edits.append((all_[p.last].end, all_[p.last].end, " }"))
            edits.append((end, end, " }"))
            continue
        body = node.parts[-1] if node.kind != "do" else node.parts[0]
        if _jumps(body, all_):
            raise Refused("a thread leaves a loop around an operation of a warp")
        c, its = fresh("L"), source(body.first, body.last + 1)
        if node.kind == "do":
            loop = f"{{ bool {c} = true; do {{ if ({c}) {{ {its} {c} = bool({head}); }} }} "
        else:
            init = source(node.parts[0].first, node.parts[0].last + 1) if node.kind == "for" else ""
            step = source(*node.head[1]) if node.kind == "for" else ""
            condition = f"if ({c}) {c} = bool({head}); " if head else ""
            loop = f"{{ {init} bool {c} = true; do {{ {condition}if ({c}) {{ {its} {step}; }} }} "
        edits.append((start, end, f"{loop}while (KwAny({c})); }}"))
    return applied(text, edits)


def _jumps(body: Node, all_: list[Token]) -> bool:
    """Whether a loop's body contains a break or continue of this loop, or a return."""
    if body.kind in ("for", "while", "do"):
        return any(all_[n.first].text == "return" for n in body.walk() if n.kind == "jump")
    if body.kind == "switch":
        return any(t.text in ("continue", "return") for t in all_[body.first : body.last])
    return body.kind == "jump" or any(_jumps(p, all_) for p in body.parts)
