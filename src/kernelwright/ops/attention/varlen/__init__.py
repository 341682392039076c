"""attention_varlen: packed sequences, windows, soft caps, sinks, ALiBi."""

from __future__ import annotations

from typing import Literal, overload

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from .._options import scale_of
from . import heuristics, spec, statistics

__all__ = ["LADDER", "LADDER_BACKWARD", "attention_varlen"]

_NATIVE = "the formula, one sequence after another"
LADDER = Ladder(
    spec.FORWARD,
    (
        Rung("native", "torch", "torch_rungs:native", _NATIVE, syncs_host=True),
        rungs.triton(
            "varlen",
            "",
            "FlashAttention-2 over packed sequences; tiles outside the window are skipped",
            heuristics.fits,
            heuristics.CONFIGS,
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    (
        Rung("native", "torch", "torch_rungs:native_backward", _NATIVE, syncs_host=True),
        Rung(
            "triton_varlen",
            "triton",
            "triton_varlen_backward:plan",
            "separate kernels for the gradients of keys and queries, no atomics",
            supports=heuristics.fits,
            configs=heuristics.BACKWARD_CONFIGS,
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
)
_attention = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=statistics.saved)


@overload
def attention_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    split: int = 0,
    return_lse: Literal[False] = False,
) -> torch.Tensor: ...


@overload
def attention_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    split: int = 0,
    return_lse: Literal[True],
) -> tuple[torch.Tensor, torch.Tensor]: ...


def attention_varlen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *,
    is_causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    scale: float | None = None,
    block_table: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    split: int = 0,
    return_lse: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Attention over sequences that are stored one after the other; a query attends only to its own
    sequence.

    If a sequence's numbers of queries and keys differ, its last query is at the position of its
    last key: query i of n is at position i + m - n among m keys.

    Args:
        query: (tokens, H, E). float32, float16 and bfloat16 have GPU rungs; any strides.
        key: (tokens, Hk, E), Hk a divisor of H. value: (tokens, Hk, Ev).
        cu_seqlens_q, cu_seqlens_k: (sequences + 1,) int32: the start of each sequence, and finally
            the end of the last one, which is the number of tokens of query or of key. The host does
            not read their values, so wrong values raise no error.
        max_seqlen_q, max_seqlen_k: at least the length of the longest sequence.
        is_causal: a query sees no later keys.
        window: how many keys before and after its own position a query sees; -1 means no limit.
        softcap: if above 0, scores become softcap tanh(score / softcap).
        sinks: (H,) an additional score in each query's softmax that belongs to no key. It may
            require a gradient.
        alibi_slopes: (H,) float32: the slope times the distance of query and key is subtracted from
            the score. It has no gradient.
        scale: of the scores, at least 0; by default 1 / sqrt(E).
        block_table, seqused_k: (sequences, pages) and (sequences,) int32. With them key and value
            are caches of pages, (pages, page size, Hk, E) and (pages, page size, Hk, Ev), in which
            sequence b has seqused_k[b] keys, the new tokens' included, on the pages block_table[b].
            cu_seqlens_k is None, the maximal lengths are not used, and nothing has a gradient.
        k_scale, v_scale, split: with `block_table`, as in `attention_varlen_paged`.
        return_lse: with `block_table`, whether the logarithm of each query's sum of exponentials
            is returned too: (H, tokens), float32 or wider.

    Returns:
        (tokens, H, Ev) in the query's dtype; zeros for a query that sees no key.

    Raises:
        TypeError: an argument is not floating point or has another dtype.
        ValueError: shapes do not agree, or a number is out of range.

    Source: Dao, FlashAttention-2, arXiv:2307.08691.
    """
    if block_table is not None:
        if cu_seqlens_k is not None:
            raise ValueError("cu_seqlens_k: must be None beside block_table, which has seqused_k")
        if seqused_k is None:
            raise ValueError("seqused_k: is needed beside block_table")
        _check_longest(max_seqlen_q, max_seqlen_k)
        from ..varlen_paged import attention_varlen_paged  # its formula is this package's

        y, lse = attention_varlen_paged(
            query, key, value, cu_seqlens_q, block_table, seqused_k, is_causal=is_causal,
            window=window, softcap=softcap, sinks=sinks, alibi_slopes=alibi_slopes, scale=scale,
            k_scale=k_scale, v_scale=v_scale, split=split,
        )  # fmt: skip
        return (y, lse) if return_lse else y
    for name, given in (
        ("seqused_k", seqused_k is not None),
        ("k_scale", k_scale != 1.0),
        ("v_scale", v_scale != 1.0),
        ("split", split != 0),
        ("return_lse", return_lse),
    ):
        if given:
            raise ValueError(f"{name}: is for keys in pages, which block_table gives")
    for name, t in (("query", query), ("key", key), ("value", value)):
        arguments.floating(name, t)
        if t.ndim != 3:
            raise ValueError(f"{name}: must have 3 dimensions, has {t.ndim}")
        if t.dtype != query.dtype:
            raise TypeError(f"{name}: has dtype {t.dtype}, query has {query.dtype}")
    heads = query.shape[1]
    if key.shape[2] != query.shape[2]:
        raise ValueError(f"key: has heads of {key.shape[2]} elements, query of {query.shape[2]}")
    if value.shape[:2] != key.shape[:2]:
        raise ValueError(f"value: {tuple(value.shape[:2])} is not key's {tuple(key.shape[:2])}")
    if key.shape[1] == 0 or heads % key.shape[1]:
        raise ValueError(f"key: {key.shape[1]} heads do not divide the query's {heads}")
    if cu_seqlens_k is None:
        raise TypeError("cu_seqlens_k: is needed without block_table")
    _check_ends(cu_seqlens_q, cu_seqlens_k)
    _check_longest(max_seqlen_q, max_seqlen_k)
    scale = scale_of(query, window, softcap, sinks, alibi_slopes, scale)
    if alibi_slopes is not None and alibi_slopes.requires_grad:
        raise ValueError("alibi_slopes: is not differentiable")
    left, right = window
    return _attention(
        query, key, value, cu_seqlens_q, cu_seqlens_k,
        None if sinks is None else sinks.contiguous(),
        None if alibi_slopes is None else alibi_slopes.contiguous(),
        max_seqlen_q, max_seqlen_k, left, 0 if is_causal else right, softcap > 0, scale,
        float(softcap),
    )[0]  # fmt: skip


def _check_longest(max_seqlen_q: int, max_seqlen_k: int) -> None:
    for name, n in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if n < 0:
            raise ValueError(f"{name}: must be at least 0, is {n}")


def _check_ends(cu_q: torch.Tensor, cu_k: torch.Tensor) -> None:
    for name, t in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        arguments.tensor(name, t)
        if t.dtype != torch.int32:
            raise TypeError(f"{name}: must be int32, is {t.dtype}")
        if t.ndim != 1 or t.shape[0] < 1:
            raise ValueError(f"{name}: must have one dimension, of sequences + 1 elements")
    if cu_q.shape != cu_k.shape:
        raise ValueError(f"cu_seqlens_k: {cu_k.shape[0]} ends, cu_seqlens_q has {cu_q.shape[0]}")
