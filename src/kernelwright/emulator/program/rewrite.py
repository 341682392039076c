"""Turns what only nvcc understands into C++: launches, asm statements, `extern __shared__`.

Each line keeps its number, so that messages and debug information name the lines of the file.

    kernel<T><<<grid, block>>>(x, n);
        becomes (KW_LAUNCH("kernel<T>", (kernel<T>(kw_a...)), grid, block))(x, n);
    asm volatile("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
        becomes kw::ptx::statement([] { return "ex2.approx.f32 %0, %1;"; }, __FILE__, __LINE__,
        kw::ptx::operand("=f", (y)), kw::ptx::operand("f", (x)));
    extern __shared__ float tile[];
        becomes float (&tile)[] = *reinterpret_cast<float (*)[]>(kw_dynamic);
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from . import asm, lockstep, torch_bindings
from .tokens import Token, angle_opening, closing, opening, text_of, tokens

_ASM = asm.NAMES
#: #define UNROLL #pragma unroll, which nvcc takes.
_PRAGMA = re.compile(r"^([ \t]*#[ \t]*define[ \t]+\w+[ \t]+)#[ \t]*pragma[ \t]+([^\n]*)", re.M)


@dataclass
class Edits:
    """Replacements of parts of a text; parts do not overlap."""

    text: str
    replacements: list[tuple[int, int, str]] = field(default_factory=list)

    def replace(self, start: int, end: int, by: str) -> None:
        """The lines that are gone stay as empty ones."""
        part = self.text[start:end]
        # in the definition of a macro, line ends are escaped
        end_of_line = "\\\n" if "\\\n" in part.replace("\\\r\n", "\\\n") else "\n"
        missing = part.count("\n") - by.count("\n")
        self.replacements.append((start, end, by + end_of_line * max(0, missing)))

    def insert(self, at: int, what: str) -> None:
        self.replacements.append((at, at, what))

    def applied(self) -> str:
        parts, at = [], 0
        for start, end, by in sorted(self.replacements, key=lambda e: e[:2]):
            parts += [self.text[at:start], by]
            at = end
        return "".join([*parts, self.text[at:]])


def rewritten(
    text: str,
    kernels: Mapping[str, bool],
    attributes: Mapping[str, str] | None = None,
    volatile: Set[str] | None = None,
    macros: Set[str] = frozenset(),
) -> str:
    """The text as C++.

    Args:
        kernels: the program's kernels, as `kernels_of` finds them in each of its files.
        attributes: of the configurations of their launches (`attributes.attributes_of`).
        volatile: names of the program's volatile variables (`lockstep.volatile_names`), if it has
            any volatile type.
        macros: the program's own.
    """
    text = _PRAGMA.sub(lambda m: f'{m[1]}_Pragma("{m[2].strip()}")', text)
    all_ = tokens(text)
    edits = Edits(text)
    gone = list(torch_bindings.spans(text, all_))
    for start, end in gone:
        edits.replace(start, end, "")
    all_ = [t for t in all_ if not any(a <= t.start < b for a, b in gone)]
    for i, token in enumerate(all_):
        if token.kind == "name":
            if token.text in _ASM:
                _asm(text, all_, i, macros, edits)
            elif token.text == "extern":
                _extern_shared(text, all_, i, edits)
            elif token.text == "thread_block_tile":
                _tile(all_, i, edits)
            elif token.text == "alignas":
                _alignment(text, all_, i, edits)
            elif token.text in kernels:
                _address(all_, i, edits)
        elif token.text == "<" and _three(all_, i, "<"):
            _launch(text, all_, i, kernels, attributes or {}, edits)
    for at in _member_templates(all_):
        edits.insert(all_[at].start, "template ")
    for at in _unchecked(all_, macros):
        edits.insert(all_[at].start, f'KwUnchecked("{all_[at].text}"), ')
    if volatile is not None:
        _lockstep(text, all_, volatile, edits)
    return edits.applied()


def kernels_of(text: str) -> dict[str, bool]:
    """The kernels that a text defines or declares: {name: whether the name alone says which
    function it is, with no default arguments}."""
    all_ = tokens(text)
    kernels: dict[str, bool] = {}
    bodies: set[str] = set()
    for i, token in enumerate(all_):
        named = signature(all_, i) if token.text == "__global__" else None
        if named is None:
            continue
        at, end = named
        name = all_[at].text
        plain = not _is_template(all_, i) and all_[at - 1].text not in ("::", "##")
        plain &= not any(t.text == "=" for t in all_[at:end])
        body = all_[end + 1].text == "{" if end + 1 < len(all_) else False
        if name in bodies and body:  # overloaded
            plain = False
        if body:
            bodies.add(name)
        kernels[name] = kernels.get(name, True) and plain
    return kernels


def signature(all_: list[Token], at: int) -> tuple[int, int] | None:
    """The name of the kernel whose __global__ stands at `at`, and the end of its parameters.
    Attributes have arguments too: the name stands before the last list."""
    at += 1
    while at < len(all_) and all_[at].text not in ("{", ";"):
        if all_[at].text == "(":
            end = closing(all_, at)
            if end is None:
                return None
            name = all_[at - 1]
            special = name.text.startswith("__") and name.text.endswith("__")
            if name.kind == "name" and not special:
                return at - 1, end
            at = end
        at += 1
    return None


def _is_template(all_: list[Token], at: int) -> bool:
    i = at - 1
    while i >= 0 and (all_[i].kind in ("name", "string") or all_[i].text == ")"):
        if all_[i].text == ")":
            before = opening(all_, i)
            if before is None:
                return False
            i = before
        i -= 1
    return i >= 0 and all_[i].text == ">"


def _three(all_: list[Token], at: int, mark: str) -> bool:
    """Whether three equal marks begin here."""
    before = all_[at - 1].text if at else ""
    return [t.text for t in all_[at : at + 3]] == [mark] * 3 and before != mark


def _launch(
    text: str,
    all_: list[Token],
    at: int,
    kernels: Mapping[str, bool],
    attributes: Mapping[str, str],
    edits: Edits,
) -> None:
    first = _callee(all_, at)
    end = _end_of_configuration(all_, at + 3)
    if first is None or end is None:
        return
    name = text_of(text, all_, first, at)
    flat = re.sub(r"\s+", " ", name.replace("\\\n", " "))
    quoted = flat.replace("\\", "\\\\").replace('"', '\\"')
    if kernels.get(flat):
        head = f'(KW_LAUNCH_PLAIN("{quoted}", {flat}, '
    else:
        head = f'(KW_LAUNCH("{quoted}", ({flat}(kw_a...)), '
    head += attributes.get(flat.partition("<")[0].rpartition("::")[2].strip(), "")
    edits.replace(all_[first].start, all_[at + 2].end, head)
    edits.replace(all_[end].start, all_[end + 2].end, "))")


def _end_of_configuration(all_: list[Token], at: int) -> int | None:
    while at < len(all_):
        token = all_[at]
        if token.kind == "mark":
            if token.text in ("(", "[", "{"):
                end = closing(all_, at)
                if end is None:
                    return None
                at = end
            elif token.text in (";", ")", "]", "}"):
                return None
            elif [t.text for t in all_[at : at + 4]] == [">", ">", ">", "("]:
                return at
        at += 1
    return None


def _callee(all_: list[Token], at: int) -> int | None:
    """The first token of the expression before <<<."""
    i = at - 1
    while i >= 0:
        text = all_[i].text
        if text == ">":
            before = angle_opening(all_, i)
            if before is None or before == 0 or all_[before - 1].kind != "name":
                return None
            i = before - 1
        elif text in (")", "]"):
            before = opening(all_, i)
            if before is None:
                return None
            i = before
            called = i > 0 and all_[i - 1].kind == "name" and all_[i - 1].text != "return"
            if text == "]" or called:
                i -= 1
        elif all_[i].kind != "name":
            return None
        if i > 1 and all_[i - 1].text == "template":  # s.template k<3>
            i -= 1
        previous = all_[i - 1].text if i else ""
        if previous in ("::", ".", "->", "##"):
            before_that = all_[i - 2] if i > 1 else None
            if before_that is None or not (
                before_that.kind == "name" or before_that.text in (">", ")", "]")
            ):
                return i - 1 if previous == "::" else None
            i -= 2
            continue
        return i
    return None


def _asm(text: str, all_: list[Token], at: int, macros: Set[str], edits: Edits) -> None:
    one = asm.asm_at(all_, at)
    if one is None:
        return  # asm("name") says how a symbol is called
    if asm.built_by_macros(one, macros):
        edits.replace(all_[at].start, all_[at].end, asm.LATER)
        return
    edits.replace(
        all_[at].start, all_[one.last].end, asm.statement(one, text, "__FILE__, __LINE__")
    )


def _extern_shared(text: str, all_: list[Token], at: int, edits: Edits) -> None:
    """In a function, a reference: functions may give one name to arrays of several types."""
    end, array, type_ = at, 0, list[str]()
    while end < len(all_) and all_[end].text not in (";", "{", "(", "=", "__global__"):
        if all_[end].text in ("__align__", "alignas", "__attribute__"):
            closed = closing(all_, end + 1)
            end = len(all_) if closed is None else closed + 1
            continue
        if all_[end].text == "[" and not array:
            array = end
        elif not array and all_[end].text not in ("extern", "__shared__"):
            type_.append(all_[end].text)
        end += 1
    if end >= len(all_) or all_[end].text != ";":
        return
    if not array:  # one variable, of a class
        array = end
        if not _in_function(all_, at) or not type_ or not type_[-1].isidentifier():
            return
    if not any(t.text == "__shared__" for t in all_[at:end]):
        return
    if not _in_function(all_, at) or any(t.text == "," for t in all_[array:end]):
        edits.insert(all_[end].start, " KW_DYNAMIC")
        return
    its, name, sizes = " ".join(type_[:-1]), type_[-1], text_of(text, all_, array, end)
    declaration = f"{its} (&{name}){sizes} = *reinterpret_cast<{its} (*){sizes}>(kw_dynamic)"
    edits.replace(all_[at].start, all_[end].start, declaration)


def _tile(all_: list[Token], at: int, edits: Edits) -> None:
    """template <int N> f(thread_block_tile<N>): nvcc deduces N, although the class takes an
    unsigned number; C++ deduces it for unsigned N."""
    size = all_[at + 2].text if at + 3 < len(all_) and all_[at + 1].text == "<" else ""
    head = next((k for k in range(at, -1, -1) if all_[k].text == "template"), None)
    if head is None or not size.isidentifier():
        return
    for k in range(head, at):
        if all_[k].text == "int" and all_[k + 1].text == size and all_[k - 1].text in ("<", ","):
            change = (all_[k].start, all_[k].end, "unsigned")
            if change not in edits.replacements:
                edits.replace(*change)


def _alignment(text: str, all_: list[Token], at: int, edits: Edits) -> None:
    """__shared__ alignas(16) float x[4]: to C++, alignas stands before all other specifiers."""
    first, end = at, closing(all_, at + 1)
    while first and all_[first - 1].text in ("__shared__", "static", "const", "volatile"):
        first -= 1
    dynamic = first and all_[first - 1].text == "extern"
    if first == at or end is None or dynamic:
        return
    edits.insert(all_[first].start, text_of(text, all_, at, end + 1) + " ")
    edits.replace(all_[at].start, all_[end].end, "")


def _in_function(all_: list[Token], at: int) -> bool:
    open_: list[bool] = []
    for i in range(at):
        if all_[i].kind != "mark":
            continue
        if all_[i].text == "{":
            open_.append(i > 0 and all_[i - 1].text in (")", "const", "noexcept", "else", "do"))
        elif all_[i].text == "}" and open_:
            open_.pop()
    return any(open_)


def _member_templates(all_: list[Token]) -> list[int]:
    """T::f<1>(x), where T is a parameter of a template: in C++, the word template stands before f,
    which nvcc does not need."""
    heads = ("typename", "class")
    types = {b.text for a, b, c in zip(all_, all_[1:], all_[2:], strict=False)
             if a.text in heads and b.kind == "name" and c.text in (",", ">", "=")}  # fmt: skip
    places: list[int] = []
    for i, t in enumerate(all_[:-3]):
        its = [x.text for x in all_[i + 1 : i + 4]]
        if t.text not in types or its[0] != "::" or its[2] != "<" or all_[i - 1].text == "::":
            continue
        end = _angle_closing(all_, i + 3)
        if end is not None and end + 1 < len(all_) and all_[end + 1].text == "(":
            places.append(i + 2)
    return places


def _angle_closing(all_: list[Token], at: int) -> int | None:
    """The index of the > that ends the template argument list at `at`, or None."""
    depth, i = 0, at
    while i < len(all_):
        text = all_[i].text
        if text in ("(", "[", "{"):
            end = closing(all_, i)
            if end is None:
                return None
            i = end
        elif text in (";", ")", "]", "}"):
            return None
        depth += (text == "<") - (text == ">")
        if depth == 0:
            return i
        i += 1
    return None


_API = re.compile(r"(?:cuda|cublas|cusparse|cufft|curand|cu)[A-Z]\w*")
_QUERIES = ("cudaGetLastError", "cudaPeekAtLastError", "cudaStreamQuery", "cudaEventQuery")


def _unchecked(all_: list[Token], macros: Set[str]) -> list[int]:
    """Calls of the API that are statements, so that the program does not look at their errors.
    Macros may have such names too."""
    calls: list[int] = []
    open_: list[bool] = []  # whether each { is that of a function, or in one
    for i, t in enumerate(all_):
        if t.text == "{":
            head = i > 0 and all_[i - 1].text in (")", "const", "noexcept", "else", "do", "try")
            open_.append(head or (bool(open_) and open_[-1]))
        elif t.text == "}" and open_:
            open_.pop()
        if not (open_ and open_[-1] and t.kind == "name" and _API.fullmatch(t.text)):
            continue
        end = closing(all_, i + 1) if i + 1 < len(all_) and all_[i + 1].text == "(" else None
        if t.text in _QUERIES or t.text in macros or end is None or end + 1 >= len(all_):
            continue
        before = all_[i - 1].text
        start = opening(all_, i - 1) if before == ")" else None
        control = start is not None and all_[start - 1].text in ("if", "for", "while")
        if all_[end + 1].text == ";" and (before in (";", "{", "}", "else", "do") or control):
            calls.append(i)
    return calls


def _loops(all_: list[Token]) -> set[int]:
    """The tokens of the loops over a block's threads, in which nothing is volatile."""
    inside: set[int] = set()
    for i, t in enumerate(all_):
        if t.text == "kw_loops" and all_[i + 1].text == "=" and i not in inside:
            start = next(k for k in range(i, len(all_)) if all_[k].text == "{")
            end = closing(all_, start)
            inside.update(range(start, len(all_) if end is None else end))
    return inside


