"""rand, randn and bernoulli: the numbers of PyTorch's CUDA generator, from 16-byte stores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.contract.inputs import FLOATS
from kernelwright.dispatch import bind, override, proven_on
from kernelwright.ops._out import written
from kernelwright.ops.arguments import probability

from .._state import draw_state
from . import heuristics, spec
from .grid import calls_of, threads_of

_BERNOULLI_CALLS = 3  # PyTorch advances its generator by ten words, rounded up


def _rungs(side: str, fits=heuristics.fits) -> tuple[Rung, ...]:
    quad = rungs.cuda(
        "quad",
        side,
        "all four words of a call, a grid's width apart",
        heuristics.fits_steps,
        heuristics.THREADS,
    )
    return (
        Rung(
            "native",
            "torch",
            f"torch_rungs:native{side}",
            "Philox in PyTorch's integer operators",
        ),
        rungs.cuda("thread", side, "an element per thread", fits, heuristics.THREADS),
        *(() if side == "_bernoulli" else (quad,)),
        _vec16(side),
    )


def _vec16(side: str) -> Rung:
    idea = "neighbors' calls under one schedule of keys, 16-byte stores"
    if side == "_bernoulli":
        fits, configs, choose = heuristics.fits_bernoulli_vec16, heuristics.PROBABLE, None
    else:
        fits, configs, choose = heuristics.fits_steps, heuristics.VEC16, heuristics.choose_vec16
    return rungs.cuda("vec16", side, idea, fits, configs, heuristic=choose)


def _ladder(
    operator, found, order=heuristics.order, bucket=heuristics.bucket, public=None
) -> Ladder:
    return Ladder(
        operator, found, __name__, order, bucket, "peers:PEERS", emulated=True, public=public
    )


LADDER = _ladder(spec.RAND, _rungs("_uniform"))
LADDER_NORMAL = _ladder(spec.RANDN, _rungs("_normal"))
LADDER_P = _ladder(spec.BERNOULLI_P, _rungs("_p"))
LADDER_BERNOULLI = _ladder(
    spec.BERNOULLI,
    _rungs("_bernoulli", heuristics.fits_bernoulli),
    heuristics.order_bernoulli,
    heuristics.bucket_bernoulli,
    spec.public_bernoulli,
)
_rand = bind(LADDER, vmap="loop")
_randn = bind(LADDER_NORMAL, vmap="loop")
_bernoulli_p = bind(LADDER_P, vmap="loop")
_bernoulli = bind(LADDER_BERNOULLI, gradient=spec.gradient, vmap="loop")


def rand(
    *size: int | Sequence[int],
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Uniform numbers in [0, 1), as torch.rand.

    On a GPU the numbers are bitwise identical to those of torch.rand for the same state of the
    generator, which advances equally, for results of up to 2 GiB; README.md lists the exceptions.
    On other devices, and for dtypes other than float32, float16 and bfloat16, torch.rand itself is
    called, unless `kw.use` names a rung; on a CPU that draws a seed from PyTorch's generator and
    the numbers of an H200.

    Args:
        size: integers, or one sequence of them.
        generator: of the result's device; by default PyTorch's.
        out: a tensor of the result's shape, or an empty one, to which the result is copied.
        dtype, device: of the result; by default those of `out`, or else PyTorch's defaults.
        requires_grad: whether autograd records operations on the result.

    Raises:
        TypeError: size contains something other than integers.
        ValueError: a size is negative, or generator is of another kind of device.

    Source: Philox: Salmon et al., SC 2011.
    """
    return _drawn(LADDER, _rand, torch.rand, size, generator, out, dtype, device, requires_grad)


def randn(
    *size: int | Sequence[int],
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None,
    requires_grad: bool = False,
) -> torch.Tensor:
    """Normal numbers of mean 0 and variance 1, as torch.randn.

    Args:
        size, generator, out, dtype, device, requires_grad: as in `rand`; its statement on identical
            numbers also applies here.

    Raises:
        TypeError: size contains something other than integers.
        ValueError: a size is negative, or generator is of another kind of device.

    Source: Box and Muller, Annals of Mathematical Statistics 29, 1958.
    """
    return _drawn(
        LADDER_NORMAL, _randn, torch.randn, size, generator, out, dtype, device, requires_grad
    )


