"""Which inputs a kernel is judged on, and whether enough of them ran for a verdict.

Without a GPU the size of an input is limited by the bytes and operations of a call, not by the
product of its dimensions: a product of two 1000x1000 matrices is small, though M*N*K is 10**9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernelwright.contract import Case
from kernelwright.dispatch import specs_of
from kernelwright.support.errors import UsageError

from . import sizes
from .call_signature import value_of
from .spec import Subject
from .verdict import CaseOutcome

#: Bytes moved and operations of the largest call that is tried without a GPU, by the kernel's
#: language: Triton is interpreted, Numba simulated and CUDA C++ emulated.
LARGEST = {
    "triton": (2**21, 2**30),
    "numba": (2**11, 2**14),
    "cuda": (2**22, 2**27),
    "": (2**22, 2**32),
}
#: Calls with at most this many elements in arguments and results prove little.
TRIVIAL = 64
#: Inputs of more elements than `TRIVIAL` that must pass for the verdict "right".
ENOUGH = 2
#: The first and the last dimension of the larger inputs, with and without vector alignment.
ROWS, COLUMNS = (4112, 4099), (1280, 1283)
FREE = (1, 6, 33, 1027)  # sizes used for dimensions that a kernel declares as arbitrary
NARROW = 40  # maximum number of elements in their other dimensions


@dataclass(frozen=True)
class Selection:
    """The cases of an operator on which one kernel is judged.

    Attributes:
        held: arguments that the kernel does not take, and their fixed values.
        languages: the kernel languages that its file has imported; "cuda" for a .cu.
    """

    subject: Subject
    held: dict[str, Any]
    device: torch.device
    languages: tuple[str, ...]

    def cases(self, ids: list[str] | None, left_out: Counter[str]) -> list[Case]:
        """The cases to try, smallest first; omitted cases are counted by reason in `left_out`.

        Raises:
            UsageError: an id is not that of a case.
        """
        op = self.subject.operator
        if ids:
            known = {c.id: c for c in op.cases}
            for i in ids:
                if i not in known:
                    some = ", ".join(list(known)[:8])
                    raise UsageError(f"--case: {op.name} has no case {i!r}; it has {some}, ...")
            return [known[i] for i in ids]
        kept: list[Case] = []
        for case in op.cases:
            why = self.left_out(case)
            if why:
                left_out[why] += 1
            else:
                kept.append(case)
        return sorted(kept, key=lambda c: c.numel)

    def left_out(self, case: Case) -> str | None:
        """Why a case is not tried, or None."""
        for name, value in self.held.items():
            if value_of(self.subject, case, name) != value:
                return f"the kernel takes no {name}: only cases with {name}={value}"
        if case.use == "big":
            return "more than 2**31 elements"
        if self.device.type == "cuda":
            if case.use == "bench":
                return "verified when it is timed"
            moved, _ = size_of(self.subject, case)
            return "too large for this GPU's memory" if moved > sizes.room_of_gpu() else None
        language = next((n for n in ("numba", "triton", "cuda") if n in self.languages), "")
        most, operations = LARGEST[language]
        if self.subject.sizes and not language:
            most, operations = sizes.LARGEST
        moved, work = size_of(self.subject, case)
        if moved > most or work > operations:
            return f"more than {most >> 10} KiB or {operations:.0e} operations: needs a GPU"
        return None

    def shortage(self, outcomes: Iterable[CaseOutcome], ids: list[str] | None) -> str:
        """Why the inputs that passed are not enough for a verdict, or ""."""
        outcomes = list(outcomes)
        passed = [o for o in outcomes if o.outcome == "pass"]
        if not passed:
            return _nothing(outcomes)
        elements = {o.case: self.elements(self.subject.operator.case(o.case)) for o in passed}
        telling = [case for case, n in elements.items() if n > TRIVIAL]
        if not telling:
            return f"it ran only on inputs of at most {max(elements.values())} elements"
        if ids:
            return ""
        verify = [c for c in self.subject.operator.cases if c.use == "verify"]
        available = sum(self.elements(c) > TRIVIAL for c in verify)
        if len(telling) < min(ENOUGH, available):
            return f"it ran on {len(telling)} of {available} inputs of more than {TRIVIAL} elements"
        return ""

    def elements(self, case: Case) -> int:
        """The number of elements in the arguments and results of a call."""
        return size_of(self.subject, case)[0] // case.dtype.itemsize


def _nothing(outcomes: list[CaseOutcome]) -> str:
    """Why no input passed, for a kernel that failed on none."""
    unable = [o for o in outcomes if o.outcome == "unable"]
    if unable:
        return f"it cannot be judged here: {unable[0].why}"
    if outcomes:
        return f"it rejected every input: {outcomes[0].why}"
    return "none of the operator's inputs can run here"


def size_of(subject: Subject, case: Case) -> tuple[int, int]:
    """(bytes that a call must move, its operations)."""
    op = subject.operator
    if subject.sizes:
        return subject.sizes(case)
    try:
        args = subject.of(op.inputs(case, "meta"))
    except (RuntimeError, NotImplementedError, TypeError):
        # a user's spec that makes real tensors: estimate a product over all dimensions
        return 2 * case.numel * case.dtype.itemsize, case.numel
    specs, _ = op.normalise(specs_of(args))
    cost = op.cost(**specs)
    return cost.bytes, max(cost.flops, cost.bytes // case.dtype.itemsize)


def thorough(cases: list[Case]) -> list[Case]:
    """The cases that run every check: for each dtype and layout the first that is large enough, and
    the first for each set of parameters."""
    kept: list[Case] = []
    seen: set[Any] = set()
    for c in cases:
        keys = {(c.dtype, c.layout), c.params}
        if c.values == "normal" and c.numel > 32 and not keys <= seen:
            kept.append(c)
            seen |= keys
    return kept


def with_larger_cases(subject: Subject) -> Subject:
    """The operator with further inputs: more than 4,096 rows and more than 1,024 columns, aligned
    and not, and rows that contain infinities of both signs."""
    own = subject.operator.cases
    plain = [
        c for c in own
        if c.use == "verify" and c.values == "normal" and c.layout == "contiguous"
        and len(c.shape) > 1 and c.numel > 32
    ]  # fmt: skip
    more: list[Case] = []
    for dtype in dict.fromkeys(c.dtype for c in plain):
        shown = next(c for c in plain if c.dtype == dtype)
        small = tuple(min(n, NARROW) for n in shown.shape)
        shapes = [(*small[:-1], n) for n in COLUMNS] + [(n, *small[1:]) for n in ROWS]
        more += [replace(shown, shape=shape, label="") for shape in shapes]
        more += _other_dims(shown)
    more += [replace(c, values="both_infs") for c in own if c.values == "inf"]
    known = {c.id for c in own}
    added = tuple(c for c in more if c.id not in known and _possible(subject, c))
    return replace(subject, operator=replace(subject.operator, cases=(*own, *added)))


def _other_dims(shown: Case) -> list[Case]:
    """Dimensions counted from the first one, and inner ones of four."""
    dim = shown.param("dim")
    listed = isinstance(dim, tuple) and len(dim) == 1
    if not listed and (not isinstance(dim, int) or isinstance(dim, bool)):
        return []
    further: list[Case] = []
    for shape, d in (((5, 33), 1), ((5, 33), 0), ((2, 5, 33, 3), 1), ((2, 5, 33, 3), -2)):
        params = tuple((k, ((d,) if listed else d) if k == "dim" else v) for k, v in shown.params)
        further.append(replace(shown, shape=shape, params=params, label=""))
    return further


def with_declared_shapes(subject: Subject, shapes: list[list[int | None]]) -> Subject:
    """The operator with inputs only of the shapes that a kernel declares; None stands for any
    size."""
    own = subject.operator.cases
    kept = [c for c in own if any(_within(c.shape, s) for s in shapes)]
    more: list[Case] = []
    for shape in shapes:
        alike = [c for c in own if len(c.shape) == len(shape) and c.use == "verify" and c.numel]
        plain = [c for c in alike if c.values == "normal" and c.layout == "contiguous"]
        for n in FREE if None in shape else FREE[:1]:
            filled = tuple(n if s is None else int(s) for s in shape)
            first = {c.dtype: c for c in reversed(plain)}.values()
            more += [replace(c, shape=filled, label="") for c in first]
        special = {(c.dtype, c.values): c for c in reversed(alike) if c.values != "normal"}
        few = tuple(FREE[1] if s is None else int(s) for s in shape)
        more += [replace(c, shape=few, label="") for c in special.values()]
    known = {c.id for c in kept}
    added = (c for c in dict.fromkeys(more) if c.id not in known and _possible(subject, c))
    return replace(subject, operator=replace(subject.operator, cases=(*kept, *added)))


def _within(shape: tuple[int, ...], declared: list[int | None]) -> bool:
    return len(shape) == len(declared) and all(
        d is None or d == n for n, d in zip(shape, declared, strict=True)
    )


def _possible(subject: Subject, case: Case) -> bool:
    """Whether PyTorch's own operator supports a case that was made from another."""
    args = subject.of(subject.operator.inputs(case, "cpu"))
    try:
        subject.native(*args.values())
    except (RuntimeError, ValueError, IndexError, AssertionError):
        return False
    return True
