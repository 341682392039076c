"""Which tests run: the written rule.

`make test-all` (`pytest --all`) runs every test. `make test` does so too, but for three kinds of
tests only a subset, chosen from the code each time and always the same for the same code:

Rungs on cases (test_ops.py), of which a ladder has hundreds:
1. Each rung runs a case with its first config.
2. The last of its further configs runs a different case.
3. Each dtype, each layout, each kind of values and an empty case run on a rung of each backend
   (PyTorch, Triton, CUDA C++) that supports one: on the rung that has the fewest cases so far.
4. Each shape, and each set of non-tensor arguments, runs on a kernel of ours, if one supports it:
   on the CUDA C++ rung, or else on the other rung, that has the fewest cases so far; cases of more
   than 2^31 elements on a rung that is dispatched for them.
5. One case of each rung runs every check, the others those that call the rung once.
Each compiled rung, whose cases take seconds, runs one case.
Rungs with Hopper's instructions, which take seconds to build, are compiled for GPUs; those of
HOPPER run what is theirs by 1 and 2 of the rule.

Tests marked `cover`: each value of each parameter, combined with the others' values in turn.

Tests marked `long`, which take five seconds or more of a core with empty caches, and whose parts
are also run by other tests, or which .ci/run runs separately: none. A test marked `long` is never
the only one that runs a rung, a check or a wrong kernel.

`pytest --all --share 2/7` runs the second of seven parts of all tests; the tests of a rung, whose
kernels are built together, and those of a function are in one part.
"""

from __future__ import annotations

import zlib
from argparse import ArgumentTypeError
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from functools import cache
from typing import NamedTuple, TypeVar

import pytest
import torch

from kernelwright.contract import H200, Case, Config, Ladder, Rung
from kernelwright.dispatch import unsupported
from kernelwright.toolchain import cpu_executor
from kernelwright.workbench import inspection
from kernelwright.workbench.verify import cuda_kernels
from kernelwright.workbench.verify.checks import CHECKS, Check
from kernelwright.workbench.verify.coverage import skip, thorough, thorough_cases
from kernelwright.workbench.verify.verify import here

T = TypeVar("T")
HOPPER = {"matmul.cuda_wgmma_pingpong"}  # of the rungs with Hopper's instructions
LARGE = 2**18  # elements; larger cases are not made to find out whether a rung supports them
ONCE = tuple(check for check in CHECKS if not check.again)


class RungCase(NamedTuple):
    """A rung on a case, with some of its configs, under some checks."""

    rung: Rung
    case: Case
    configs: tuple[Config, ...]
    checks: tuple[Check, ...] = CHECKS


@cache
def every(ladder: Ladder) -> tuple[RungCase, ...]:
    """All runs of a ladder on this machine."""
    found = []
    for rung in ladder.rungs:
        for case in ladder.operator.cases:
            configs = [c for c in rung.configs if not skip(ladder, rung, c, case, here())]
            if configs and takes(ladder, rung, case) and not _keeps_truncated(ladder, rung, case):
                found.append(RungCase(rung, case, tuple(configs)))
    return tuple(found)


def _keeps_truncated(ladder: Ladder, rung: Rung, case: Case) -> bool:
    """Whether the product before the activation is a result too, in float16: a sum that wgmma
    truncates. What is allowed is the error of PyTorch's sums, which are truncated on a GPU, but
    not on a CPU; in bfloat16, the rounding of the result is larger."""
    kept = dict(case.params).get("keep", False) and case.dtype == torch.float16
    return here() == "cpu" and kept and hopper(ladder, rung, case)


def takes(ladder: Ladder, rung: Rung, case: Case) -> bool:
    specs = inspection.specs_of if case.numel > LARGE else cuda_kernels.specs_of_case
    return unsupported(rung, specs(ladder, case), torch.device(here())) is None