def bernoulli(
    input: torch.Tensor,
    p: float | None = None,
    *,
    generator: torch.Generator | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """1 with a probability, else 0, as torch.bernoulli.

    On a GPU the numbers are those of torch.bernoulli for a contiguous input and the same state of
    the generator, which advances equally.

    Args:
        input: probabilities; the result has its shape and dtype, and its gradient is zero. On a
            GPU, numbers below 0 and NaN give 0, numbers above 1 give 1.
        p: one probability in place of the input's.
        generator: of the input's device; by default PyTorch's.
        out: a tensor of the result's shape, or an empty one, to which the result is copied.

    Returns:
        A contiguous tensor.

    Raises:
        TypeError: input is not a tensor.
        ValueError: p is not a probability, or generator is of another kind of device.
    """
    arguments.tensor("input", input)
    if p is not None:
        probability(p)
    ladder = LADDER_BERNOULLI if p is None else LADDER_P
    if not _ours(ladder, input.device, input.dtype, input.numel()):
        given = (input,) if p is None else (input, p)
        y = torch.bernoulli(*given, generator=generator)
    elif p is None:
        state = draw_state(input.device, generator, _BERNOULLI_CALLS)
        y = _bernoulli(state, input.contiguous())
    else:
        y = _bernoulli_p(*_state_of(input.shape, input.device, generator), p, input.dtype)
    return y if out is None else written(out, y)


def _drawn(
    ladder: Ladder,
    ours: Callable,
    pytorch: Callable,
    size: tuple,
    generator: torch.Generator | None,
    out: torch.Tensor | None,
    dtype: torch.dtype | None,
    device: torch.device | str | int | None,
    requires_grad: bool,
) -> torch.Tensor:
    shape = _shape(size)
    if out is not None:
        arguments.tensor("out", out)
        dtype, device = dtype or out.dtype, device or out.device
    dtype = dtype or torch.get_default_dtype()
    where = torch.get_default_device() if device is None else torch.device(device)
    if _ours(ladder, where, dtype, math.prod(shape)):
        y = ours(*_state_of(shape, where, generator), dtype)
    else:
        y = pytorch(shape, generator=generator, dtype=dtype, device=where)
    y = y if out is None else written(out, y)
    return y.requires_grad_() if requires_grad else y


def _ours(ladder: Ladder, device: torch.device, dtype: torch.dtype, n: int) -> bool:
    """Whether a rung computes the call: one that the user chose, or on a GPU a proven one."""
    if override(ladder.name) is not None:
        return True
    return device.type == "cuda" and dtype in FLOATS and n > 0 and _proven(ladder.name)


def _proven(name: str) -> bool:
    """Whether a rung of the operator is dispatched. Otherwise PyTorch's operator draws the same
    numbers, faster than `native`."""
    (ladder,) = (x for x in _LADDERS if x.name == name)
    return any(proven_on(ladder, ladder.rung(rung)) for rung in ladder.order(None))


_LADDERS = LADDER, LADDER_NORMAL, LADDER_P, LADDER_BERNOULLI
setattr(_proven, "_dynamo_marked_constant", True)  # noqa: B010  torch.compile does not trace it


def _state_of(shape, device, generator) -> tuple[torch.Tensor, tuple[int, ...], int]:
    """The first arguments of a call that fills a tensor in the same way as PyTorch's grid."""
    n = math.prod(shape)
    threads = threads_of(n, device)
    return draw_state(device, generator, calls_of(n, threads)), tuple(shape), threads


def _shape(size: tuple) -> tuple[int, ...]:
    if len(size) == 1 and isinstance(size[0], Sequence):
        size = tuple(size[0])
    for n in size:
        if not isinstance(n, (int, torch.SymInt)):
            raise TypeError(f"size: must be integers, has a {type(n).__name__}")
        if n < 0:
            raise ValueError(f"size: must not be negative, has {n}")
    return size
