"""Inlines device functions that contain barriers or warp-wide operations.

total = warp_sum(x);
    becomes float Kw1_v = x; for (...) Kw1_v += __shfl_down_sync(~0u, Kw1_v, Kw1_o);
    float Kw1 = Kw1_v; total = Kw1;
"""

from __future__ import annotations

from dataclasses import dataclass

from ..tokens import Token, angle_opening, closing, split
from .definitions import Definition
from .facts import Facts, is_mark
from .tree import Node, Parser, Refused

_FOLLOWED = 40  # calls in a kernel
_QUALIFIERS = ("const", "volatile", "__restrict__", "&")
_GROUPS = frozenset({"thread_block_tile", "thread_block", "thread_group"})


@dataclass(frozen=True)
class Call:
    """A call in a list of tokens: `first` is the start of its name, `last` its closing bracket."""

    name: str
    first: int
    last: int
    explicit: tuple[tuple[int, int], ...]  # template arguments
    arguments: tuple[tuple[int, int], ...]


def call_at(all_: list[Token], i: int) -> Call | None:
    """The call of the function whose name stands at `i`."""
    if all_[i].kind != "name" or i + 1 >= len(all_) or is_mark(all_[i - 1], ".", "->"):
        return None
    at, explicit = i + 1, list[tuple[int, int]]()
    if all_[at].text == "<":
        end = next((k for k in range(at, len(all_) - 1) if _closes(all_, k, at)), None)
        if end is None or all_[end + 1].text != "(":
            return None
        explicit, at = split(all_, at + 1, end, ","), end + 1
    if all_[at].text != "(":
        return None
    last = closing(all_, at)
    if last is None:
        return None
    arguments = [] if last == at + 1 else split(all_, at + 1, last, ",")
    first = i
    while all_[first - 1].text == "::":
        first -= 2 if all_[first - 2].kind == "name" else 1
    return Call(all_[i].text, first, last, tuple(explicit), tuple(arguments))


def _closes(all_: list[Token], k: int, at: int) -> bool:
    return all_[k].text == ">" and angle_opening(all_, k) == at


