"""Compiles kernels that synchronize as loops too: one CPU thread runs a block and iterates over its
threads between sync points.

A sync point is a barrier or a warp operation (a shuffle, a vote, __syncwarp): threads wait for each
other there, or exchange values. The code for single threads, which fibers run, stays beside the
loops.

    parser.py         statements
    program_index.py  what the program's files say about names
    definitions.py    the functions that they define
    asm_calls.py      asm statements as calls
    warp_sync.py      makes each warp operation a statement of its own
    preprocessor.py   conditions of the preprocessor
    inliner.py        inlines device functions that contain sync points
    restrictions.py   what prevents loops in a kernel
    variables.py      the variables of a kernel
    uniformity.py     which values are the same for all threads
    regions.py        the statements between two sync points
    codegen.py        the loops as C++

A kernel is left unchanged, and runs with fibers only, if it cannot be shown that its loops are
equivalent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..tokens import Token, closing, opening, split
from .codegen import LoopWriter
from .definitions import code_of, line_numbers
from .parser import Node, Parser, Refused
from .preprocessor import Choice, resolved, variants
from .program_index import SYNC_POINT, ProgramIndex
from .regions import Kernel
from .uniformity import DivergentSyncPoints
from .warp_sync import WarpSyncRewriter, with_predicates

__all__ = ["ProgramIndex", "with_loops"]

_PASSES = 12  # of conditions in conditions


def with_loops(
    text: str,
    program: ProgramIndex,
    why: dict[str, str | None] | None = None,
    without: Collection[str] = (),
) -> str:
    """A file of a program, with loops in those of its kernels that allow them.

    Args:
        without: kernels that are left unchanged.
        why: receives, for each kernel with sync points, why it is left unchanged, or None.
    """
    if "__global__" not in text or not program.synchronizes:
        return text
    text = _normalized(text)
    all_, _ = code_of(text)
    line_of, file_lines = line_numbers(text), text.split("\n")
    parts: list[str] = []
    at = 0
    for kernel in _kernels(all_):
        if kernel.name in without or not _synchronizes(all_[kernel.body : kernel.end], program):
            continue
        start, end = all_[kernel.body].start, all_[kernel.end].end
        line, body = line_of(start), text[start:end]

        def write(
            choice: Choice, kernel: _KernelSource = kernel, line: int = line, body: str = body
        ):
            return _loops(
                kernel, f"/*@{line}*/{resolved(body, choice)}", program, file_lines, choice
            )

        loops, reason = variants(write, program.macros)
        if loops:
            parts += [text[at : start + 1], _under_conditions(loops, line)]
            at = start + 1
        if why is not None:
            why[kernel.name] = reason
    return "".join([*parts, text[at:]])


def _under_conditions(loops_by_condition: list[tuple[str, str]], line: int) -> str:
    """The loops of each variant, each under the preprocessor's condition for it."""
    if loops_by_condition == [("", loops_by_condition[0][1])]:
        return loops_by_condition[0][1]
    parts = [
        f"#{'elif' if i else 'if'} {c}\n{loops}" for i, (c, loops) in enumerate(loops_by_condition)
    ]
    return "\n" + "".join(parts) + f"#endif\n#line {line}\n"


def _synchronizes(body: list[Token], program: ProgramIndex) -> bool:
    """Whether the threads of a kernel synchronize or exchange values."""
    reached = (
        t for name, all_ in program.reached(body).items() if name != "operator" for t in all_
    )
    return any(SYNC_POINT.fullmatch(t.text) for t in (*program.expanded(body), *reached))


def _loops(
    kernel: _KernelSource, text: str, program: ProgramIndex, file_lines: list[str], choice: Choice
) -> str:
    """The loops of a kernel, from the text of its body.

    Raises:
        Undecided: `choice` lacks a condition of the preprocessor in a function that is inlined.
        Refused: it cannot be shown that the loops are equivalent to the kernel.
    """
    reached = (t for all_ in program.reached(code_of(text)[0]).values() for t in all_)
    for t in (*kernel.head, *program.expanded(code_of(text)[0]), *reached):
        if t.text in program.volatile_types:
            raise Refused(f"{t.text} is volatile")
    rewriter = WarpSyncRewriter(program, kernel.volatile, kernel.head, file_lines, choice)
    text = rewriter.body(text)
    for _ in range(_PASSES):
        all_, _directives = code_of(text)
        body = Parser(all_).block(0)
        try:
            one = Kernel(all_, body, kernel.parameters, kernel.types, program)
            return LoopWriter(one, text, line_numbers(text)).write()
        except DivergentSyncPoints as e:
            text = rewriter.body(with_predicates(text, all_, e.nodes, rewriter.fresh))
    raise Refused("conditions in conditions around operations of a warp")


