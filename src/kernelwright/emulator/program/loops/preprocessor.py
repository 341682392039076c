"""Conditions of the preprocessor in kernels and functions: one variant of the text for each
combination of their outcomes.

#if DIAG
  a();
#else
  b();
#endif
    becomes, if the choice for ("DIAG",) is 0:  a();
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from .parser import Refused

#: The conditions of #if, #elif and so on up to #endif, as expressions.
Chain = tuple[str, ...]
#: Of each chain, the part that is compiled: its number, or that of #else.
Choice = Mapping[Chain, int]

_LINE = re.compile(r"(?:\\\r?\n|[^\n])*\n?")
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif|pragma)\b(.*)", re.S)
_ANY = re.compile(r"[ \t]*#")
_WAYS = 8  # of one kernel


class Undecided(Exception):
    """A chain for which a choice has no outcome."""

    def __init__(self, chain: Chain) -> None:
        super().__init__()
        self.chain = chain


@dataclass
class _Group:
    chain: list[str]
    parts: list[list[str | _Group]]


def resolved(text: str, choice: Choice) -> str:
    """A text without the parts that are not compiled, with all offsets unchanged.

    Raises:
        Undecided: the choice lacks one of its chains. Refused: it has other directives.
    """
    return "".join(_chosen(_parse(text), choice))


def _parse(text: str) -> list[str | _Group]:
    whole: list[str | _Group] = []
    open_: list[_Group] = []
    now = whole
    for line in _LINE.findall(text):
        m = _DIRECTIVE.match(line)
        blank = _space(line)
        if m is None or m[1] == "pragma":
            if m is None and _ANY.match(line):
                raise Refused("directives of the preprocessor in it")
            now.append(line)
            continue
        word, rest = m[1], _plain(m[2])
        if word in ("if", "ifdef", "ifndef"):
            group = _Group([_condition(word, rest)], [[]])
            now += [blank, group]
            open_.append(group)
        elif not open_:
            raise Refused("a part of a condition of the preprocessor")
        elif word == "endif":
            open_.pop().parts[-1].append(blank)
        else:
            if word == "elif":
                open_[-1].chain.append(rest)
            open_[-1].parts[-1].append(blank)
            open_[-1].parts.append([])
        now = open_[-1].parts[-1] if open_ else whole
    if open_:
        raise Refused("a part of a condition of the preprocessor")
    return whole


def _space(line: str) -> str:
    return re.sub(r"[^\n]", " ", line)


def _plain(condition: str) -> str:
    without = re.sub(r"\\\r?\n|/\*.*?\*/|//.*", " ", condition, flags=re.S)
    return " ".join(without.split())


def _condition(word: str, rest: str) -> str:
    if word == "if":
        return rest
    name = rest.split()[0] if rest else ""
    return f"defined({name})" if word == "ifdef" else f"!defined({name})"


def _chosen(parts: list[str | _Group], choice: Choice) -> Iterator[str]:
    for p in parts:
        if isinstance(p, str):
            yield p
            continue
        chain = tuple(p.chain)
        if chain not in choice:
            raise Undecided(chain)
        for i, part in enumerate(p.parts):
            yield from _chosen(part, choice) if i == choice[chain] else _blank(part)


def _blank(parts: list[str | _Group]) -> Iterator[str]:
    for p in parts:
        if isinstance(p, str):
            yield _space(p)
        else:
            for part in p.parts:
                yield from _blank(part)


def expression(choice: Choice) -> str:
    """The condition of the preprocessor under which the outcomes are those of a choice."""
    terms: list[str] = []
    for chain, part in choice.items():
        terms += [f"!({c})" for c in chain[:part]]
        terms += [f"({c})" for c in chain[part : part + 1]]
    return " && ".join(terms)


def variants(
    write: Callable[[Choice], str], macros: Collection[str]
) -> tuple[list[tuple[str, str]], str | None]:
    """The code of a kernel for each combination of outcomes of its conditions.

    Args:
        write: the code for a choice. Raises Undecided for a chain that the choice lacks, and
            Refused if there is no such code.
        macros: names that the program defines somewhere. Other macros are taken as undefined; if
            one is defined, the compiler skips the code.

    Returns:
        pairs of a condition of the preprocessor (empty: always) and the code; if there are none,
        the reason.
    """
    results: list[tuple[str, str]] = []
    why: str | None = None
    left: list[dict[Chain, int]] = [{}]
    while left and len(results) < _WAYS:
        choice = left.pop()
        try:
            text = write(choice)
        except Undecided as e:
            parts = _likely(e.chain, macros)
            left += [{**choice, e.chain: k} for k in reversed(parts)]
        except Refused as e:
            why = why or str(e)
        else:
            results.append((expression(choice), text))
            if not choice:
                break
    return results, None if results else why or "directives of the preprocessor in it"


def _likely(chain: Chain, macros: Collection[str]) -> list[int]:
    """The parts of a chain that may be compiled."""
    parts: list[int] = []
    for i, condition in enumerate(chain):
        m = re.fullmatch(r"(!?)\s*defined\s*\(?\s*(\w+)\s*\)?", condition)
        if condition.strip() in ("0", "1"):
            holds: bool | None = condition.strip() == "1"
        elif m is None or m[2] in macros or m[2].startswith("_"):
            holds = None
        else:
            holds = bool(m[1])
        if holds is not False:
            parts.append(i)
        if holds:
            return parts
    return [*parts, len(chain)]
