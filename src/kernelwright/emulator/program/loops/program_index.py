"""An index of a program's files: the macros, functions, types and groups that its kernels name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise

from .. import asm, lockstep
from ..cuda_builtins import BIT_CAST, TABLE, pattern, rows
from ..tokens import Token, angle_opening, closing, opening, tokens
from .definitions import Definition, definitions

_SYNCHRONIZING_KINDS = ("warp", "barrier", "fence", "wait", "volatile", "asm", "group", "library",
                        "unsupported")  # fmt: skip
#: A call of one of these synchronizes with other threads, waits for them, or relies on their order.
SYNCHRONIZING = pattern(row for row in TABLE if row.kind in _SYNCHRONIZING_KINDS or row.waits)
#: Synchronization that loops support.
SYNC_POINT = pattern(row for row in rows("warp", "barrier", "group", "volatile") if row.loops)
_ATOMIC = pattern(rows("atomic"))
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(\([^()]*\))?((?:\\\r?\n|[^\n])*)", re.M)
_ALIAS = re.compile(r"\bnamespace\s+(\w+)\s*=\s*cooperative_groups\b")
_CLASS = re.compile(r"\b(?:struct|class|union)\s+(?:\w+\s*\([^()]*\)\s*)*(\w+)")
_CONSTANT = re.compile(r"\b(?:const|constexpr)\b[\w\s:<>]*?\b(\w+)\s*=|\benum\b[^{;]*\{([^}]*)\}")
_TYPE = re.compile(r"\busing\s+(\w+)\s*=|\btypedef\b[^;{}()]*?(\w+)\s*;")
_STANDS_FOR = re.compile(r"\busing\s+(\w+)\s*=([^;]*);|\btypedef\b([^;{}()]*?)(\w+)\s*;")

#: Functions whose result depends only on their arguments, not on the thread that calls them.
PURE = pattern(
    row
    for row in rows("math", "thread", "fundamental", "type", "keyword", "atomic", "generated")
    if not row.loops
)
#: Those of them whose value is the same for all threads if their arguments are.
UNIFORM = pattern(row for row in TABLE if row.uniform)

_APART = Token("mark", ";", 0, 0)


def is_mark(t: Token, *texts: str) -> bool:
    return t.kind == "mark" and t.text in texts


class ProgramIndex:
    """The names in all files of a program."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = tuple(texts)

    @cached_property
    def macros(self) -> dict[str, list[list[Token]]]:
        """The replacement list of each macro; several if it is defined several times."""
        macros: dict[str, list[list[Token]]] = {}
        for text in self._texts:
            for m in _DEFINE.finditer(text):
                parameters = set(re.findall(r"\w+", m[2] or ""))
                body = [t for t in tokens(m[3]) if t.text not in parameters]
                macros.setdefault(m[1], []).append(body)
        return macros

    @cached_property
    def written(self) -> dict[str, tuple[list[str], str]]:
        """Parameters and text of the macros that are defined once and have parameters."""
        macros: dict[str, tuple[list[str], str]] = {}
        for m in (m for text in self._texts for m in _DEFINE.finditer(text)):
            if m[2] and len(self.macros[m[1]]) == 1:
                parameters = [p.strip() for p in m[2][1:-1].split(",") if p.strip()]
                macros[m[1]] = parameters, re.sub(r"\\\r?\n", " ", m[3])
        return macros

    @cached_property
    def synchronizes(self) -> bool:
        """Whether threads synchronize anywhere in the program."""
        return any(SYNC_POINT.search(text) for text in self._texts)

    @cached_property
    def volatile_types(self) -> frozenset[str]:
        """Names of types and macros that contain `volatile`."""
        return lockstep.volatile_words(self._texts) - set(lockstep.VOLATILE)

    @cached_property
    def volatile_outside(self) -> tuple[frozenset[str], frozenset[str]]:
        """Volatile variables outside of functions, and volatile members."""
        words = lockstep.volatile_words(self._texts)
        variables, members = set[str](), set[str]()
        for text in self._texts if words else ():
            declared = lockstep.volatile_names_outside(tokens(text), words)
            variables |= declared[0]
            members |= declared[1]
        return frozenset(variables), frozenset(members)

    @cached_property
    def groups(self) -> frozenset[str]:
        """Names of the namespace cooperative_groups."""
        names = (m[1] for text in self._texts for m in _ALIAS.finditer(text))
        return frozenset({"cooperative_groups", *names})

    @cached_property
    def types(self) -> frozenset[str]:
        """Names of types by typedef and using."""
        return frozenset(m[1] or m[2] for text in self._texts for m in _TYPE.finditer(text))

    @cached_property
    def classes(self) -> frozenset[str]:
        """Names of the program's classes, whose constructors may have side effects."""
        return frozenset(m[1] for text in self._texts for m in _CLASS.finditer(text))

    @cached_property
    def constants(self) -> frozenset[str]:
        """Names that are declared const, constexpr or in an enum somewhere."""
        names: set[str] = set()
        for text in self._texts:
            for m in _CONSTANT.finditer(text):
                names.update([m[1]] if m[1] else re.findall(r"[A-Za-z_]\w*", m[2]))
        return frozenset(names)

    @cached_property
    def functions(self) -> dict[str, list[list[Token]]]:
        """Parameters and bodies of the functions of each name (operators under `operator`), without
        functions that only the host can call."""
        functions: dict[str, list[list[Token]]] = {}
        for text in self._texts:
            all_ = tokens(text)
            for i, t in enumerate(all_):
                if not is_mark(t, "{") or i == 0:
                    continue
                name, start = _function(all_, i)
                end = closing(all_, i) if name else None
                if name and end is not None and not self._of_the_host(all_, start, end):
                    functions.setdefault(name, []).append(all_[start : end + 1])
        return functions

    def _of_the_host(self, all_: list[Token], start: int, end: int) -> bool:
        """Whether a function calls the host API or launches kernels and has no qualifier (itself or
        by a macro) by which kernels may call it."""
        first = start
        while first and all_[first - 1].text not in (";", "{", "}"):
            first -= 1
        head = {t.text for t in all_[first:start]}
        if head & {"__device__", "__global__", "constexpr", *self.macros}:
            return False
        body = all_[start : end + 1]
        return has_launch(body) or any(re.fullmatch(r"cuda[A-Z]\w+", t.text) for t in body)

    @cached_property
    def definitions(self) -> dict[str, list[Definition]]:
        """The functions of each name that are not members."""
        by_name: dict[str, list[Definition]] = {}
        for text in self._texts:
            for one in definitions(text, _function):
                by_name.setdefault(one.name, []).append(one)
        return by_name

    @cached_property
    def synchronizing_functions(self) -> frozenset[str]:
        """Functions that contain sync points, or call functions that do."""
        return frozenset(
            name
            for name in self.definitions
            if any(
                synchronizing_name(without_retry_loops(tokens_)) is not None
                for other, tokens_ in self.reached([Token("name", name, 0, 0)]).items()
                if other != "operator"
            )
        )

    @cached_property
    def by_value(self) -> frozenset[str]:
        """Functions of the program that take no references."""
        plain_functions: dict[str, bool] = {}
        for name, all_ in ((n, body) for n, bodies in self.functions.items() for body in bodies):
            parameters = all_[: next(i for i, t in enumerate(all_) if is_mark(t, "{"))]
            plain = all(t.text != "&" for t in parameters)
            plain_functions[name] = plain_functions.get(name, True) and plain
        return frozenset(n for n, plain in plain_functions.items() if plain)

    @cached_property
    def formulas(self) -> frozenset[str]:
        """Functions of the program whose body only returns an expression of their parameters, so
        that equal arguments give equal results."""
        is_formula: dict[str, bool] = {}
        for name, all_ in ((n, body) for n, bodies in self.functions.items() for body in bodies):
            body = next(i for i, t in enumerate(all_) if is_mark(t, "{"))
            first, words = all_[body + 1].text, [t.text for t in all_[body:-1]]
            before = [t.text for t in all_[:body]]
            single = first == "return" and words.count(";") == 1 and "&" not in before
            marks = "".join(words)
            changed = re.search(r"(?<![=!<>])=(?!=)|<<=|>>=|\[|->", marks) is not None
            given = {t.text for t in all_[:body] if t.kind == "name"}
            own = (t.text for t in all_[body + 2 : -1] if t.kind == "name")
            known = all(w in given or UNIFORM.fullmatch(w) for w in own)
            steps = any(a == b and a in "+-" for a, b in pairwise(words))
            is_formula[name] = (
                is_formula.get(name, True) and single and known and not changed and not steps
            )
        return frozenset(n for n, plain in is_formula.items() if plain)

    @cached_property
    def synchronizing_types(self) -> dict[str, Token]:
        """Aliases of types of SYNCHRONIZING, such as cub's classes, and the token of that type."""
        types: dict[str, Token] = {}
        for text in self._texts:
            for m in _STANDS_FOR.finditer(text):
                its = (t for t in tokens(m[2] or m[3]) if t.kind == "name")
                if name := next((t for t in its if SYNCHRONIZING.fullmatch(t.text)), None):
                    types[m[1] or m[4]] = name
        return types

    def expanded(
        self, all_: Iterable[Token], seen: frozenset[str] = frozenset()
    ) -> Iterator[Token]:
        """The tokens; before each name of a macro or an alias, what it stands for."""
        for t in all_:
            if t.kind == "name" and t.text in self.macros and t.text not in seen:
                for one in self.macros[t.text]:
                    yield _APART
                    yield from self.expanded(one, seen | {t.text})
                    yield _APART
            elif t.kind == "name" and t.text in self.synchronizing_types:
                yield from (_APART, self.synchronizing_types[t.text], _APART)
            yield t

    def reached(self, all_: Iterable[Token]) -> dict[str, list[Token]]:
        """The functions of the program that code may call, directly or indirectly, and their
        tokens."""
        functions: dict[str, list[Token]] = {}
        left = [list(self.expanded(all_))]
        while left:
            for name in {t.text for t in left.pop() if t.kind == "name"} | {"operator"}:
                if name in self.functions and name not in functions:
                    bodies = [t for body in self.functions[name] for t in body]
                    functions[name] = list(self.expanded(bodies))
                    left.append(functions[name])
        return functions