def _normalized(text: str) -> str:
    """The text with statements of its kernels replaced by simpler equivalent ones.

    `int a = 1, b = 2;` becomes `int a = 1; int b = 2;`, because only one of the variables may be
    the same for all threads. At the end of a kernel, `if (x) { ... }` around barriers becomes
    `if (!(x)) return; { ... }`.
    """
    all_, _ = code_of(text)
    edits: list[tuple[int, int, str]] = []
    for kernel in _kernels(all_):
        try:
            body = Parser(all_).block(kernel.body)
        except Refused:
            continue
        for block in (n for n in body.walk() if n.kind == "block"):
            for d in (d for p in block.parts if not p.fixed for d in p.declared[1:]):
                type_ = " ".join(t.text for t in all_[slice(*d.type_)])
                comma = all_[d.marks[0] - 1]
                edits.append((comma.start, comma.end, f"; {type_} "))
        for first, type_ in _loop_variables(all_, body):
            edits.append((first, first, f"{type_} "))
        for node in _conditions_at_the_end(body):
            (a, b), (inside,) = node.head[0], node.parts
            body_text = text[all_[inside.first].start : all_[inside.last].end]
            if SYNC_POINT.search(body_text) and all_[a - 2].text == "if":
                edits.append((all_[a - 1].start, all_[a - 1].end, "(!("))
                edits.append((all_[b].start, all_[b].end, ")) return;"))
    parts, at = [], 0
    for start, end, other in sorted(edits):
        parts += [text[at:start], other]
        at = end
    return "".join([*parts, text[at:]])


def _loop_variables(all_: list[Token], body: Node) -> Iterator[tuple[int, str]]:
    """Loops `for (i = 0; ...)` whose variable is declared before them and used only in such loops:
    where each loop assigns to it, and the variable's type."""
    declared = [(d, n) for n in body.walk() for d in n.declared]
    for d, node in declared:
        name = all_[d.name].text
        plain = all(a == b for a, b in (d.marks, d.sizes, d.value)) and not node.fixed
        if not plain or sum(all_[o.name].text == name for o, _ in declared) > 1:
            continue
        loops = [n for n in body.walk() if n.kind == "for" and _starts(all_, n) == name]
        inside = [
            sum(n.first < i < n.last for n in loops)
            for i in range(node.last, body.last)
            if all_[i].text == name and all_[i - 1].text not in (".", "->")
        ]
        if loops and set(inside) == {1}:
            type_ = " ".join(t.text for t in all_[slice(*d.type_)])
            yield from ((all_[n.parts[0].first].start, type_) for n in loops)


def _starts(all_: list[Token], node: Node) -> str:
    """The variable of `for (i = 0; ...)`, if that assignment is the whole initialization."""
    start = node.parts[0]
    its = all_[start.first : start.last]
    single = len(its) > 2 and its[1].text == "=" and all(t.text not in ("=", ",") for t in its[2:])
    return its[0].text if start.kind == "expression" and single else ""


def _conditions_at_the_end(body: Node) -> Iterator[Node]:
    """The condition that is a kernel's last statement, the one that is the last statement in it,
    and so on."""
    last = body.parts[-1] if body.parts else None
    while last is not None and last.kind == "if" and len(last.parts) == 1:
        if last.parts[0].kind != "block":
            return
        yield last
        last = last.parts[0].parts[-1] if last.parts[0].parts else None


class _KernelSource:
    def __init__(self, name: str, body: int, end: int) -> None:
        self.name, self.body, self.end = name, body, end
        self.parameters: dict[str, bool] = {}  # whether each is a pointer
        self.types: set[str] = set()
        self.head: list[Token] = []  # its parameters
        self.volatile: set[str] = set()  # parameters that are pointers to volatile


def _kernels(all_: list[Token]) -> Iterator[_KernelSource]:
    """The kernels that a file defines."""
    for i, t in enumerate(all_):
        if t.text != "__global__":
            continue
        k, last = i + 1, (0, 0)
        while k < len(all_) and all_[k].text not in ("{", ";"):
            if all_[k].text == "(":
                end = closing(all_, k)
                if end is None:
                    break
                last, k = (k, end), end
            k += 1
        else:
            if last[1] and k < len(all_) and all_[k].text == "{":
                end = closing(all_, k)
                if end is not None:
                    kernel = _KernelSource(all_[last[0] - 1].text, k, end)
                    kernel.parameters = _parameters(all_, *last)
                    kernel.types = _template(all_, i)
                    kernel.head = all_[last[0] : last[1]]
                    kernel.volatile = _volatile_pointers(all_, *last)
                    yield kernel


def _parameters(all_: list[Token], first: int, last: int) -> dict[str, bool]:
    parameters: dict[str, bool] = {}
    for a, b in split(all_, first + 1, last, ","):
        value = next((i for i in range(a, b) if all_[i].text == "="), b)
        names = [i for i in range(a, value) if all_[i].kind == "name"]
        if names:
            marks = {t.text for t in all_[a:value]}
            parameters[all_[names[-1]].text] = bool(marks & {"*", "["})
    return parameters


def _volatile_pointers(all_: list[Token], first: int, last: int) -> set[str]:
    parts = (all_[a:b] for a, b in split(all_, first + 1, last, ",") if a < b)
    pointers: set[str] = set()
    for p in parts:
        words = [t.text for t in p]
        if "volatile" in words and ("*" in words or "[" in words):
            pointers.add(words[words.index("[") - 1 if "[" in words else -1])
    return pointers


def _template(all_: list[Token], at: int) -> set[str]:
    """The names in the template parameter list before a kernel."""
    i = at - 1
    while i >= 0 and (all_[i].kind in ("name", "string") or all_[i].text == ")"):
        if all_[i].text == ")":
            before = opening(all_, i)
            if before is None:
                return set()
            i = before
        i -= 1
    if i < 0 or all_[i].text != ">":
        return set()
    while i >= 0 and all_[i].text != "template":
        if all_[i].text in (";", "}"):
            return set()
        i -= 1
    return {t.text for t in all_[i:at] if t.kind == "name"}
