"""Writes a kernel's regions as loops over the threads of its block.

if (const auto *kw_loops = kw_block_in_loops()) {  // else: each thread executes the kernel
  KW_BLOCK
  int row = blockIdx.y;                            // once
  kw::loops::PerThread<float> kw_r0_sum(kw_count);      // a value for each thread
  KW_EACH_THREAD { float sum = 0; ... kw_r0_sum[kw_t] = sum; }
  for (int t = 0; t < n; ++t) {
    KW_EACH_THREAD { auto sum = kw_r0_sum[kw_t]; ... kw_r0_sum[kw_t] = sum; }
    ...
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ..tokens import closing
from .parser import Declarator, Node, Refused
from .program_index import is_mark
from .regions import BlockControl, BlockUniform, Kernel, Plan, ThreadLoop, WarpSync
from .restrictions import INDEX
from .variables import Variable

_NOT_OF_THE_TYPE = frozenset({"const", "constexpr", "register", "__restrict__", "__restrict"})


class LoopWriter:
    """The loops of one kernel as C++, with directives that keep the lines of the file."""

    def __init__(self, kernel: Kernel, text: str, line_of: Callable[[int], int]) -> None:
        self.kernel, self.all, self.source, self.line_of = kernel, kernel.all, text, line_of
        self.code: list[str] = []
        self.per_thread: dict[Variable, str] = {}
        self.returns = any(r.ends and not r.last for r in kernel.regions())
        self.aliases = {v for v in kernel.variables if v.recomputed and self._is_alias(v)}
        self.count = 0
        self.under: list[str] = []  # divergent conditions around the present code

    def write(self) -> str:
        self.code.append(" if (const auto *kw_loops = kw_block_in_loops()) { KW_BLOCK")
        if self.returns:
            self.code.append("kw::loops::Ended kw_ended(kw_count);")
        for v in self.kernel.parameters:
            if v.stored and v.regions:
                # of a pointer, the type without __restrict__
                self._declare_per_thread(v, f"decltype({v.name}{' + 0' if v.points else ''})")
                self.code.append(
                    f"KW_EACH_THREAD {{ KW_LANE {self.per_thread[v]}[kw_t] = {v.name}; }}"
                )
        self._sequence(self.kernel.plan)
        self.code.append("return; }")
        last = self.kernel.body.first
        self.code.append(self._line(last) + "\n")
        return "\n".join(self.code)

    # ---- text

    def _line(self, token: int) -> str:
        return f"#line {self.line_of(self.all[token].start)}"

    def _slice(self, a: int, b: int, by: dict[int, tuple[int, str]] | None = None) -> str:
        """The source of all_[a:b] with parts replaced: `by` is {first token: (end, new text)}."""
        if a >= b:
            return ""
        parts, at = [], self.all[a].start
        for i, (end, other) in sorted((by or {}).items()):
            parts += [self.source[at : self.all[i].start], other]
            at = self.all[end - 1].end
        return "".join([*parts, self.source[at : self.all[b - 1].end]])

    def _words(self, a: int, b: int) -> str:
        return " ".join(t.text for t in self.all[a:b])

    # ---- the block

    def _sequence(self, plan: Plan) -> None:
        for p in plan:
            if isinstance(p, ThreadLoop):
                self._region(p)
            elif isinstance(p, WarpSync):
                self._warp_sync(p)
            elif isinstance(p, BlockUniform):
                self.code += [self._line(p.node.first), self._slice(p.node.first, p.node.last + 1)]
            else:
                self._block_control(p)

    def _warp_sync(self, m: WarpSync) -> None:
        alive = "!kw_ended[kw_t]" if self.returns else ""
        # an inner condition has no value where the outer one is false: _there tests that first
        there = self._there() if self.under else ""
        arguments = [self.per_thread[m.operands], "kw_count", _where(there), _where(alive)]
        self.code.append(
            f"kw::loops::warp_sync({', '.join(arguments)}, {'true' if m.last else 'false'});"
        )

    def _there(self, *more: str) -> str:
        """The condition under which a thread executes the present code: all divergent conditions
        around it, and further ones."""
        own = ["!kw_ended[kw_t]"] if self.returns else []
        return " && ".join([*own, *self.under, *more]) or "true"

    def _any(self, *more: str) -> str:
        holds = self._there(*more)
        return f"kw::loops::any(kw_count, [&](size_t kw_t) {{ return {holds}; }})"

    def _divided(self, a: BlockControl, v: Variable) -> None:
        """A divergent condition: each branch is written for the threads that take it."""
        for i, part in enumerate(a.parts):
            condition = f"{'!' if i else ''}{self.per_thread[v]}[kw_t]"
            self.code.append(f"if ({self._any(condition)}) {{")
            self.under.append(condition)
            self._sequence(part)
            self.under.pop()
            self.code.append("}")

    def _block_control(self, a: BlockControl) -> None:
        node = a.node
        condition_of = self.kernel.condition_of.get(node)
        if condition_of is not None and not condition_of.uniform and node.kind == "if":
            self._divided(a, condition_of)
            return
        self.code.append(self._line(node.first))
        heads = [self._slice(*h) for h in node.head]
        if condition_of is not None and node.kind == "do":
            heads = [
                condition_of.name
                if condition_of.uniform
                else self._any(f"{self.per_thread[condition_of]}[kw_t]")
            ]
        if node.kind == "for":
            start = node.parts[0]
            init = self._slice(start.first, start.last + 1)
            self.code.append(f"for ({init} {heads[0]}; {heads[1]})")
        elif node.kind == "while":
            self.code.append(f"while ({heads[0]})")
        elif node.kind == "if":
            constant = " constexpr" if self.all[node.first + 1].text == "constexpr" else ""
            self.code.append(f"if{constant} ({heads[0]})")
        elif node.kind == "do":
            self.code.append("do")
        for i, part in enumerate(a.parts):
            self.code.append("else {" if i else "{")
            self._sequence(part)
            self.code.append("}")
        if node.kind == "do":
            self.code += [self._line(node.head[0][0]), f"while ({heads[0]});"]

    # ---- values that outlive a region

    def _declare_per_thread(self, v: Variable, type_: str) -> None:
        self.per_thread[v] = f"kw_r{len(self.per_thread)}_{v.name}"
        self.code.append(f"kw::loops::PerThread<{type_}> {self.per_thread[v]}(kw_count);")

    def _type(self, v: Variable) -> str:
        d = v.of
        assert d is not None
        words = [t.text for t in self.all[slice(*d.type_)]]
        if "auto" in words or "decltype" in words:
            return self._deduced(v)
        left = [w for w in words if w not in _NOT_OF_THE_TYPE]
        marks = [t.text for t in self.all[slice(*d.marks)] if t.text not in _NOT_OF_THE_TYPE]
        sizes = self._words(*d.sizes)
        if "[ ]" in sizes or "__align__" in words or "alignas" in words or "__attribute__" in words:
            raise Refused(f"the type of {v.name}")
        return " ".join([*left, *marks, sizes])

    def _deduced(self, v: Variable) -> str:
        """The type that `auto` stands for, as the result type of a function that is never
        called."""
        body = [f"return {v.name};"]
        left, seen = [v], {v}
        needed: dict[Node, list[str]] = {}
        while left:
            one = left.pop()
            assert one.node is not None
            needed[one.node] = [self._line(one.node.first), self._slice_of(one.node)]
            for other in self.kernel.names[one.node] - seen:
                seen.add(other)
                if other in self.per_thread:
                    body.insert(0, f"auto &{other.name} = {self.per_thread[other]}.any();")
                elif other.kind == "local" and not other.uniform:
                    left.append(other)
        text = [t for n in sorted(needed, key=lambda n: n.first) for t in needed[n]]
        name = f"kw_type{len(self.per_thread)}"
        per_thread = [m for m in body if m != body[-1]]
        self.code += [
            f"const auto {name} = [&] {{ const size_t kw_t = 0;",
            *per_thread,
            *text,
            body[-1],
            "};",
        ]
        return f"std::decay_t<decltype({name}())>"

    def _slice_of(self, node: Node) -> str:
        return self._slice(node.first, node.last + 1)

    # ---- regions

    def _region(self, r: ThreadLoop) -> None:
        self.count += 1
        own = {self.kernel.named[d.name] for s in r.statements for d in s.declared}
        for s in r.statements:
            for d in s.declared:
                v = self.kernel.named[d.name]
                if v.stored:
                    self._declare_per_thread(v, self._type(v))
        others = sorted((v for v in r.names - own if v.recomputed or v.stored), key=_place)
        if len({v.name for v in others}) < len(others):
            raise Refused("two variables of one name")
        self.divisors: list[str] = []
        edits = self._edits(r)
        identified = self.kernel.identified(r)
        text = self._statements(r, own, others, edits)
        code = ["KW_STEP"]
        long_ = self.kernel.takes_long(r)
        if self.divisors:
            widths = ", ".join(dict.fromkeys(self.divisors))
            code.append(f"{{ const unsigned kw_width = kw::loops::width({widths}); KW_EACH_LANE {{")
        else:
            code.append("{ KW_EACH_THREAD {")
        code.append("KW_LANE")
        if self.returns or self.under:
            code.append(f"if (!({self._there()})) continue;")
        if identified:
            code.append("KW_PRESENT")
        if long_:
            code.append("KW_STEP")
        code += [text, "} }"]
        if identified:
            code.append("KW_ABSENT")
        if r.ends and self.returns:
            code.append("if (kw_ended.all()) return;")
        self.code += code

    def _statements(
        self,
        r: ThreadLoop,
        own: set[Variable],
        others: list[Variable],
        edits: dict[int, tuple[int, str]],
    ) -> str:
        code: list[str] = []
        written: set[Node] = set()
        for v in others:
            if v.recomputed and v.node is not None and v.node not in written:
                written.add(v.node)
                index = self._indices(v.node.first, v.node.last + 1)
                code += [
                    self._line(v.node.first),
                    self._slice(v.node.first, v.node.last + 1, index),
                ]
            elif v.stored:
                code.append(
                    f"auto {'&' if _referred(v) else ''}{v.name} = {self.per_thread[v]}[kw_t];"
                )
        code.append("{")
        for s in r.statements:
            mine = {i: e for i, e in edits.items() if s.first <= i <= s.last}
            code += [self._line(s.first), self._slice(s.first, s.last + 1, mine)]
        code += [self._keep(v) for v in own if v.stored and not _referred(v)]
        code.append("}")
        code += [self._keep(v) for v in others if v.stored and not _referred(v)]
        if r.ends:
            code.append(f"kw_next{self.count}:;")
        return "\n".join(code)

    def _keep(self, v: Variable) -> str:
        return f"{self.per_thread[v]}[kw_t] = {v.name};"

    def _edits(self, r: ThreadLoop) -> dict[int, tuple[int, str]]:
        edits: dict[int, tuple[int, str]] = {}
        for s in r.statements:
            if any(v.stored and _referred(v) for v in map(self._declared, s.declared)):
                edits[s.first] = (s.last + 1, self._referring(s))
                continue
            edits |= self._indices(s.first, s.last + 1)
            for i in range(s.first, s.last + 1):
                if self.all[i].text == "return":
                    note = "kw_ended.note(kw_t); " if self.returns else ""
                    edits[i] = (i + 2, f"{{ {note}goto kw_next{self.count}; }}")
        return edits

    def _declared(self, d: Declarator) -> Variable:
        return self.kernel.named[d.name]

    def _referring(self, s: Node) -> str:
        """A declaration some or all of whose variables are used directly in their arrays."""
        code: list[str] = []
        for d in s.declared:
            v = self._declared(d)
            type_ = self._slice(*d.type_)
            rest = self._slice(d.marks[0], d.marks[1]) if d.marks[0] < d.marks[1] else ""
            sizes, value = self._slice(*d.sizes), self._slice(*d.value)
            if not (v.stored and _referred(v)):
                code.append(f"{type_} {rest} {v.name}{sizes} {value};")
                continue
            code.append(f"auto &{v.name} = {self.per_thread[v]}[kw_t];")
            if value:
                code.append(f"{{ {type_} {rest} kw_first{sizes} {value};")
                code.append(f"kw::loops::set({v.name}, kw_first); }}")
        return " ".join(code)

    # ---- indices that a CPU can vectorize

    def _is_alias(self, v: Variable) -> bool:
        """Whether a variable is another name of threadIdx.x."""
        if v.of is None:
            return False
        words = [t.text for t in self.all[slice(*v.of.value)]]
        return words == ["=", INDEX, ".", "x"]

    def _indices(self, a: int, b: int) -> dict[int, tuple[int, str]]:
        """threadIdx.x / n and threadIdx.x % n. In a strip of threads whose length divides n, the
        quotient is constant and the remainder increases by one."""
        edits: dict[int, tuple[int, str]] = {}
        i = a
        while i < b:
            if self.all[i].text == INDEX and self._words(i, i + 3) == f"{INDEX} . x":
                behind = i + 3
            elif self.kernel.named.get(i) in self.aliases:
                behind = i + 1
            else:
                i += 1
                continue
            divided = self._division(i, behind)
            if divided is not None:
                end, name, by = divided
                value = self._words(i, behind)
                edits[i] = (end, f"kw::loops::{name}({value}, kw_x0, kw_l, kw_width, {by})")
                self.divisors.append(by)
                behind = end
            i = behind
        return edits

    def _division(self, i: int, behind: int) -> tuple[int, str, str] | None:
        """The operation that follows all_[i:behind]: (end, operator, divisor)."""
        before, mark = self.all[i - 1].text, self.all[behind]
        if before not in ("(", "=", ",", "+", "[", "{", "?", ":", "return", ";"):
            return None
        if is_mark(mark, "/", "%") and self.all[behind + 1].text != "=":
            end = self._divisor(behind + 1)
            name = "quotient" if mark.text == "/" else "remainder"
            return (end, name, self._slice(behind + 1, end)) if end else None
        if before == "+":  # binds more tightly than & and >>
            return None
        shift = self._words(behind, behind + 2) == "> >"
        number = self.all[behind + (2 if shift else 1)]
        end = behind + (3 if shift else 2)
        plain = re.fullmatch(r"\d+", number.text) and self.all[end].text in (";", ",", ")", "]")
        if not plain:
            return None
        n = int(number.text)
        if shift and n < 10:
            return end, "quotient", str(1 << n)
        if is_mark(mark, "&") and n & (n + 1) == 0:
            return end, "remainder", str(n + 1)
        return None

    def _divisor(self, i: int) -> int | None:
        """The token behind a number, a name or an expression in brackets."""
        end: int | None = i + 1
        if self.all[i].text == "(":
            close = closing(self.all, i)
            end = None if close is None else close + 1
            if end and (self.all[end].kind in ("name", "number") or self.all[end].text == "("):
                return None  # a cast
        elif self._words(i, i + 2) == "blockDim .":
            end = i + 3
        elif self.all[i].kind == "name":
            if self.all[i + 1].text in ("(", "[", ".", "->", "::", "<"):
                return None
        elif self.all[i].kind != "number":
            return None
        return end if end and self.kernel.known(i, end) else None


def _where(holds: str) -> str:
    """A loop over the threads for which a condition holds."""
    if not holds:
        return "kw::loops::All{}"
    return f"kw::loops::Where{{[&](size_t kw_t) {{ return {holds}; }}}}"


def _place(v: Variable) -> int:
    return v.node.first if v.node else -1


def _referred(v: Variable) -> bool:
    """Whether code accesses the stored variable itself, not a copy."""
    return v.array or v.address_taken
