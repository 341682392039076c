"""asm statements: their parts, and which of their instructions concern one thread only."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from .cuda_builtins import names_of
from .tokens import Token, closing, split, text_of, tokens

NAMES = names_of("asm")
#: Stands for asm where macros make operands: the statement is read after the preprocessor.
LATER = "KwAsm"
_QUALIFIERS = names_of("volatile") | {"inline"}

#: Instructions whose result depends on nothing but the values and the memory of their thread.
_OWN = re.compile(
    r"""(?:add|sub|mul|mul24|mad|mad24|fma|div|rem|min|max|neg|abs|rcp|sqrt|rsqrt|ex2|lg2|sin|cos
      |tanh|and|or|xor|not|cnot|shl|shr|shf|sad|popc|clz|brev|bfind|copysign|mov|setp|set|selp|slct
      |lop3|prmt|bfe|bfi|dp2a|dp4a|cvt|cvta|isspacep|testp)(?:\.[\w:]+)*""",
    re.X,
)
_MEMORY = re.compile(
    r"""(?:prefetchu?|createpolicy|applypriority|discard)(?:\.[\w:]+)*
      | (?:ld|ldu|st)(?:\.(?!volatile|acquire|release|relaxed|mmio|async|bulk|shared::cl)[\w:]+)*
      | cp\.async\.(?:c[ag]\.[\w.:]+|commit_group|wait_group|wait_all)""",
    re.X,
)
#: Instructions that all lanes of a warp execute together, each with operands of its own.
_OF_A_WARP = re.compile(r"(?:ldmatrix|stmatrix|movmatrix|mma)\.sync\.[\w.:]+")


@dataclass(frozen=True)
class Asm:
    """A statement: `last`, its closing bracket; the tokens of its text; its operands as spans of a
    constraint and of a value in brackets, in a list of tokens of its own."""

    last: int
    inside: list[Token]
    code: tuple[int, int]
    operands: tuple[tuple[tuple[int, int], tuple[int, int]], ...]


def asm_at(all_: list[Token], at: int) -> Asm | None:
    """The statement whose first word stands at `at`; None for asm("name")."""
    i = at + 1
    while i < len(all_) and all_[i].text in _QUALIFIERS:
        i += 1
    end = closing(all_, i) if i < len(all_) and all_[i].text == "(" else None
    if end is None or (end == i + 2 and re.fullmatch(r'"\w*"', all_[i + 1].text)):
        return None
    inside = _with_single_colons(all_[i : end + 1])
    pieces = split(inside, 1, len(inside) - 1, ":")
    operands = [o for first, last in pieces[1:3] for o in _operands(inside, first, last)]
    return Asm(end, inside, pieces[0], tuple(operands))


def _operands(
    all_: list[Token], first: int, last: int
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Those of "=r"(x), "r"(y); nvcc does not need the commas."""
    operands: list[tuple[tuple[int, int], tuple[int, int]]] = []
    at = first
    while at < last:
        if all_[at].text == ",":
            at += 1
            continue
        paren = next((k for k in range(at, last) if all_[k].text == "("), last)
        end = closing(all_, paren) if paren < last else None
        end = last if end is None else end + 1
        operands.append(((at, paren), (paren, end)))
        at = end
    return operands


def built_by_macros(one: Asm, macros: Set[str]) -> bool:
    """Whether macros may make some of a statement's operands.

    Args:
        macros: the program's own that have parameters.
    """
    for (first, paren), (_, end) in one.operands:
        constraint = one.inside[first:paren]
        if paren == end or any(t.kind == "mark" or t.text in macros for t in constraint):
            return True
    code = one.inside[slice(*one.code)]
    return not one.operands and any(t.kind == "name" for t in code)


def statement(one: Asm, text: str, place: str) -> str:
    """The call of the runtime that executes a statement of a text.

    Args:
        place: C++ expressions for its file and its line.
    """
    code = text_of(text, one.inside, *one.code)
    if code.rpartition("\n")[2].lstrip().startswith("#"):  # a directive ends with its line
        code += "\n"
    parts = [f"kw::ptx::statement([] {{ return {code}; }}, {place}"]
    for constraint, value in one.operands:
        its = (text_of(text, one.inside, *part) for part in (constraint, value))
        parts.append(f"kw::ptx::operand({', '.join(its)})")
    return ", ".join(parts) + ")"


