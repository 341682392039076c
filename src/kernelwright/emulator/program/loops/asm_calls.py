"""Replaces asm statements of kernels by calls whose operands the analysis can read.

    asm volatile("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        becomes KwPtx("ex2.approx.f32 %0, %1;", KwTo("=f", &y), KwFrom("f", (x)));
    asm volatile("ldmatrix.sync..." : "=r"(a[0]), "=r"(a[1]) : "r"(at));
        becomes KwWarpAsm("ldmatrix.sync...", KwTo("=r", &a[0]), KwTo("=r", &a[1]),
        KwFrom("r", (at)));

Macros with asm statements are expanded.
"""

from __future__ import annotations

import re

from .. import asm
from ..tokens import Token, closing, text_of, tokens
from .definitions import code_of
from .inliner import call_at
from .parser import Refused
from .program_index import ProgramIndex

_BARRIER = re.compile(
    r"\s*(?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?\s+0\s*;?\s*(?:\\n|\\t|\s)*"
)
_PASSES = 8  # of macros in macros


def with_calls(text: str, program: ProgramIndex) -> str:
    """The body of a kernel with calls in place of its asm statements.

    Raises:
        Refused: loops do not support an instruction that affects or waits for other threads.
    """
    all_, _directives = code_of(text)
    for _ in range(_PASSES):
        expanded = _expanded(text, all_, program)
        if expanded == text:
            break
        text = expanded
        all_, _directives = code_of(text)
    parts, at = [], 0
    for i, t in enumerate(all_):
        if t.kind == "name" and t.text in asm.NAMES:
            one, whom = asm.asm_at(all_, i), asm.instruction_scope(all_, i)
            if one is not None and _is_barrier(one):
                parts += [text[at : t.start], "__syncthreads()"]
                at = all_[one.last].end
                continue
            if one is None or whom not in ("thread", "warp"):
                raise Refused(f"the instruction {whom}")
            name = "KwPtx" if whom == "thread" else "KwWarpAsm"
            parts += [text[at : t.start], f"{name}({_arguments(text, one)})"]
            at = all_[one.last].end
    return "".join([*parts, text[at:]])


def _is_barrier(one: asm.Asm) -> bool:
    """Whether a statement is asm("bar.sync 0;"), which is __syncthreads."""
    strings = "".join(t.text[1:-1] for t in one.inside[slice(*one.code)])
    return _BARRIER.fullmatch(strings) is not None


def _arguments(text: str, one: asm.Asm) -> str:
    arguments = [text_of(text, one.inside, *one.code)]
    for constraint, (first, last) in one.operands:
        kind = text_of(text, one.inside, *constraint)
        if kind[1:2] not in ("=", "+"):
            arguments.append(f"KwFrom({kind}, {text_of(text, one.inside, first, last)})")
            continue
        while one.inside[first].text == "(" and closing(one.inside, first) == last - 1:
            first, last = first + 1, last - 1
        arguments.append(f"KwTo({kind}, &{text_of(text, one.inside, first, last)})")
    return ", ".join(arguments)


def _expanded(text: str, all_: list[Token], program: ProgramIndex) -> str:
    """The text with macros expanded that contain asm statements."""
    pieces, at = [], 0
    for i, t in enumerate(all_):
        macro = program.written.get(t.text) if t.kind == "name" and t.start >= at else None
        if macro is None or not any(m.text in asm.NAMES for m in program.expanded([t])):
            continue
        call, (parameters, body) = call_at(all_, i), macro
        given = [] if call is None else [text_of(text, all_, *a) for a in call.arguments]
        inside = tokens(body)
        if call is None or len(given) != len(parameters) or any("#" in x.text for x in inside):
            raise Refused(f"the macro {t.text}")
        by = dict(zip(parameters, given, strict=True))
        parts, end = [], 0
        for x in inside:
            if x.kind == "name" and x.text in by:
                parts += [body[end : x.start], by[x.text]]
                end = x.end
        pieces += [text[at : t.start], *parts, body[end:]]
        at = all_[call.last].end
    return "".join([*pieces, text[at:]])
