"""attention_varlen over pages: several queries of each sequence and a cache of keys and values."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops.attention.paged.heuristics import BYTES

from .._options import scale_of
from . import heuristics, spec

__all__ = ["LADDER", "attention_varlen_paged"]

LADDER = Ladder(
    spec.OPERATOR,
    (
        Rung(
            "native",
            "torch",
            "torch_rungs:native",
            "pages gathered, then the formula, one sequence or block of keys after another",
            syncs_host=True,
        ),
        rungs.triton(
            "pages",
            "",
            "queries times heads in tiles that programs find, pages looked up, parts merged",
            heuristics.fits,
            heuristics.CONFIGS,
            heuristic=heuristics.choose,
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
)
_attention = bind(LADDER, vmap="loop")


def attention_varlen_paged(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    block_table: torch.Tensor,
    seqused_k: torch.Tensor,
    *,
    is_causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    sinks: torch.Tensor | None = None,
    alibi_slopes: torch.Tensor | None = None,
    scale: float | None = None,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
    split: int = 0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of new tokens over the keys and values of their sequences in a paged cache: steps
    of generation, pieces of prompts, or both in one call.

    `attention_varlen` with a `block_table` calls it. The keys of the new tokens are in the cache
    already. The last query of a sequence is at the position of its last key.

    Args:
        query: (tokens, H, E), packed. It has no gradient.
        key: (pages, page size, Hk, E), Hk a divisor of H; of the query's dtype, or
            float8_e4m3fn, float8_e5m2 or int8.
        value: (pages, page size, Hk, Ev), likewise.
        cu_seqlens_q: (sequences + 1,) int32: the first token of each sequence, and finally the end
            of the last one. Tokens of query after it are padding.
        block_table: (sequences, pages of the longest sequence) int32: the pages of each sequence.
            Entries after a sequence's last page are not read.
        seqused_k: (sequences,) int32: the number of keys of each sequence, new tokens included. The
            host does not read the values of these three tensors, so wrong values raise no error.
        is_causal, window, softcap, sinks, alibi_slopes, scale: as in `attention_varlen`.
        k_scale, v_scale: factors of the elements of an 8-bit cache.
        split: 0, or the number of keys in a block. With blocks of a fixed number of keys, which are
            computed alone and merged in their order, the bits of a token's result depend on its
            query and on the keys that it sees, not on the other tokens and sequences, the page
            size, or the piece of a prompt in which it is computed. In 0 the number follows from the
            shapes, which is faster.

    Returns:
        ((tokens, H, Ev) in the query's dtype, (H, tokens) float32 or wider: the logarithm of each
        query's sum of exponentials). For a query that sees no key, and for padding, zeros and the
        sink's score, or -inf without sinks.

    Raises:
        TypeError: a dtype is not supported.
        ValueError: shapes do not agree, a number is out of range, or the query requires a gradient.

    Source: Dao, FlashAttention-2, arXiv:2307.08691; Kwon et al., arXiv:2309.06180.
    """
    arguments.floating("query", query)
    if query.ndim != 3:
        raise ValueError(f"query: must have 3 dimensions, has {query.ndim}")
    if query.requires_grad and torch.is_grad_enabled():
        raise ValueError("query: is not differentiable; call within torch.no_grad()")
    _check_caches(query, key, value)
    _check_tables(cu_seqlens_q, block_table, seqused_k)
    scale = scale_of(query, window, softcap, sinks, alibi_slopes, scale)
    for name, t in (("sinks", sinks), ("alibi_slopes", alibi_slopes)):
        if t is not None and t.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name}: is not differentiable; call within torch.no_grad()")
    left, right = window
    if split < 0:
        raise ValueError(f"split: must be at least 0, is {split}")
    return _attention(
        query, key, value, cu_seqlens_q, block_table, seqused_k, sinks, alibi_slopes, left,
        0 if is_causal else right, softcap > 0, split, scale, float(softcap),
        float(k_scale), float(v_scale),
    )  # fmt: skip


def _check_caches(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    for name, t in (("key", key), ("value", value)):
        arguments.tensor(name, t)
        if t.dtype != query.dtype and t.dtype not in BYTES:
            raise TypeError(f"{name}: must be {query.dtype}, float8 or int8, is {t.dtype}")
        if t.ndim != 4 or t.shape[1] == 0:
            raise ValueError(f"{name}: must be (pages, page size, heads, head size)")
    if value.dtype != key.dtype:
        raise TypeError(f"value: {value.dtype} is not key's {key.dtype}")
    if value.shape[:3] != key.shape[:3]:
        raise ValueError(f"value: has shape {tuple(value.shape)}, key {tuple(key.shape)}")
    if key.shape[3] != query.shape[2]:
        raise ValueError(f"key: has heads of {key.shape[3]} elements, query of {query.shape[2]}")
    if key.shape[2] == 0 or query.shape[1] % key.shape[2]:
        raise ValueError(f"key: {key.shape[2]} heads do not divide the query's {query.shape[1]}")


def _check_tables(ends: torch.Tensor, table: torch.Tensor, lengths: torch.Tensor) -> None:
    names = ("cu_seqlens_q", ends, 1), ("block_table", table, 2), ("seqused_k", lengths, 1)
    for name, t, dims in names:
        arguments.tensor(name, t)
        if t.dtype != torch.int32:
            raise TypeError(f"{name}: must be int32, is {t.dtype}")
        if t.ndim != dims:
            raise ValueError(f"{name}: must have {dims} dimensions, has {t.ndim}")
    if ends.shape[0] == 0:
        raise ValueError("cu_seqlens_q: must have sequences + 1 elements, has none")
    for name, t in (("block_table", table), ("seqused_k", lengths)):
        if t.shape[0] != ends.shape[0] - 1:
            raise ValueError(
                f"{name}: is of {t.shape[0]} sequences, cu_seqlens_q of {ends.shape[0] - 1}"
            )