def has_atomic(all_: Iterable[Token]) -> bool:
    return any(t.kind == "name" and _ATOMIC.fullmatch(t.text) for t in all_)


def is_retry_loop(all_: list[Token], first: int, last: int) -> bool:
    """Whether all_[first:last] is a loop that only repeats an atomicCAS until it succeeds. Such a
    loop ends without progress of other threads.

    do { assumed = old; old = atomicCAS(p, assumed, f(assumed)); } while (assumed != old);
    """
    words = [t.text for t in all_[first:last]]
    if words[:1] != ["do"] or words.count("atomicCAS") != 1:
        return False
    at = words.index("atomicCAS")
    old = words[at - 2] if words[at - 1] == "=" else ""
    assumed = next((a for a, b, c in zip(words, words[1:], words[2:], strict=False)
                    if (b, c) == ("=", old)), "")  # fmt: skip
    if not old.isidentifier() or not assumed.isidentifier():
        return False
    condition = words[len(words) - words[::-1].index("while") :]
    names = {w for w in condition if w.isidentifier() and not BIT_CAST.fullmatch(w)}
    return names == {old, assumed} and "==" not in "".join(condition)


def without_retry_loops(all_: list[Token]) -> list[Token]:
    """Tokens without the loops that only repeat an atomicCAS."""
    rest: list[Token] = []
    i = 0
    while i < len(all_):
        if all_[i].text == "do" and i + 1 < len(all_) and all_[i + 1].text == "{":
            end = closing(all_, i + 1)
            paren = end + 2 if end is not None else len(all_)
            last = closing(all_, paren) if paren < len(all_) else None
            if last is not None and is_retry_loop(all_, i, last + 1):
                i = last + 1
                continue
        rest.append(all_[i])
        i += 1
    return rest


