"""linear_attention: a state instead of a cache, from the recurrence to chunks on tensor cores."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec

__all__ = ["LADDER", "LADDER_BACKWARD", "linear_attention"]


_PLANS = {
    "": "triton_chunked:plan",
    "_backward": "triton_chunked_backward:plan_backward",
}


def _rungs(side: str = "") -> tuple[Rung, ...]:
    return (
        Rung("manual", "torch", f"torch_rungs:manual{side}", "the recurrence, one token at a time",
             supports=heuristics.fits_manual, dispatchable=False),
        Rung("quadratic", "torch", f"torch_rungs:quadratic{side}", "a masked square of scores",
             supports=heuristics.fits_quadratic, dispatchable=False),
        Rung("native", "torch", f"torch_rungs:native{side}", "chunks of 64, and their states"),
        Rung("triton_chunked", "triton", _PLANS[side], "states, then all chunks in parallel",
             supports=heuristics.fits_triton, configs=heuristics.CONFIGS,
             heuristic=heuristics.choose),
    )  # fmt: skip


LADDER = Ladder(
    spec.FORWARD,
    (
        *_rungs(),
        rungs.cuda(
            "recurrent",
            "",
            "decoding: a state in registers, read and written once",
            heuristics.fits_recurrent,
            ({},),
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
    "peers:PEERS",
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    _rungs("_backward"),
    __name__,
    heuristics.order_backward,
    heuristics.bucket,
    "peers:PEERS",
)
_attention = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def linear_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor | None = None,
    *,
    scale: float | None = None,
    initial_state: torch.Tensor | None = None,
    output_final_state: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Causal linear attention with a scalar decay. At each token, the state of a head becomes S =
    exp(g) S + k^T v, and the output is scale q S.

    To decode, pass one or a few new tokens, the previous state as `initial_state`, and
    `output_final_state=True`.

    Args:
        q: (B, H, L, K). float32, float16 and bfloat16 have GPU rungs. Any strides: a transposed (B,
            L, H, K) is not copied, nor are heads that are expanded from fewer heads.
        k: (B, H, L, K), of q's dtype.
        v: (B, H, L, V), of q's dtype.
        g: log of the decay, floating point: (B, H, L) for each token or (H,) for each head; by
            default no decay. -inf removes all earlier tokens. Positive values may overflow.
        scale: of the output; by default 1 / sqrt(K).
        initial_state: (B, H, K, V), floating; by default zeros.
        output_final_state: whether to return the state after the last token.

    Returns:
        (B, H, L, V) in q's dtype; and the last state, (B, H, K, V) in float32 (float64 for
        float64), or None. All tensor arguments have gradients, through both results.

    Raises:
        TypeError: an argument is not floating point, or dtypes do not agree.
        ValueError: shapes do not agree.

    Source: Katharopoulos et al., arXiv:2006.16236; Sun et al., RetNet, arXiv:2307.08621.
    """
    for name, t in (("q", q), ("k", k), ("v", v)):
        arguments.floating(name, t)
        if t.ndim != 4:
            raise ValueError(f"{name}: must have 4 dimensions, has {t.ndim}")
    q, k, v = autocast.cast(q, q, k, v)
    for name, t in (("k", k), ("v", v)):
        if t.dtype != q.dtype:
            raise TypeError(f"{name}: has dtype {t.dtype}, q has {q.dtype}")
    if k.shape != q.shape:
        raise ValueError(f"k: has shape {tuple(k.shape)}, q has {tuple(q.shape)}")
    if v.shape[:3] != q.shape[:3]:
        raise ValueError(f"v: has shape {tuple(v.shape)}, q has {tuple(q.shape)}")
    if g is not None:
        g = _decay(g, q)
    if initial_state is not None:
        arguments.floating("initial_state", initial_state)
        shape = (*q.shape[:2], q.shape[3], v.shape[3])
        if initial_state.shape != shape:
            raise ValueError(
                f"initial_state: has shape {tuple(initial_state.shape)}, should be {tuple(shape)}"
            )
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[3]) if q.shape[3] else 1.0
    y, final = _attention(q, k, v, g, initial_state, bool(output_final_state), float(scale))
    return y, final if output_final_state else None


def _decay(g: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    arguments.floating("g", g)
    if g.shape == q.shape[1:2]:
        return g.view(1, -1, 1).expand(q.shape[:3])
    if g.shape != q.shape[:3]:
        raise ValueError(
            f"g: has shape {tuple(g.shape)}, should be {tuple(q.shape[:3])} or ({q.shape[1]},)"
        )
    return g