class Inliner:
    """Writes the code of functions into one kernel.

    Attributes:
        shared: declarations of the functions' shared variables, one for all calls.
    """

    def __init__(
        self, facts: Facts, declared: set[str], tiles: dict[str, str], lines: list[str]
    ) -> None:
        self.facts, self.declared, self.tiles, self.lines = facts, declared, tiles, lines
        self.shared: dict[tuple[str, str], str] = {}
        self.count = 0
        self._own: set[str] = set()  # functions with shared variables of their template's types

    def code(self, all_: list[Token], call: Call, text: str) -> tuple[str, str]:
        """(statements, the name of the result) for a call in a text.

        Raises:
            Refused: it cannot stand in place of the call.
        """
        self.count += 1
        if self.count > _FOLLOWED:
            raise Refused(f"too many calls of functions in which threads meet ({call.name})")
        one = self._definition(call)
        mark = f"Kw{self.count}"

        def said(span: tuple[int, int]) -> str:
            return text[all_[span[0]].start : all_[span[1] - 1].end] if span[0] < span[1] else ""

        names: dict[str, str] = {}
        explicit = [said(s) for s in call.explicit]
        arguments = [said(s) for s in call.arguments]
        made = self._template(one, explicit, arguments, names, mark)
        made += self._parameters(one, arguments, len(explicit), names, mark)
        tree = Parser(one.body).block(0)
        returned = self._returned(one, tree)
        self._locals(one, tree, names, mark)
        end = returned.first if returned else tree.last
        made += self._statements(one, tree, end, names)
        result = ""
        if returned and returned.last > returned.first + 1:
            result = mark
            value = self._said(one, returned.first + 1, returned.last, names)
            type_ = " ".join(names.get(t.text, t.text) for t in one.returns) or "auto"
            made.append(f"{type_} {mark} = {value};")
        return " ".join(made), result

    def _definition(self, call: Call) -> Definition:
        found = self.facts.definitions.get(call.name, [])
        if len(found) != 1:
            raise Refused(f"it calls {call.name}, which is defined several times, or in a class")
        one = found[0]
        if one.why:
            raise Refused(f"{call.name} has {one.why}")
        if len(call.arguments) > len(one.parameters):
            raise Refused(f"the arguments of {call.name}")
        return one

    def _template(
        self,
        one: Definition,
        explicit: list[str],
        arguments: list[str],
        names: dict[str, str],
        mark: str,
    ) -> list[str]:
        """Its template's parameters: aliases and constants, or what stands for them."""
        made: list[str] = []
        groups = {w for p, v in zip(one.parameters, arguments, strict=False) for w in p.type_
                  if v in self.tiles}  # fmt: skip
        for k, p in enumerate(one.template):
            if p.name in groups:
                continue
            deduced = self._deduced(one, p.name, mark) if p.type_ else ""
            default = " ".join(names.get(w, w) for w in p.default.split())
            value = explicit[k] if k < len(explicit) else deduced or default
            if not value:
                raise Refused(f"the template argument {p.name} of {one.name}")
            if "decltype" in value:  # of a variable, which the block does not have
                names[p.name] = value
                continue
            names[p.name] = f"{mark}_{p.name}"
            head = (
                f"using {names[p.name]} =" if p.type_ else f"constexpr {p.kind} {names[p.name]} ="
            )
            made.append(f"{head} {value};")
        return made

    def _deduced(self, one: Definition, name: str, mark: str) -> str:
        """A type from the arguments, where a parameter has just this type, or points to it."""
        for p in one.parameters:
            words = [w for w in p.type_ if w not in _QUALIFIERS]
            if words == [name] and p.name:
                return f"std::decay_t<decltype({mark}_{p.name})>"
            if words == [name, "*"] and p.name:
                pointer = f"std::decay_t<decltype({mark}_{p.name})>"
                return f"std::remove_cv_t<std::remove_pointer_t<{pointer}>>"
        return ""

    def _parameters(
        self, one: Definition, given: list[str], explicit: int, names: dict[str, str], mark: str
    ) -> list[str]:
        made: list[str] = []
        deduced = {p.name for p in one.template[explicit:] if p.type_}
        for k, p in enumerate(one.parameters):
            value = given[k] if k < len(given) else p.default
            if not value:
                raise Refused(f"the arguments of {one.name}")
            if not p.name:
                continue
            by_name = "&" in p.type_ and "const" not in p.type_
            if by_name or _GROUPS & set(p.type_) or value in self.tiles:
                if not value.isidentifier():
                    raise Refused(f"{one.name} takes a reference")
                names[p.name] = value
                continue
            names[p.name] = f"{mark}_{p.name}"
            words = [names.get(w, w) for w in p.type_ if w != "&"]
            if deduced & set(p.type_):
                words = ["volatile auto *" if {"volatile", "*"} <= set(p.type_) else "auto"]
            made.append(f"{' '.join(words)} {names[p.name]} = {value};")
        return made

    def _returned(self, one: Definition, tree: Node) -> Node | None:
        last = tree.parts[-1] if tree.parts else None
        final = last if last is not None and one.body[last.first].text == "return" else None
        for node in tree.walk():
            if node is not final and node.kind == "jump" and one.body[node.first].text == "return":
                raise Refused(f"{one.name} returns early")
            if node.kind == "switch":
                raise Refused(f"{one.name} has a switch")
        return final

    def _locals(self, one: Definition, tree: Node, names: dict[str, str], mark: str) -> None:
        own = [one.body[d.name].text for n in tree.walk() for d in n.declared]
        for name in own:
            if names.setdefault(name, f"{mark}_{name}") != f"{mark}_{name}":
                raise Refused(f"{one.name} declares {name} twice")
        for node in tree.walk():
            words = {t.text for t in one.body[node.first : node.last + 1]}
            if node.kind == "declaration" and "__shared__" in words and "extern" not in words:
                self._shared(one, node, names)
        free = {
            t.text
            for before, t in zip(one.body, one.body[1:], strict=False)
            if t.kind == "name" and before.text not in (".", "->", "::")
        } - names.keys()
        if hidden := free & self.declared - {"threadIdx"}:
            raise Refused(f"{one.name} uses {sorted(hidden)[0]}, which the kernel declares too")
        for t in one.body:
            if t.text in self.facts.macros and t.kind == "name":
                meant = {m.text for m in self.facts.meaning([t])} - {t.text}
                if meant & names.keys():
                    raise Refused(f"a macro in {one.name} names its variables")

    def _shared(self, one: Definition, node: Node, names: dict[str, str]) -> None:
        """One variable for all calls of a function."""
        types = {p.name for p in one.template}
        words = [t.text for t in one.body[node.first : node.last + 1]]
        if types & set(words):
            if one.name in self._own:
                raise Refused(f"{one.name} is called twice and has shared variables of a template")
            self._own.add(one.name)
            return
        for d in node.declared:
            name = one.body[d.name].text
            names[name] = f"KwShared_{one.name}_{name}"
        key = (one.name, " ".join(words))
        self.shared[key] = self._said(one, node.first, node.last + 1, names)

    def _statements(
        self, one: Definition, tree: Node, end: int, names: dict[str, str]
    ) -> list[str]:
        made: list[str] = []
        for node in tree.parts:
            if node.first >= end:
                break
            text = self._said(one, node.first, node.last + 1, names)
            if text not in self.shared.values():
                made.append(text)
        return made

    def _said(self, one: Definition, a: int, b: int, names: dict[str, str]) -> str:
        """The tokens a to b of a body, with their lines if they are of the kernel's file."""
        known = one.line <= len(self.lines) and self.lines[one.line - 1] == one.said
        made: list[str] = []
        line, before = 0, -1
        for i in range(a, b):
            t = one.body[i]
            if t.start != before:
                made.append(" ")
            before = t.end
            if known and (now := one.line_of(t.start)) != line:
                made.append(f"/*@{now}*/")
                line = now
            member = i > 0 and one.body[i - 1].text in (".", "->", "::")
            made.append(t.text if member or t.kind != "name" else names.get(t.text, t.text))
        return "".join(made)
