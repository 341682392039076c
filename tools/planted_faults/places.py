"""Where the rules apply in a program, and its text with one fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from .rules import REACHED, RULES, Rule

_UNUSED = re.compile(r"//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*", re.M | re.S)


@dataclass(frozen=True)
class Mutant:
    """A fault at one place: the program's text with it, and with the rule's probe instead, or with
    one where the function begins."""

    rule: Rule
    line: int
    column: int
    text: str
    probe: str | None


def mutants(text: str) -> list[Mutant]:
    """All of them, in the order of the rules and of the text."""
    bare = _UNUSED.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    spans = list(_device(bare))
    made: list[Mutant] = []
    for rule in RULES:
        for m in rule.pattern.finditer(bare):
            inside = any(start <= m.start() < end for start, end in spans)
            by = rule.by(m) if callable(rule.by) else m.expand(rule.by)
            if by is None or inside != rule.device:
                continue
            lead = len(m[0]) - len(m[0].lstrip())
            start = m.start() + lead

            def edited(by: str, start: int = start, end: int = m.end()) -> str:
                return text[:start] + by + text[end:]

            probe = None
            if rule.probe:
                probe = edited(m.expand(rule.probe))
            elif inside:
                body = next(start for start, end in spans if start <= m.start() < end) + 1
                probe = f'{text[:body]} printf("{REACHED}");{text[body:]}'
            line = bare.count("\n", 0, start) + 1
            column = start - bare.rfind("\n", 0, start)
            made.append(Mutant(rule, line, column, edited(by), probe))
    return made


def _device(bare: str) -> Iterator[tuple[int, int]]:
    """The bodies of functions for the device."""
    for m in re.finditer(r"\b__(?:global|device)__\b", bare):
        depth, at = 0, m.end()
        while at < len(bare) and (depth or bare[at] not in ";{="):
            depth += (bare[at] == "(") - (bare[at] == ")")
            at += 1
        if at < len(bare) and bare[at] == "{":
            yield at, _closing(bare, at)


def _closing(bare: str, at: int) -> int:
    depth = 0
    for i in range(at, len(bare)):
        depth += (bare[i] == "{") - (bare[i] == "}")
        if not depth:
            return i
    return len(bare)