@cache
def covering(ladder: Ladder) -> tuple[RungCase, ...]:
    """The subset for a ladder, by the rule above."""
    chosen = {rung.name: _for_itself(ladder, rung) for rung in ladder.rungs}
    _deal(ladder, chosen)
    found = []
    for rung in ladder.rungs:
        checked = _checked(ladder, rung, chosen[rung.name])
        for case, configs in chosen[rung.name].items():
            found.append(RungCase(rung, case, tuple(configs), CHECKS if case == checked else ONCE))
    return tuple(found)


def compiled(ladder: Ladder, rung: Rung) -> Case:
    """A case whose kernels are compiled: the rung's last, of a 16-bit type if it supports one."""
    return [run.case for run in covering(ladder) if run.rung is rung and run.case.numel][-1]


def among(ladder: Ladder, rung: Rung) -> Iterator[tuple[Config, Case]]:
    """The configs and cases of a rung in its ladder's cover: their kernels are built together."""
    for run in covering(ladder):
        if run.rung is rung:
            yield from ((config, run.case) for config in run.configs)


Chosen = dict[Case, list[Config]]


def _for_itself(ladder: Ladder, rung: Rung) -> Chosen:
    """The cases of a rung that do not depend on other rungs: 1 and 2 of the rule."""
    whole = thorough_cases(ladder)
    small = _taken(ladder, rung, rung.configs[0])
    small.sort(key=lambda case: (case not in whole, case.numel))
    small = [case for case in small if case.use != "big"]
    chosen: Chosen = {case: [rung.configs[0]] for case in small[:1]}
    if rung.backend == "inductor":
        return chosen
    for i, config in enumerate(further(rung), 1):
        cases = [case for case in _taken(ladder, rung, config) if case.use != "big"]
        if cases:
            chosen.setdefault(cases[i % len(cases)], []).append(config)
    return chosen


def further(rung: Rung) -> list[Config]:
    """The configs of 2 of the rule."""
    return list(rung.configs[1:][-1:])


def _deal(ladder: Ladder, chosen: dict[str, Chosen]) -> None:
    """3 and 4 of the rule."""
    served = [r for r in ladder.rungs if r.backend != "inductor" and runs_here(ladder, r)]
    for backend in dict.fromkeys(rung.backend for rung in served):
        _deal_among(ladder, [r for r in served if r.backend == backend], chosen, kinds, big=False)
    _deal_among(ladder, [r for r in served if r.is_gpu], chosen, sizes, big=True)


def _deal_among(
    ladder: Ladder,
    rungs: list[Rung],
    chosen: dict[str, Chosen],
    kinds: Callable[[Case], set[Hashable]],
    big: bool,
) -> None:
    """Assign cases to rungs until every kind is covered. `big`: including cases of more than 2^31
    elements."""
    taken = {rung.name: set(_taken(ladder, rung, rung.configs[0])) for rung in rungs}
    seen = {kind for rung in rungs for case in chosen[rung.name] for kind in kinds(case)}
    cases = [case for case in ladder.operator.cases if any(case in t for t in taken.values())]
    cases = [case for case in cases if big or case.use != "big"]
    for case in pick(cases, lambda case: kinds(case) - seen):
        takers = [rung for rung in rungs if case in taken[rung.name]]
        first = _dispatched(ladder, case) if case.use == "big" else ()  # others may take a minute
        rung = min(takers, key=lambda r: (r.name not in first, r.backend != "cuda",
                                          len(chosen[r.name])))  # fmt: skip
        chosen[rung.name].setdefault(case, [rung.configs[0]])


def _dispatched(ladder: Ladder, case: Case) -> tuple[str, ...]:
    return ladder.order(H200, **inspection.specs_of(ladder, case)) if ladder.order else ()


@cache
def runs_here(ladder: Ladder, rung: Rung) -> bool:
    """Whether a rung's kernels run on this machine, or are only compiled."""
    taken = _taken(ladder, rung, rung.configs[0])
    first = next((case for case in taken if case.numel), None)
    if here() == "cuda" or rung.backend not in ("triton", "cuda") or first is None:
        return True
    if hopper(ladder, rung, first):
        return False
    return cuda_kernels.beyond_a_cpu(ladder, rung, rung.configs[0], first) is None