def has_launch(all_: list[Token]) -> bool:
    return any([t.text for t in all_[i : i + 3]] == ["<", "<", "<"] for i in range(len(all_)))


def synchronizing_name(all_: Iterable[Token]) -> str | None:
    """A name by which code synchronizes with other threads or waits for them, or None."""
    all_ = list(all_)
    for i, t in enumerate(all_):
        if t.kind != "name" or not SYNCHRONIZING.fullmatch(t.text):
            continue
        # volatile of asm volatile
        at = i - 1 if i and t.text in lockstep.VOLATILE and all_[i - 1].text in asm.NAMES else i
        if all_[at].text not in asm.NAMES or asm.instruction_scope(all_, at) != "thread":
            return t.text
    return None


def called_names(all_: list[Token]) -> set[str]:
    """Names of called functions; `?` for a call of another expression."""
    names: set[str] = set()
    for i, t in enumerate(all_):
        if not is_mark(t, "(") or i == 0:
            continue
        before = all_[i - 1]
        if before.text == ">":
            start = angle_opening(all_, i - 1)
            before = all_[start - 1] if start else before
        if before.kind == "name":
            names.add(before.text)
        elif before.text == ")":  # a cast, mostly
            start = opening(all_, i - 1)
            inside = all_[start + 1 : i - 1] if start is not None else []
            plain = all(c.kind == "name" or c.text in ("*", "::", "<", ">", "&") for c in inside)
            names.update({c.text for c in inside if c.kind == "name"} if plain else {"?"})
        elif before.text == "]":
            names.add("?")
    return names


