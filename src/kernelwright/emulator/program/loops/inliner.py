"""Inlines device functions that contain barriers or warp-wide operations.

total = warp_sum(x);
    becomes float Kw1_v = x; for (...) Kw1_v += __shfl_down_sync(~0u, Kw1_v, Kw1_o);
    float Kw1 = Kw1_v; total = Kw1;
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..tokens import Token, angle_opening, closing, split
from .definitions import Definition, Parameter
from .parser import Node, Parser, Refused
from .preprocessor import Choice
from .program_index import ProgramIndex, is_mark

_FOLLOWED = 40  # calls in a kernel
#: Words that do not change the type of a value.
NO_TYPE = frozenset({"const", "volatile", "__restrict__", "__restrict", "&", "register"})
_QUALIFIERS = ("const", "volatile", "__restrict__", "&")
#: Arguments to which a reference may be bound: a variable, or a part of it.
_PLACE = re.compile(r"[A-Za-z_]\w*(?:\s*\[\s*\w+\s*\]|\s*\.\s*[A-Za-z_]\w*)*")
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
    """Inlines functions into one kernel.

    Attributes:
        shared: declarations of the functions' shared variables, one for all calls.
        types: types of the kernel's variables, of those that are values or pointers.
    """

    def __init__(
        self,
        program: ProgramIndex,
        declared: set[str],
        tiles: dict[str, str],
        lines: list[str],
        choice: Choice,
    ) -> None:
        self.program, self.declared, self.tiles, self.lines = program, declared, tiles, lines
        self.choice = choice
        self.types: dict[str, tuple[str, ...] | None] = {}
        self.shared: dict[tuple[str, ...], str] = {}
        self.count = 0
        self._own: set[str] = set()  # functions with shared variables of their template's types

    def code(self, all_: list[Token], call: Call, text: str) -> tuple[str, str]:
        """(statements, the name of the result) for a call in a text.

        Raises:
            Refused: the call cannot be inlined.
        """
        self.count += 1
        if self.count > _FOLLOWED:
            raise Refused(f"too many calls of functions in which threads synchronize ({call.name})")
        one = self._definition(call, text, all_)
        mark = f"Kw{self.count}"

        def source(span: tuple[int, int]) -> str:
            return text[all_[span[0]].start : all_[span[1] - 1].end] if span[0] < span[1] else ""

        names: dict[str, str] = {}
        explicit = [source(s) for s in call.explicit]
        arguments = [source(s) for s in call.arguments]
        statements = self._template(one, explicit, arguments, names, mark)
        statements += self._parameters(one, arguments, len(explicit), names, mark)
        tree = Parser(one.body).block(0)
        self._locals(one, tree, names, mark, explicit)
        body = _Body(self, one, names, mark)
        type_ = " ".join(names.get(t.text, t.text) for t in one.returns) or "auto"
        final = body.final(tree)
        if final is not None:
            statements += body.statements(n for n in tree.parts if n.first < final)
            value = body.value(tree.parts[-1]) if tree.parts else ""
            return " ".join(
                [*statements, f"{type_} {mark} = {value};" if value else ""]
            ), value and mark
        if type_ in ("auto", "decltype ( auto )"):
            raise Refused(f"{one.name} returns early")
        void = type_ == "void"
        statements += [f"{'' if void else f'{type_} {mark};'} {{", *body.early(tree.parts), "}"]
        return " ".join(statements), "" if void else mark

    def _definition(self, call: Call, text: str, all_: list[Token]) -> Definition:
        given = [text[all_[a].start : all_[b - 1].end] if a < b else "" for a, b in call.arguments]
        candidates = self._callable(self.program.definitions.get(call.name, []), given)
        if len(candidates) != 1:
            raise Refused(f"it calls {call.name}, which is defined several times, or in a class")
        one = candidates[0]
        if one.why:
            raise Refused(f"{call.name} has {one.why}")
        return one.decided(self.choice)

    def _callable(self, all_: list[Definition], given: list[str]) -> list[Definition]:
        """The overloads that a call with these arguments may select."""
        device = [d for d in all_ if d.device]
        fits = [
            d
            for d in (device or all_)
            if len(given) <= len(d.parameters)
            and all(p.default for p in d.parameters[len(given) :])
        ]
        if len(fits) < 2:
            return fits
        types = [self._type_of(g) for g in given]
        exact = [
            d
            for d in fits
            if not d.template
            and all(value_type(p) == t for p, t in zip(d.parameters, types, strict=False))
        ]
        return exact or fits

    def _type_of(self, argument: str) -> tuple[str, ...] | None:
        if argument.isidentifier():
            return self.types.get(argument)
        kinds = {r"\d+": "int", r"\d+\.\d*[fF]": "float", r"\d+\.\d*": "double"}
        return next(((t,) for form, t in kinds.items() if re.fullmatch(form, argument)), None)

    def _template(
        self,
        one: Definition,
        explicit: list[str],
        arguments: list[str],
        names: dict[str, str],
        mark: str,
    ) -> list[str]:
        """Declarations of the template's parameters as type aliases and constants, or the arguments
        that replace them."""
        declarations: list[str] = []
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
            declarations.append(f"{head} {value};")
        return declarations

    def _deduced(self, one: Definition, name: str, mark: str) -> str:
        """A template type deduced from the arguments for parameters T and T *."""
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
        declarations: list[str] = []
        deduced = {p.name for p in one.template[explicit:] if p.type_}
        for k, p in enumerate(one.parameters):
            value = given[k] if k < len(given) else p.default
            if not value:
                raise Refused(f"the arguments of {one.name}")
            if not p.name:
                continue
            by_name = "&" in p.type_ and "const" not in p.type_
            if by_name or _GROUPS & set(p.type_) or value in self.tiles:
                if not _PLACE.fullmatch(value):
                    raise Refused(f"{one.name} takes a reference")
                names[p.name] = value
                continue
            names[p.name] = f"{mark}_{p.name}"
            words = [names.get(w, w) for w in p.type_ if w != "&"]
            if deduced & set(p.type_):
                words = ["volatile auto *" if {"volatile", "*"} <= set(p.type_) else "auto"]
            declarations.append(f"{' '.join(words)} {names[p.name]} = {value};")
        return declarations

    def _locals(
        self,
        one: Definition,
        tree: Node,
        names: dict[str, str],
        mark: str,
        explicit: list[str],
    ) -> None:
        self.hoisted: set[int] = set()  # declarations that stand at the start of the kernel
        own = [one.body[d.name].text for n in tree.walk() for d in n.declared]
        for name in own:
            if names.setdefault(name, f"{mark}_{name}") != f"{mark}_{name}":
                raise Refused(f"{one.name} declares {name} twice")
        for node in tree.walk():
            words = {t.text for t in one.body[node.first : node.last + 1]}
            if node.kind == "declaration" and "__shared__" in words and "extern" not in words:
                self._shared(one, node, names, explicit)
        free = {
            t.text
            for before, t in zip(one.body, one.body[1:], strict=False)
            if t.kind == "name" and before.text not in (".", "->", "::")
        } - names.keys()
        if hidden := free & self.declared - {"threadIdx"}:
            raise Refused(f"{one.name} uses {sorted(hidden)[0]}, which the kernel declares too")
        for t in one.body:
            if t.text in self.program.macros and t.kind == "name":
                meant = {m.text for m in self.program.expanded([t])} - {t.text}
                if meant & names.keys():
                    raise Refused(f"a macro in {one.name} names its variables")

    def _shared(
        self, one: Definition, node: Node, names: dict[str, str], explicit: list[str]
    ) -> None:
        """One variable for all calls of a function, or of one instance of a template."""
        words = [t.text for t in one.body[node.first : node.last + 1]]
        its = [k for k, p in enumerate(one.template) if p.name in words]
        if any(k >= len(explicit) for k in its):
            if one.name in self._own:
                raise Refused(f"{one.name} is called twice and has shared variables of a template")
            self._own.add(one.name)
            return
        given = {one.template[k].name: explicit[k] for k in its}
        key = (one.name, " ".join(words), *given.values())
        number = [*self.shared, key].index(key)
        for d in node.declared:
            name = one.body[d.name].text
            names[name] = f"KwShared_{one.name}_{name}_{number}"
        self.shared[key] = self.source(one, node.first, node.last + 1, {**names, **given})
        self.hoisted.add(node.first)

    def source(self, one: Definition, a: int, b: int, names: dict[str, str]) -> str:
        """The text of a body's tokens a to b, with line numbers if the body is in the kernel's
        file."""
        known = one.line <= len(self.lines) and self.lines[one.line - 1] == one.line_text
        parts: list[str] = []
        line, before = 0, -1
        for i in range(a, b):
            t = one.body[i]
            if t.start != before:
                parts.append(" ")
            before = t.end
            if known and (now := one.line_of(t.start)) != line:
                parts.append(f"/*@{now}*/")
                line = now
            member = i > 0 and one.body[i - 1].text in (".", "->", "::")
            parts.append(t.text if member or t.kind != "name" else names.get(t.text, t.text))
        return "".join(parts)


class _Body:
    """The statements of an inlined function."""

    def __init__(self, by: Inliner, one: Definition, names: dict[str, str], mark: str) -> None:
        self.by, self.one, self.names, self.mark = by, one, names, mark

    def final(self, tree: Node) -> int | None:
        """Where the only `return` stands, at the end; or the end, if there is none."""
        last = tree.parts[-1] if tree.parts else None
        at = last.first if last is not None and self._returns(last.first) else tree.last
        return None if any(self._returns(i) for i in range(tree.first, at)) else at

    def _returns(self, i: int) -> bool:
        return self.one.body[i].text == "return"

    def value(self, node: Node) -> str:
        if not self._returns(node.first) or node.last == node.first + 1:
            return ""
        return self.by.source(self.one, node.first + 1, node.last, self.names)

    def statements(self, nodes: Iterable[Node]) -> list[str]:
        return [self._source(n.first, n.last + 1) for n in nodes if n.first not in self.by.hoisted]

    def _source(self, a: int, b: int) -> str:
        return self.by.source(self.one, a, b, self.names)

    def early(self, nodes: list[Node]) -> list[str]:
        """Statements with `return` in conditions: what follows a condition becomes its else branch.

        if (x) return a; ... return b;
            becomes if (x) { Kw1 = a; } else { ... Kw1 = b; }
        """
        statements: list[str] = []
        for i, node in enumerate(nodes):
            if not any(self._returns(k) for k in range(node.first, node.last + 1)):
                statements += self.statements([node])
            elif node.kind == "jump":
                value = self.value(node)
                return [*statements, f"{self.mark} = {value};" if value else ""]
            elif node.kind == "block":
                return [*statements, "{", *self.early([*node.parts, *nodes[i + 1 :]]), "}"]
            elif node.kind == "if":
                parts = [p.parts if p.kind == "block" else [p] for p in node.parts]
                parts += [[] for _ in range(2 - len(parts))]
                if not any(map(self._ends, parts)):
                    break
                rest = nodes[i + 1 :]
                yes, no = ([] if self._ends(p) else rest for p in parts)
                statements += [self._source(node.first, node.parts[0].first), "{"]
                statements += [*self.early([*parts[0], *yes]), "} else {"]
                return [*statements, *self.early([*parts[1], *no]), "}"]
            else:
                break
        else:
            return statements
        raise Refused(f"{self.one.name} returns early")

    def _ends(self, nodes: list[Node]) -> bool:
        """Whether statements return on every path."""
        last = nodes[-1] if nodes else None
        if last is None:
            return False
        if last.kind == "block":
            return self._ends(last.parts)
        if last.kind == "if" and len(last.parts) == 2:
            return all(self._ends([p]) for p in last.parts)
        return self._returns(last.first)


def value_type(p: Parameter) -> tuple[str, ...]:
    """The type of a parameter's value."""
    return tuple(w for w in p.type_ if w not in NO_TYPE)
