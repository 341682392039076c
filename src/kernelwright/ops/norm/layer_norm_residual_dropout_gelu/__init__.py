"""layer_norm_residual_dropout_gelu: gelu(dropout(layer_norm(x) + residual)) in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernelwright.contract import Ladder, Rung, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.arguments import agreed, draw_seed, flat, normalized, number, probability
from kernelwright.ops.norm.layer_norm import statistics

from . import heuristics, spec

OCTETS = Rung(
    "cuda_octets",
    "cuda",
    "cuda_octets:octets",
    "several vectors per thread: half the instructions per element",
    supports=heuristics.fits_block,
    configs=heuristics.OCTETS_CONFIGS,
    sources=("cuda_octets.cu",),
)

WALK = Rung(
    "cuda_walk",
    "cuda",
    "cuda_walk:walk",
    "blocks iterate over rows and prefetch the next one",
    supports=heuristics.fits_walk,
    configs=heuristics.WALK_CONFIGS,
    sources=("cuda_walk.cu",),
)


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(side, native="PyTorch's operators, one after another", compiled=None),
        rungs.triton(
            "row",
            side,
            "a row in registers from the mean to the gelu",
            heuristics.fits_triton,
            heuristics.TRITON_CONFIGS_BACKWARD if side else heuristics.TRITON_CONFIGS,
        ),
        rungs.cuda(
            "block",
            side,
            "one block per row, 16-byte vectors; in the backward, the next row is prefetched",
            heuristics.fits_block_backward if side else heuristics.fits_block,
            heuristics.BLOCK_CONFIGS_BACKWARD if side else heuristics.BLOCK_CONFIGS,
        ),
        *(() if side else (OCTETS, WALK)),
    )


_ORDER = heuristics.order, heuristics.bucket, "peers:PEERS"
LADDER = Ladder(spec.FORWARD, _rungs(), __name__, *_ORDER, emulated=True)
LADDER_BACKWARD = Ladder(spec.BACKWARD, _rungs("_backward"), __name__, *_ORDER, emulated=True)
# a batch dimension in front would move every element to another position of the mask
_chain = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=statistics.of_x)


def layer_norm_residual_dropout_gelu(
    input: torch.Tensor,
    residual: torch.Tensor,
    normalized_shape: int | Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    p: float = 0.5,
    training: bool = True,
    eps: float | None = None,
    approximate: str = "none",
) -> torch.Tensor:
    """gelu(dropout(layer_norm(input) + residual)), the operations in the order of the name.

    Intermediate values are float32, and the result is rounded once. The arguments, the mean and
    rstd of each row and the seed are saved for the backward, which recomputes the rest. The seed is
    drawn as in `dropout`.

    Args:
        input: shape (*, *normalized_shape). float32, float16 and bfloat16 have GPU rungs, for rows
            of up to 16,384 elements (Triton), 32,768 (CUDA), in the backward 8,192; float64 and
            longer rows use PyTorch's kernels.
        residual: of the input's shape; if dtypes differ, both are promoted to the wider one.
        normalized_shape: the last dimensions, over which mean and variance are computed; a number
            means only the last one.
        weight, bias: of normalized_shape, or None; may be wider than the input.
        p: probability of zeroing, 0 to 1, in steps of 2**-24.
        training: False drops nothing.
        eps: added to the variance; by default 1e-5.
        approximate: "none" for gelu by the error function, "tanh" for its approximation by tanh.

    Returns:
        A contiguous tensor of the input's shape and the wider dtype.

    Raises:
        TypeError: input or residual is not floating point.
        ValueError: a shape does not agree, p is not a probability, or approximate is neither
            "none" nor "tanh".

    Source: the operators in its name, applied one after another.
    """
    eps = 1e-5 if eps is None else number(eps)  # not the default: torch.compile would compile twice
    dims = normalized(input, normalized_shape, weight=weight, bias=bias)
    input, residual = agreed(input, residual)
    probability(p)
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: must be "none" or "tanh", is {approximate!r}')
    seed = None
    if p > 0.0 and training and input.numel():
        seed = draw_seed(input.device)
    if dims == 1:
        return _chain(input, residual, weight, bias, seed, p, eps, approximate)[0]
    rows = *flat(dims, input, residual), *flat(dims, weight, bias)
    return _chain(*rows, seed, p, eps, approximate)[0].view(input.shape)
