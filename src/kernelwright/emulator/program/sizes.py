"""Names in a program that decide how much work it is: integers that it sets to large numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n/]+)", re.M)
_VARIABLE = re.compile(
    r"\b(?:int|unsigned|long|short|size_t|u?int(?:32|64)_t)\s+(\w+)\s*(?:=|\{)\s*([^;,{}]+)"
)
_NUMBER = re.compile(r"\b(\d+|0[xX][\da-fA-F]+)[uUlLzZ]*\b")
_FORMULA = re.compile(r"[\dxa-fA-F\s()*+<-]+")
_LEAST = 64
_MOST = 4  # names in a message
_ROUNDS = 3  # names of names


def work_sizes(texts: Iterable[str]) -> str:
    """The names with the largest values: "N (4096), STEPS (1000)"; empty if there are none."""
    formulas: dict[str, str] = {}
    for text in texts:
        for match in (*_MACRO.finditer(text), *_VARIABLE.finditer(text)):
            formulas.setdefault(match[1], match[2])
    values: dict[str, int] = {}
    for _ in range(_ROUNDS):
        for name, formula in formulas.items():
            if name not in values and (value := _value(formula, values)) is not None:
                values[name] = value
    large = sorted(((v, k) for k, v in values.items() if v >= _LEAST), reverse=True)
    return ", ".join(f"{name} ({value})" for value, name in large[:_MOST])


def _value(formula: str, known: dict[str, int]) -> int | None:
    """The value of sums, products and shifts of numbers and of known names, or None."""
    text = _NUMBER.sub(r"\1", formula)
    text = re.sub(r"\b[A-Za-z_]\w*\b", lambda m: str(known.get(m[0], m[0])), text)
    shifts = (int(n) for n in re.findall(r"<<[\s(]*(\d+)", text))
    if not _FORMULA.fullmatch(text) or "**" in text or any(n > 62 for n in shifts):
        return None
    try:
        value = eval(text, {"__builtins__": {}})  # numbers and operators alone
    except (SyntaxError, NameError, TypeError, ValueError, MemoryError, OverflowError):
        return None
    return value if isinstance(value, int) and value < 2**63 else None