_LATER = re.compile(rf"\b(?:{LATER}|asm)\b")
#: A line of the preprocessor's output that says which line of which file follows.
_MARKER = re.compile(r'^# \d+ "([^"\n]*)".*\n', re.M)
#: libcu++'s functions for PTX instructions, whose asm statements are a program's.
PTX = "/cuda/__ptx/"
_OF_BRACKETS = re.compile(r'"(?:\\.|[^"\\\n])*"|[()]')


def preprocessed(text: str) -> str:
    """The preprocessor's output with calls in place of the statements that were left to it
    (`LATER`) and of those of libcu++'s functions (`PTX`)."""
    parts: list[str] = []
    at = 0
    for word in _LATER.finditer(text):
        if word.start() < at or (word[0] != LATER and not _of_libcu(text, word.start())):
            continue
        end = _end(text, word.end())
        own = text[word.start() : end]
        markers = list(_MARKER.finditer(own))
        whole = _MARKER.sub("", own)
        one = asm_at(tokens(whole), 0)
        if one is None:
            continue
        call = statement(one, whole, "__builtin_FILE(), __builtin_LINE()").replace("\n", " ")
        after = f"\n{markers[-1][0]}" if markers else ""
        lines = own.count("\n", markers[-1].end() if markers else 0)
        parts += [text[at : word.start()], call, after, "\n" * lines]
        at = end
    return "".join([*parts, text[at:]])


def _of_libcu(text: str, at: int) -> bool:
    start = max(text.rfind("\n# ", 0, at), 0)
    return PTX in text[start : text.find("\n", start + 1)]


def _end(text: str, at: int) -> int:
    """Of the brackets that open after `at`."""
    depth = 0
    for m in _OF_BRACKETS.finditer(text, at):
        depth += (m[0] == "(") - (m[0] == ")")
        if depth == 0 and m[0] == ")":
            return m.end()
    return len(text)


def _with_single_colons(all_: list[Token]) -> list[Token]:
    """In no bracket, :: is an empty list between two colons."""
    split_tokens: list[Token] = []
    depth = 0
    for t in all_:
        if t.kind == "mark":
            depth += (t.text in "([{") - (t.text in ")]}")
            if t.text == "::" and depth == 1:
                split_tokens.append(Token("mark", ":", t.start, t.start + 1))
                split_tokens.append(Token("mark", ":", t.end - 1, t.end))
                continue
        split_tokens.append(t)
    return split_tokens


def instruction_scope(all_: list[Token], at: int) -> str:
    """Whom the instructions of the statement at `at` concern: "thread", "warp" if one of them is of
    a warp and the others only compute; or else the instruction that is neither."""
    one = asm_at(all_, at)
    if one is None:
        return "asm"
    if built_by_macros(one, frozenset()):
        return "asm with operands made by the preprocessor"
    strings = one.inside[slice(*one.code)]
    if any(t.kind != "string" or not t.text.startswith('"') for t in strings):
        return "asm whose text is made by the preprocessor"
    text = re.sub(r"\\[ntr]|\\\n", "\n", "".join(t.text[1:-1] for t in strings))
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.S)
    instructions: list[str] = []
    for statement in re.split(r"[;{}\n](?![^\[]*\])", _without_vectors(text)):
        words = statement.split()
        guarded = bool(words) and words[0].startswith("@")
        name = words[guarded] if len(words) > guarded else ""
        if not name or name.startswith("."):
            continue
        if _OF_A_WARP.fullmatch(name) and not guarded:
            instructions.append("warp")
        elif _MEMORY.fullmatch(name):
            instructions.append("memory")
        elif not _OWN.fullmatch(name):
            return name
    if "warp" not in instructions:
        return "thread"
    return "warp" if instructions == ["warp"] else "several instructions with one of a warp"


def _without_vectors(text: str) -> str:
    """The text without the registers in {%0, %1}, in which no instruction begins."""
    return re.sub(r"\{[^{};]*\}", "", text)
