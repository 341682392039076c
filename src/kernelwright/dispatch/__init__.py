"""Selects the rung for a call, and binds operators to PyTorch."""

from .autograd import Rule
from .binding import bind, compose, invalidate_selection, operator
from .double_backward_guard import differentiated_again, once, recorded
from .launcher import device_of, entry_of, launcher, plan_of
from .override import override, use
from .proof import proven_on, source_hash
from .registry import UnknownOperator, known, ladder, ladders
from .selection import Choice, Explanation, explain, select, specs_of, unsupported, unsupported_on
from .subclasses import on_rows

__all__ = [
    "Choice",
    "Explanation",
    "Rule",
    "UnknownOperator",
    "bind",
    "compose",
    "device_of",
    "differentiated_again",
    "entry_of",
    "explain",
    "invalidate_selection",
    "known",
    "ladder",
    "ladders",
    "launcher",
    "on_rows",
    "once",
    "operator",
    "override",
    "plan_of",
    "proven_on",
    "recorded",
    "select",
    "source_hash",
    "specs_of",
    "unsupported",
    "unsupported_on",
    "use",
]