def _lockstep(text: str, all_: list[Token], volatile: Set[str], edits: Edits) -> None:
    """Marks what lanes may do together, as `lockstep` says."""
    taken = _loops(all_)
    for first, end in lockstep.writes(all_, volatile):
        if first in taken:
            continue
        taken.update(range(first, end))
        edits.insert(all_[first].start, "KwLockstep(")
        edits.insert(all_[end - 1].end, ")")
        if given := lockstep.assigned_value(all_, end, text):
            place = re.sub(r"\s+", " ", text_of(text, all_, first, end).replace("\\\n", " "))
            edits.insert(all_[given[0]].start, f"(KwBeforeWrite({place}), ")
            edits.insert(all_[given[1] - 1].end, ")")
    changed = [(a, b) for a, b, _ in edits.replacements if a < b]
    for i, t in enumerate(all_):
        if any(a <= t.start < b for a, b in changed):
            taken.add(i)
    for first, end in lockstep.reads(all_, volatile, taken):
        edits.insert(all_[first].start, "KwRead(")
        edits.insert(all_[end - 1].end, ")")


def _address(all_: list[Token], at: int, edits: Edits) -> None:
    """(void *)kernel, reinterpret_cast<void *>(kernel): as an address that says which parameters
    the kernel has."""
    i = at - 1
    if i >= 0 and all_[i].text == "&":
        i -= 1
    if i > 3 and [t.text for t in all_[i - 3 : i + 1]] == ["void", "*", ">", "("]:
        angle = angle_opening(all_, i - 1)
        if angle and all_[angle - 1].text == "reinterpret_cast":
            edits.replace(all_[angle - 1].start, all_[i].end, "kw::program::address(")
        return
    if i < 3 or [t.text for t in all_[i - 2 : i + 1]] != ["void", "*", ")"]:
        return
    before = opening(all_, i)
    if before is None or i - before > 4:
        return
    end = at + 1
    if end < len(all_) and all_[end].text == "<":
        depth = 0
        while end < len(all_):
            depth += (all_[end].text == "<") - (all_[end].text == ">")
            end += 1
            if depth == 0:
                break
    edits.replace(all_[before].start, all_[i].end, "kw::program::address(")
    edits.insert(all_[end - 1].end, ")")
