"""rope: rotary position embedding of q and k, in any order of their dimensions."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(
            side,
            manual="the formula, one kernel per operator",
            native="PyTorch's operators, written into halves of the result",
        ),
        rungs.triton(
            "token",
            side,
            "one token per program; its angles are loaded once for all heads",
            heuristics.fits_triton,
            heuristics.TRITON_CONFIGS,
        ),
        rungs.cuda(
            "vec16",
            side,
            "16-byte vectors; a thread uses its angles for several heads",
            heuristics.fits_vec16,
            heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_vec16,
        ),
    )


LADDER = Ladder(
    spec.FORWARD, _rungs(), __name__, heuristics.order, heuristics.bucket, "peers:PEERS"
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD, _rungs("_backward"), __name__, heuristics.order, heuristics.bucket, "peers:PEERS"
)
# each sample of a vmap may have its own tables, or none
_rope = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    cos: torch.Tensor | None = None,
    sin: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
    *,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    positions: torch.Tensor | None = None,
    base: float = 10000.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate pairs of dimensions of q and k by the angles of each token.

    A pair (a, b) becomes (a cos - b sin, b cos + a sin). The first five arguments are those of
    transformers' apply_rotary_pos_emb. For every dtype, the computation is in float32 or wider.

    Args:
        q: (B, H, T, D), or without B; float32, float16 and bfloat16 have GPU rungs. Any strides: a
            transposed (B, T, H, D) or a slice of a packed qkv is not copied.
        k: the same with its own number of heads.
        cos, sin: (T, W), (1, T, W) or (B, T, W), where W is rotary_dim (with each value twice, as
            models create them) or rotary_dim / 2. The first of two equal values is read. They have
            no gradient.
        unsqueeze_dim: the dimension of q and k that holds heads: 1 for (B, H, T, D), 2 (or -2) for
            (B, T, H, D).
        interleaved: pairs are neighbors (2i, 2i + 1), as in GPT-J; otherwise (i, i + rotary_dim /
            2).
        rotary_dim: the first rotary_dim dimensions of a head are rotated and the others copied; by
            default the width of cos, or all dimensions if angles are computed.
        positions: (T) or (B, T) integers, instead of cos and sin: pair i of the token at position p
            is rotated by p * base^(-2i / rotary_dim), accurately at every position.
        base: base of computed angles.

    Returns:
        Rotated q and k, of the same shapes and dtypes, dense in the order of their dimensions in
        memory.

    Raises:
        TypeError: q or k is not floating point, positions are not integers.
        ValueError: shapes do not agree, angles are given twice or not at all, or cos or sin
            requires a gradient.

    Source: RoFormer, Su et al., arXiv:2104.09864.
    """
    arguments.floating("q", q)
    arguments.floating("k", k)
    if q.dtype != k.dtype:
        raise TypeError(f"k: has dtype {k.dtype}, q has {q.dtype}")
    if q.ndim == 3 and k.ndim == 3:
        dim = unsqueeze_dim if unsqueeze_dim < 0 else unsqueeze_dim - 3
        yq, yk = rope(
            q.unsqueeze(0), k.unsqueeze(0), cos, sin, dim,
            interleaved=interleaved, rotary_dim=rotary_dim, positions=positions, base=base,
        )  # fmt: skip
        return yq.squeeze(0), yk.squeeze(0)
    if q.ndim != 4 or k.ndim != 4:
        raise ValueError(f"q, k: must both have 3 or 4 dimensions, have {q.ndim} and {k.ndim}")
    if unsqueeze_dim not in (1, 2, -3, -2):
        raise ValueError(f"unsqueeze_dim: must be 1 or 2 (-3 or -2), is {unsqueeze_dim}")
    heads_first = unsqueeze_dim in (1, -3)
    if not heads_first:
        q, k = q.transpose(1, 2), k.transpose(1, 2)
    batch, _, tokens, dims = q.shape
    if (k.shape[0], *k.shape[2:]) != (batch, tokens, dims):
        raise ValueError(
            f"k: shape {tuple(k.shape)} differs from q's {tuple(q.shape)} (batch, heads, tokens, "
            "dimensions) in more than the heads"
        )
    if positions is None:
        if cos is None or sin is None:
            raise ValueError("cos: pass cos and sin, or positions")
        arguments.floating("cos", cos)
        rotary = (cos.shape or (0,))[-1] if rotary_dim is None else rotary_dim
        _check_rotary_dim(rotary, dims)
        cos = _table("cos", cos, batch, tokens, rotary, interleaved)
        sin = _table("sin", sin, batch, tokens, rotary, interleaved)
    else:
        if cos is not None or sin is not None:
            raise ValueError("positions: pass either positions or cos and sin, not both")
        rotary = dims if rotary_dim is None else rotary_dim
        _check_rotary_dim(rotary, dims)
        positions = _positions(positions, batch, tokens)
    yq, yk = _rope(q, k, cos, sin, positions, float(base), rotary, bool(interleaved))
    return (yq, yk) if heads_first else (yq.transpose(1, 2), yk.transpose(1, 2))


def _check_rotary_dim(rotary: int, dims: int) -> None:
    if rotary % 2 or not 0 < rotary <= dims:
        raise ValueError(
            f"rotary_dim: must be even, above 0 and at most the {dims} dimensions of a head, "
            f"is {rotary}"
        )


def _table(name, table, batch: int, tokens: int, rotary: int, interleaved: bool):
    """(B, T, rotary / 2): a view of a table."""
    arguments.floating(name, table)
    if table.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"{name}: is not differentiable here; detach it")
    width = table.shape[-1] if table.ndim else 0
    fits = table.ndim in (2, 3) and table.shape[-2] == tokens and width in (rotary, rotary // 2)
    if not fits or (table.ndim == 3 and table.shape[0] not in (1, batch)):
        raise ValueError(
            f"{name}: has shape {tuple(table.shape)}, should be ({tokens}, {rotary}) or "
            f"({tokens}, {rotary // 2}), optionally after a dimension of {batch} or 1"
        )
    if width == rotary:
        table = table[..., ::2] if interleaved else table[..., : rotary // 2]
    return table.expand(batch, tokens, rotary // 2)


def _positions(positions, batch: int, tokens: int):
    arguments.tensor("positions", positions)
    if positions.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"positions: must be int32 or int64, are {positions.dtype}")
    if tuple(positions.shape) not in ((tokens,), (1, tokens), (batch, tokens)):
        raise ValueError(
            f"positions: have shape {tuple(positions.shape)}, should be ({tokens},) or "
            f"({batch}, {tokens})"
        )
    return positions.expand(batch, tokens)