def hopper(ladder: Ladder, rung: Rung, case: Case) -> bool:
    """Whether a rung's kernels for a case have Hopper's instructions, without code for a CPU."""
    if rung.backend != "cuda":
        return False
    kernels = cuda_kernels.kernels_of(ladder, rung, rung.configs[0], [case])
    return any(not k.emulated and cpu_executor.emulates(k) for k in kernels)


def dealt(ladder: Ladder) -> tuple[RungCase, ...]:
    """`covering`, without what only `make test-all` runs."""
    return tuple(run for run in covering(ladder) if not _left(ladder, run.rung, run.case))


def _left(ladder: Ladder, rung: Rung, case: Case) -> bool:
    named = f"{ladder.name}.{rung.name}" in HOPPER
    return here() == "cpu" and not named and hopper(ladder, rung, case)


def _checked(ladder: Ladder, rung: Rung, chosen: Chosen) -> Case | None:
    """5 of the rule: the case that runs every check."""
    first = rung.configs[0]
    with_first = (case for case, configs in chosen.items() if first in configs)
    return next((c for c in with_first if thorough(ladder, rung, first, c, here())), None)


def _taken(ladder: Ladder, rung: Rung, config: Config) -> list[Case]:
    return [r.case for r in every(ladder) if r.rung is rung and config in r.configs]


def kinds(case: Case) -> set[Hashable]:
    """The kinds of which a case is an example."""
    empty = set() if case.numel else {"empty"}
    return {case.dtype, case.layout, case.values} | empty


def sizes(case: Case) -> set[Hashable]:
    """The properties that distinguish a case from others of its kinds."""
    return {("shape", case.use, case.shape), ("params", case.params)}


def pick(items: Iterable[T], kinds: Callable[[T], set[Hashable]]) -> list[T]:
    """A subset of items that covers every kind. Each step takes the item that adds most kinds, then
    the one whose kinds are the rarest, then the first."""
    left, seen, chosen = [(item, kinds(item)) for item in items], Counter(), []

    def gain(entry: tuple[T, set[Hashable]]) -> tuple[int, int]:
        return sum(not seen[k] for k in entry[1]), -sum(seen[k] for k in entry[1])

    while left:
        best = max(left, key=gain)
        if gain(best)[0] == 0:
            break
        left.remove(best)
        seen.update(best[1])
        chosen.append(best[0])
    return chosen


def share(text: str) -> tuple[int, int]:
    """(2, 7) of "2/7"."""
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal() and 1 <= int(i) <= int(n)):
        raise ArgumentTypeError(f"{text!r}: must be I/N, such as 2/7")
    return int(i), int(n)


def everything(config: pytest.Config) -> bool:
    """Whether all tests run; tests given by name always do."""
    return config.option.all or any("::" in argument for argument in config.args)


def selected(items: list[pytest.Item], config: pytest.Config) -> list[pytest.Item]:
    """The tests of a run, in order."""
    by_function: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        by_function[_function(item)].append(item)
    kept: set[pytest.Item] = set()
    for group in by_function.values():
        if not everything(config):
            group = [item for item in group if not item.get_closest_marker("long")]
        if group and group[0].get_closest_marker("cover") and not everything(config):
            group = pick(group, _values)
        kept.update(group)
    i, n = config.option.share
    return [item for item in items if item in kept and zlib.crc32(_together(item)) % n == i - 1]


def _values(item: pytest.Item) -> set[Hashable]:
    """The values of a test's parameters."""
    return {(name, id(value)) for name, value in item.callspec.params.items()}


def _together(item: pytest.Item) -> bytes:
    """A key that is equal for tests that belong to the same part."""
    of = getattr(item, "callspec", None)
    if of and {"ladder", "run"} <= of.params.keys():
        return f"{of.params['ladder'].name}.{of.params['run'].rung.name}".encode()
    return _function(item).encode()


def _function(item: pytest.Item) -> str:
    return item.nodeid.split("[")[0]
