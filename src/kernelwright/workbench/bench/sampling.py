"""Draws cases that no rung was tuned on: shapes of real models, odd and random ones.

The strata of an operator follow from its bench cases. A sampled case takes one of them as a
template: its dtype, its parameters, and the meaning of each of its sizes (tokens, a width, a
vocabulary, a head). The sizes are then drawn again; the operator's input maker and reference, run
on tensors without data, determine whether they are valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from kernelwright.contract import Case, Operator, TensorSpec
from kernelwright.dispatch.generated import spec_of
from kernelwright.support.errors import UserError

# Sizes of published models: GPT-2, BERT, Llama, Qwen, Gemma, Mistral, DeepSeek, Phi, Falcon, ViT.
WIDTHS = (
    384, 512, 576, 768, 896, 960, 1024, 1152, 1280, 1536, 1600, 2048, 2304, 2560, 2816, 2880, 3072,
    3328, 3584, 4096, 4544, 4608, 4864, 5120, 5376, 5632, 6144, 6656, 6912, 7168, 8192, 8960, 9216,
    10240, 11008, 12288, 13824, 14336, 16384, 18944, 22016, 24576, 28672, 29568,
)  # fmt: skip
VOCABULARIES = (
    28996, 30522, 32000, 32064, 32128, 49152, 50257, 50265, 50280, 50304, 50368, 51200, 51865,
    64000, 65024, 65536, 100352, 102400, 122753, 128256, 129280, 131072, 151936, 152064, 250002,
    250880, 256000, 256206, 262144, 262208,
)  # fmt: skip
TOKENS = (
    1, 8, 16, 50, 77, 100, 128, 197, 256, 257, 384, 512, 577, 729, 1000, 1024, 1370, 1500, 2048,
    3000, 4096, 8192, 10000, 16384, 32768, 65536,
)  # fmt: skip
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
HEADS = (32, 40, 48, 64, 72, 80, 96, 112, 128, 160, 192, 256)

#: How a case's sizes are drawn. Vectorization and registers depend on the last size.
STRATA = ("model", "between", "odd", "random", "short")
THREADS = "threads"  # the parameter that follows from the GPU, not from a model
LONGEST = 1 << 18  # the largest size that is drawn at random
TRIES = 400  # draws per requested case before NotSampled is raised


class NotSampled(UserError, ValueError):
    """No drawn case is valid for an operator."""


def sample(
    operator: Operator, count: int, seed: int, most: int, least: int = 1
) -> list[tuple[str, Case]]:
    """`count` cases, each with its stratum; the strata are used in turn.

    The same seed gives the same cases; a forward and its backward share them.

    Args:
        most, least: limits of the bytes of a case's largest tensor.

    Raises:
        NotSampled: the operator has no bench case, or accepts none of the drawn ones.
    """
    rng = Random(f"{operator.name.removesuffix('.backward')} {seed}")
    templates = [c for c in operator.cases if c.use == "bench"]
    if not templates:
        raise NotSampled(f"{operator.name} has no bench cases from which others can be derived")
    known = {c.id for c in operator.cases}
    strata: dict[Case, str] = {}
    why = ""
    for turn in range(TRIES * count):
        stratum = STRATA[len(strata) % len(STRATA)]
        if turn % TRIES > TRIES // 2:  # the stratum may be impossible: rotary embeddings have no
            stratum = rng.choice(STRATA)  # odd heads
        drawn = _drawn(rng.choice(templates), stratum, rng, most)
        why = refusal(operator, drawn, most, least)
        if why is None and drawn not in strata and drawn.id not in known:
            strata[drawn] = stratum
        if len(strata) == count:
            return [(stratum, case) for case, stratum in strata.items()]
    raise NotSampled(f"{operator.name}: {len(strata)} of {count} cases found; the last: {why}")


def refusal(operator: Operator, case: Case, most: int, least: int = 1) -> str | None:
    """Why a case is invalid for an operator or has an unwanted size; None if it can be used."""
    try:
        inputs = operator.with_defaults(operator.inputs(case, "meta"))
        operator.reference(**inputs)
    except NotImplementedError:  # the reference reads data, so only the inputs are checked
        inputs = operator.with_defaults(operator.inputs(case, "meta"))
    except (AssertionError, IndexError, RuntimeError, TypeError, ValueError) as e:
        return f"{case.id}: {e}"  # these sizes are invalid by the operator's definition
    specs, _ = operator.normalise({k: spec_of(v) for k, v in inputs.items()})
    given, results = list(_specs(specs.values())), operator.outputs(**specs)
    if not all(t.numel() > 0 for t in (*given, *results[:1])):  # later results may be left out
        return f"{case.id}: a tensor has no elements"
    largest = max(t.nbytes for t in (*given, *results))
    if least <= largest <= most:
        return None
    return f"{case.id}: its largest tensor has {largest} bytes, not {least} to {most}"


def _specs(values: Iterable[Any]) -> Iterator[TensorSpec]:
    """The tensors among arguments, including those in lists."""
    for v in values:
        if isinstance(v, TensorSpec):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from _specs(v)


def _drawn(template: Case, stratum: str, rng: Random, most: int) -> Case:
    """The template with other sizes: those of `stratum`, in at most `most` bytes."""
    sizes = [_size(template, axis, stratum, rng) for axis in range(len(template.shape))]
    room = max(1, most // template.dtype.itemsize)
    if len(sizes) == 1:
        sizes = [min(sizes[0], room)]
    elif math.prod(sizes) > room:  # as many rows as fit, with the other sizes as drawn
        sizes[0] = max(1, room // math.prod(sizes[1:]))
    params = tuple(
        (k, v if k == THREADS else _parameter(v, stratum, rng)) for k, v in template.params
    )
    return replace(template, shape=tuple(sizes), params=params, use="verify", label=stratum)


def _size(template: Case, axis: int, stratum: str, rng: Random) -> int:
    value, last = template.shape[axis], len(template.shape) - 1
    if last == 0:
        return _elements(stratum, rng)
    if axis < last:
        if last == 3 and axis == 1:  # heads, whose number must fit the parameters of grouped heads
            return value
        pool = VOCABULARIES if value in VOCABULARIES else BATCHES if value <= 64 else TOKENS
        return rng.choice(pool) if stratum == "model" else _near(value, pool, rng)
    if value > 30000:
        return _last(VOCABULARIES, stratum, rng)
    return _last(HEADS if last >= 3 and value <= 256 else WIDTHS, stratum, rng)


def _elements(stratum: str, rng: Random) -> int:
    """The size of a 1-D tensor: tokens times a width, or any number."""
    if stratum == "model":
        return rng.choice(TOKENS) * rng.choice(WIDTHS)
    small = stratum == "short"
    exact = _log_uniform(64 if small else 1 << 16, 1 << 18 if small else 1 << 28, rng)
    return {"between": exact // 64 * 64 or 64, "odd": exact | 1}.get(stratum, exact)


def _last(pool: tuple[int, ...], stratum: str, rng: Random) -> int:
    """The last size: from `pool`, the sizes of real models, or from their range."""
    if stratum == "model":
        return rng.choice(pool)
    low, high = (1, 256) if stratum == "short" else (min(pool) // 2, max(pool))
    exact = _log_uniform(low, high, rng)
    if stratum == "between":
        step = 64 if high > 2048 else 8
        return max(step, exact // step * step)
    return exact | 1 if stratum == "odd" else exact


def _near(value: int, pool: tuple[int, ...], rng: Random) -> int:
    """A size of the pool's kind: one of its values, or any up to a multiple of the template's."""
    if rng.random() < 0.5:
        return rng.choice(pool)
    return _log_uniform(1, min(LONGEST, 4 * value), rng)


def _parameter(value: Any, stratum: str, rng: Random) -> Any:
    """A parameter that consists of sizes, drawn again; any other parameter unchanged."""
    if isinstance(value, (tuple, list)):
        return tuple(_parameter(v, stratum, rng) for v in value)
    if type(value) is not int or value < 256:
        return value
    if value in VOCABULARIES:
        return _last(VOCABULARIES, stratum, rng)
    return _last(WIDTHS, stratum, rng)


def _log_uniform(low: int, high: int, rng: Random) -> int:
    return round(math.exp(rng.uniform(math.log(max(low, 1)), math.log(high))))
