"""sample: tokens drawn from logits, with filters, in one launch."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from .._state import draw_state
from . import definition, heuristics, spec

RUNGS: tuple[Rung, ...] = (
    *rungs.pytorch(
        manual="a sort, cumulative sums, a race of clocks: in float32",
        native="the same in float64",
        compiled=None,
    ),
    rungs.cuda(
        "gumbel",
        "",
        "without filters: one read, the largest of logits and Gumbel numbers",
        heuristics.fits_gumbel,
        heuristics.ROW,
        heuristic=heuristics.choose_row,
    ),
    rungs.cuda(
        "block",
        "",
        "draws that are tested and drawn again: passes over a row in place of a sort",
        heuristics.fits,
        heuristics.ROW,
        heuristic=heuristics.choose_row,
    ),
    rungs.cuda(
        "cluster",
        "",
        "the row stays in registers and shared memory of a cluster",
        heuristics.fits_cluster,
        heuristics.CLUSTERS,
        heuristic=heuristics.choose_cluster,
    ),
    rungs.cuda(
        "shared_best",
        "",
        "a warp's threads share the best draw so far",
        heuristics.fits_cluster,
        heuristics.CLUSTERS,
        heuristic=heuristics.choose_cluster,
    ),
    rungs.cuda(
        "histogram",
        "",
        "a histogram brackets the thresholds before the first draw",
        heuristics.fits_histogram,
        heuristics.CLUSTERS,
        heuristic=heuristics.choose_cluster,
    ),
)
LADDER = Ladder(
    spec.SAMPLE, RUNGS, __name__, heuristics.order, heuristics.bucket, "peers:PEERS", emulated=True
)
_sample = bind(LADDER, vmap="loop")

Number = float | torch.Tensor


def sample(
    logits: torch.Tensor,
    temperature: Number = 1.0,
    top_k: int | torch.Tensor = 0,
    top_p: Number = 1.0,
    min_p: Number = 0.0,
    *,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """Draw one token per row of logits from softmax(logits / temperature), after filters.

    The filters apply in the order of the arguments, each to the tokens that the previous ones
    leave. Tokens with equal logits are either all kept or all removed.

    Args:
        logits: of shape (*, V). float32, float16 and bfloat16 have GPU rungs. NaN counts as
            -infinity; if there are +infinities, only these can be drawn, with equal probability.
        temperature: non-negative and finite; 0 selects the first of the most likely tokens.
        top_k: keep only tokens whose logit is not below the k-th largest; no effect if it is below
            1 or at least V.
        top_p: keep only tokens for which all more likely ones together have less than this
            probability; no effect at 1.
        min_p: keep only tokens with at least this fraction of the largest probability; no effect at
            0.
        generator: of the logits' device; by default PyTorch's. On a CPU it draws the exponential
            numbers itself.

    Each of the four parameters is a number, or a tensor of numbers that broadcasts to shape (*) and
    is not checked: temperatures that are not above 0 count as 0, top_p above 1 as 1 and below 0 as
    0.

    Returns:
        int64 of shape (*); -1 for rows in which every logit is -infinity.

    Raises:
        TypeError: logits is not a floating-point tensor.
        ValueError: logits have no tokens, a number is out of its range, or a tensor does not
            broadcast.

    Source: Gumbel-max: Maddison et al. 2014; rejection: FlashInfer, Ye et al. 2025.
    """
    arguments.floating("logits", logits)
    if not logits.ndim or not logits.shape[-1]:
        raise ValueError(f"logits: have no tokens, their shape is {tuple(logits.shape)}")
    how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    tensors = any(isinstance(v, torch.Tensor) for v in how.values())
    for name, v in how.items():
        if not isinstance(v, torch.Tensor):
            _check(name, v)
    if logits.device.type == "cpu":
        columns = (
            _column(logits, n, v)[:, None] if isinstance(v, torch.Tensor) else v
            for n, v in how.items()
        )
        return definition.by_clocks(logits, generator, *columns)
    state = draw_state(logits.device, generator, -(-logits.shape[-1] // 4))
    if tensors:
        columns = [_column(logits, name, v) for name, v in how.items()]
        own, plain = torch.stack(columns, -1), (1.0, 0.0, 1.0, 0.0)
    else:
        own, plain = None, (float(temperature), float(top_k), float(top_p), float(min_p))
    filtered = tensors or 1 <= top_k < logits.shape[-1] or top_p < 1 or min_p > 0
    return _sample(logits, state, own, *plain, filtered)


_RANGES = {
    "temperature": (lambda v: 0 <= v < math.inf, "finite and not negative"),
    "top_k": (lambda v: v >= 0, "not negative"),
    "top_p": (lambda v: 0 < v <= 1, "above 0 and at most 1"),
    "min_p": (lambda v: 0 <= v <= 1, "between 0 and 1"),
}


def _check(name: str, value: float) -> None:
    inside, says = _RANGES[name]
    if not inside(value):
        raise ValueError(f"{name}: must be {says}, is {value}")


def _column(logits: torch.Tensor, name: str, value: float | torch.Tensor) -> torch.Tensor:
    """One number per row, as float32."""
    rows = logits.shape[:-1]
    if not isinstance(value, torch.Tensor):
        return torch.full((math.prod(rows),), float(value), device=logits.device)
    try:
        return value.to(logits.device, torch.float32).broadcast_to(rows).flatten()
    except RuntimeError as e:
        raise ValueError(
            f"{name}: of shape {tuple(value.shape)}, does not broadcast to {tuple(rows)}"
        ) from e
