"""asm statements of a preprocessed unit, replaced by C++."""

from __future__ import annotations

import re

from kernelwright.support.errors import CompileError

from ..program import asm
from ..program.tokens import text_of, tokens
from .instructions import Names, Refused, cpp

#: What the emulator's headers make of the word asm.
WORD = "kw_inline_ptx_has_no_cpu_body"
#: __shared__ alignas(1024) char x[8]: in C++, an attribute does not stand after thread_local.
_ALIGNED = re.compile(r"((?:extern[ ])?\bthread_local)[ ](alignas\([^()]*(?:\([^()]*\)[^()]*)*\))")
_MARKER = re.compile(r'^#(?:line)? (\d+) "([^"\n]*)"', re.M)


def translated(text: str) -> str:
    """The unit with C++ in place of its asm statements.

    Raises:
        CompileError: naming an instruction that is not emulated, and its line.
    """
    text = _ALIGNED.sub(r"\2 \1", text)
    all_ = tokens(text)
    parts: list[str] = []
    at = 0
    for i, token in enumerate(all_):
        if token.text != WORD or token.start < at:
            continue
        end = _end(all_, i)
        if end is None:
            continue
        parts += [text[at : token.start], _statement(text, token.start, end)]
        at = end
    return "".join([*parts, text[at:]])


def _end(all_, i: int) -> int | None:
    one = asm.asm_at(all_, i)
    return all_[one.last].end if one else None


def _statement(text: str, start: int, end: int) -> str:
    own = text[start:end]
    one = asm.asm_at(tokens(own), 0)
    assert one
    code = _text(one.inside[slice(*one.code)])
    values = [text_of(own, one.inside, *value) for _, value in one.operands]
    try:
        body = cpp(code, Names(len(values)))
    except Refused as e:
        raise CompileError(f"{_place(text, start)}: PTX `{e}` is not emulated") from None
    taken = "".join(f"auto &&kw_{i} = {v};" for i, v in enumerate(values))
    fence = '__asm__ volatile("" ::: "memory");'
    lines = "\n" * (own.count("\n") - taken.count("\n"))
    return f"do {{ {taken} {fence} {body} {fence} }} while (0){lines}"


def _text(strings) -> str:
    """The instructions, from the string literals of a statement."""
    joined = "".join(t.text[1:-1] for t in strings)
    joined = re.sub(r"\\[ntr]", "\n", joined)
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", joined, flags=re.S)


def _place(text: str, start: int) -> str:
    markers = list(_MARKER.finditer(text, 0, start))
    if not markers:
        return "asm"
    last = markers[-1]
    line = int(last[1]) + text.count("\n", last.end(), start) - 1
    return f"{last[2].rpartition('/')[2]}:{line}"