def is_binary(all_: list[Token], i: int) -> bool:
    before = all_[i - 1]
    return (before.kind in ("name", "number") and before.text != "return") or before.text in (
        ")",
        "]",
    )


def is_changed(all_: list[Token], i: int) -> bool:
    """Whether the name at `i` is assigned to, incremented or decremented."""

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
    if text(i - 1) == "*" and not is_binary(all_, i - 1):  # what it points to
        return False
    if text(k) == "=":
        return text(k + 1) != "=" or not near(k + 1)
    if text(k) in ("+", "-", "*", "/", "%", "&", "|", "^") and text(k + 1) == "=":
        return near(k + 1)
    shift = text(k) in ("<", ">") and text(k + 1) == text(k) and text(k + 2) == "="
    return shift and near(k + 1) and near(k + 2)


def _function(all_: list[Token], at: int) -> tuple[str, int]:
    """The name of the function whose body opens at `at` (or ""), and the ( of its parameters."""
    i = at - 1
    while i > 0 and all_[i].text in ("const", "noexcept", "override", "mutable"):
        i -= 1
    depth = 0
    while i > 0:  # back to the parameters, over an initializer list or a return type
        text = all_[i].text
        if text in (";", "{", "}", "=") and depth == 0:
            break
        depth += (text in (")", "]")) - (text in ("(", "["))
        if text == "(" and depth == 0:
            name = all_[i - 1]
            if "operator" in [t.text for t in all_[max(0, i - 3) : i]]:
                return "operator", i
            if name.text in ("decltype", "noexcept"):  # behind the parameters
                i -= 2
                continue
            if name.kind != "name" or name.text in ("if", "for", "while", "switch", "constexpr"):
                break
            return name.text, i
        i -= 1
    return "", at
