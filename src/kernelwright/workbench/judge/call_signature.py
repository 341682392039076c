"""How a user's function is called with an operator's arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kernelwright.contract import Case
from kernelwright.support.errors import UsageError

from .spec import Subject


def binding(
    subject: Subject, parameters: list[dict[str, Any]] | None, autograd: bool
) -> tuple[Callable[[dict[str, Any]], dict[str, Any]], dict[str, Any]]:
    """(how a function is called with an operator's arguments, the fixed values of the arguments
    that it does not take).

    Raises:
        UsageError: it takes more arguments than there are, or fewer than the tensors.
    """
    op = subject.operator
    names = [a.name for a in op.args]
    gradients = names[-1:] if autograd else []
    names = names[: len(names) - len(gradients)]
    known = None if parameters is None else [p for p in parameters if p["kind"][:3] != "VAR"]
    varies = parameters is None or any(p["kind"] == "VAR_POSITIONAL" for p in parameters)
    if known is None or varies:
        taken, by_name = names, set[str]()
    else:
        positional = [p["name"] for p in known if p["kind"] != "KEYWORD_ONLY"]
        needed = [p["name"] for p in known if not p["default"]]
        alike = set(needed) <= set(names) and {p["name"] for p in known} & set(names)
        if alike:
            taken = [n for n in names if n in {p["name"] for p in known}]
            positional = [n for n in positional if n in names]
            # by position as long as the order is the same, then by name
            order = [n for n, m in zip(taken, positional, strict=False) if n == m]
            by_name = set(taken) - set(order)
        else:
            taken, by_name = names[: len(positional)], set[str]()
            if len(needed) > len(names):
                raise UsageError(
                    f"it needs {len(needed)} arguments ({', '.join(needed)}); "
                    f"{op.name} passes {len(names)} ({', '.join(names)})"
                )
    missing = [a for a in op.args if a.name in names and a.name not in taken]
    for a in missing:
        if a.kind in ("Tensor", "Tensor[]"):
            raise UsageError(
                f"it takes {len(taken)} arguments; {op.name} passes {len(names)} "
                f"({', '.join(names)}), and {a.name} is a tensor"
            )
    held = {a.name: _usual(subject, a.name) for a in missing}

    def arguments_of(args: dict[str, Any]) -> dict[str, Any]:
        listed = [args[n] for n in taken if n not in by_name]
        listed += [args[n] for n in gradients]
        return {"listed": listed, "named": {n: args[n] for n in taken if n in by_name}}

    return arguments_of, held


def value_of(subject: Subject, case: Case, name: str) -> Any:
    """An argument's value in a case: the case's parameter, or the schema's default."""
    default = next((a.default for a in subject.operator.args if a.name == name), None)
    return case.param(name, default)


def _usual(subject: Subject, name: str) -> Any:
    """The value of an argument in most cases."""
    values = Counter(value_of(subject, c, name) for c in subject.operator.cases)
    return values.most_common(1)[0][0]
