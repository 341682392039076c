"""The rule that decides which cases run on which machine."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch

from kernelwright.contract import Case, Config, Ladder, Rung, TensorSpec
from kernelwright.toolchain import availability
from kernelwright.workbench import inspection

#: Elements of the largest case that a backend runs without a GPU, so that a case takes well under a
#: second: the simulator is the slowest by far, the interpreter is slower than the emulator.
LIMIT = {"torch": 2**18, "inductor": 2**13, "triton": 2**14, "cuda": 2**16, "numba": 200}


def skip(ladder: Ladder, rung: Rung, config: Config, case: Case, device: str) -> str | None:
    """Why a case does not run on this machine, or None. This function is the whole rule.

    With a GPU, all cases run except the bench cases, which `bench` verifies on the launch path that
    it times; configs after the first omit cases of more than 2**31 elements. Without one, a backend
    runs cases of up to LIMIT elements; inductor and the simulator run only a few cases; configs
    after the first run the thorough cases, with one call each.
    """
    if device == "cuda":
        if case.use == "bench":
            return "bench verifies it before timing it"
        if case.use == "big" and (config != rung.configs[0] or not rung.dispatchable):
            return "more than 2**31 elements: only dispatched rungs, with their first config"
        if rung.backend == "inductor" and case not in handful(ladder, rung.backend):
            return "each case takes seconds to compile: only a few run"
        return None
    missing = availability.missing(rung.backend, device)
    if missing:
        return missing
    if case.use == "big":
        return "more than 2**31 elements: needs a GPU"
    large = LIMIT[rung.backend]
    if case.numel > large or (case.use == "bench" and _elements(ladder, case) > large):
        return f"more than {large} elements: needs a GPU"
    if rung.backend in ("inductor", "numba") and case not in handful(ladder, rung.backend):
        return f"{rung.backend} runs only a few cases without a GPU"
    if config != rung.configs[0] and case not in thorough_cases(ladder):
        return "without a GPU, further configs run only one case of each dtype and layout"
    return None


@cache
def _elements(ladder: Ladder, case: Case) -> int:
    """The number of elements of the largest input, such as a cache."""
    specs = inspection.specs_of(ladder, case).values()
    return max(math.prod(s.shape) for s in specs if isinstance(s, TensorSpec))


@cache
def thorough_cases(ladder: Ladder) -> tuple[Case, ...]:
    """The cases that run every check. Among those with ordinary values and more than a few
    elements: the first two shapes of each dtype, the first case of each dtype and layout, and the
    first case of each set of parameters."""
    kept: list[Case] = []
    shapes: dict[torch.dtype, set[tuple[int, ...]]] = {}
    layouts: set[tuple[torch.dtype, str]] = set()
    params: set[tuple[tuple[str, Any], ...]] = set()
    for c in ladder.operator.cases:
        if c.use != "verify" or c.values != "normal" or c.numel <= 32:
            continue
        seen = shapes.setdefault(c.dtype, set())
        more_shapes = len(seen) < 2 and c.shape not in seen
        if more_shapes or (c.dtype, c.layout) not in layouts or c.params not in params:
            kept.append(c)
            seen.add(c.shape)
            layouts.add((c.dtype, c.layout))
            params.add(c.params)
    return tuple(kept)


def thorough(ladder: Ladder, rung: Rung, config: Config, case: Case, device: str) -> bool:
    """Whether all checks run on a case, including those that call the rung many times. On a GPU
    they run on the thorough cases with a rung's first config, and on one case of each dtype with
    the other configs, which change the launch but not the state that a rung keeps. Without a GPU
    they run on the thorough cases of PyTorch's and Triton's rungs, with their first config."""
    first = config == rung.configs[0]
    if device == "cuda":
        return case in (thorough_cases(ladder) if first else of_each_dtype(ladder))
    return first and rung.backend in ("torch", "triton") and case in thorough_cases(ladder)


@cache
def of_each_dtype(ladder: Ladder) -> tuple[Case, ...]:
    """The first thorough case of each dtype."""
    first: dict[torch.dtype, Case] = {}
    for c in thorough_cases(ladder):
        first.setdefault(c.dtype, c)
    return tuple(first.values())


@cache
def handful(ladder: Ladder, backend: str) -> tuple[Case, ...]:
    """The cases for backends that take seconds per case. If each case is compiled: one thorough
    case for each of two dtypes. In the simulator, which supports little besides float32: the first
    three shapes, and one case for each further set of parameters."""
    if backend == "inductor":
        return of_each_dtype(ladder)[:2]
    kept: list[Case] = []
    small: set[tuple[int, ...]] = set()
    params: set[tuple[tuple[str, Any], ...]] = set()
    for c in ladder.operator.cases:
        plain = c.dtype == torch.float32 and c.layout == "contiguous" and c.values == "normal"
        if plain and 0 < c.numel <= LIMIT["numba"]:
            if len(small | {c.shape}) <= 3 or c.params not in params:
                kept.append(c)
            small.add(c.shape)
            params.add(c.params)
    return tuple(kept)
