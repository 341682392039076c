"""paged_attention and reshape_and_cache: decoding over a cache of keys and values in pages."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind

from .. import _split_keys, _stream_keys
from . import heuristics, spec

__all__ = ["LADDER", "LADDER_UPDATE", "paged_attention", "reshape_and_cache"]

LADDER = Ladder(
    spec.OPERATOR,
    (
        *rungs.pytorch(native="pages gathered, then the formula", compiled=None),
        rungs.triton(
            "split",
            "",
            "keys split among programs, the heads that share them in one tile, then a merge",
            heuristics.fits,
            heuristics.CONFIGS,
        ),
        rungs.cuda(
            "split_mma",
            "",
            "keys split among blocks, a group's queries on tensor cores, merged in one launch",
            heuristics.fits_split,
            _split_keys.CONFIGS,
            heuristic=heuristics.choose_split,
            sources=("split/attend.cuh",),
        ),
        rungs.cuda(
            "split_bulk",
            "",
            "equal shares of all keys, copied in bulk by the copy engine",
            heuristics.fits_bulk,
            _stream_keys.CONFIGS,
            heuristic=heuristics.choose_bulk,
            sources=("split/parts.cuh", "split/stream.cuh"),
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
)
LADDER_UPDATE = Ladder(
    spec.UPDATE,
    (
        Rung("native", "torch", "torch_rungs:native_update", "index_put"),
        rungs.triton(
            "scatter",
            "",
            "one token per program, keys and values together",
            heuristics.fits_scatter,
            heuristics.SCATTER_CONFIGS,
        ),
    ),
    __name__,
    heuristics.order_update,
    heuristics.bucket_update,
)
_attention = bind(LADDER, vmap="loop")
_update = bind(LADDER_UPDATE, vmap="loop")


def paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    scale: float | None = None,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> torch.Tensor:
    """Attention of one new token per sequence over all tokens of the sequence in a paged cache.

    Args:
        query: (B, H, E). float32, float16 and bfloat16 have GPU rungs. It has no gradient.
        key_cache: (pages, page size, Hk, E), Hk a divisor of H; of the query's dtype, or
            float8_e4m3fn, float8_e5m2 or int8. A contiguous cache (B, S, Hk, E) is a cache of B
            pages.
        value_cache: (pages, page size, Hk, Ev), likewise.
        block_tables: (B, pages of the longest sequence) int32: the pages of each sequence. Entries
            after a sequence's last page are not read.
        seq_lens: (B,) int32: tokens of each sequence, including the new one.
        scale: of the scores; by default 1 / sqrt(E).
        k_scale, v_scale: factors of the elements of an 8-bit cache.

    Returns:
        (B, H, Ev) in the query's dtype; zeros for a sequence without tokens.

    Raises:
        TypeError: a dtype is not supported.
        ValueError: shapes do not agree, or the query requires a gradient.

    Source: Kwon et al., arXiv:2309.06180.
    """
    arguments.floating("query", query)
    _check_caches(query.dtype, key_cache, value_cache)
    if query.ndim != 3:
        raise ValueError(f"query: must have 3 dimensions, has {query.ndim}")
    if query.requires_grad and torch.is_grad_enabled():
        raise ValueError("query: is not differentiable; call within torch.no_grad()")
    b, h, d = query.shape
    if key_cache.shape[3] != d:
        raise ValueError(f"key_cache: has heads of {key_cache.shape[3]} elements, query of {d}")
    if key_cache.shape[2] == 0 or h % key_cache.shape[2]:
        raise ValueError(f"key_cache: {key_cache.shape[2]} heads do not divide query's {h}")
    for name, t, dims in (("block_tables", block_tables, 2), ("seq_lens", seq_lens, 1)):
        arguments.tensor(name, t)
        if t.dtype != torch.int32:
            raise TypeError(f"{name}: must be int32, is {t.dtype}")
        if t.ndim != dims or t.shape[0] != b:
            raise ValueError(f"{name}: has shape {tuple(t.shape)}, query has {b} sequences")
    if scale is None:
        scale = 1.0 / math.sqrt(d) if d else 1.0
    scales = (float(scale), float(k_scale), float(v_scale))
    return _attention(query, key_cache, value_cache, block_tables, seq_lens, *scales)[0]


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    k_scale: float = 1.0,
    v_scale: float = 1.0,
) -> None:
    """Write keys and values of new tokens to their slots of a cache of pages, in place.

    Args:
        key: (tokens, Hk, E), floating, any strides.
        value: (tokens, Hk, Ev).
        key_cache, value_cache: as in `paged_attention`; of key's dtype or of 8 bits.
        slot_mapping: (tokens,) int64: page * page size + position in the page, all different. A
            token with a negative slot is not written.
        k_scale, v_scale: elements are divided by them for an 8-bit cache, rounded, and clamped to
            the range of its dtype.

    Raises:
        TypeError: a dtype is not supported.
        ValueError: shapes do not agree.

    Source: Kwon et al., Efficient Memory Management for Large Language Model Serving with
    PagedAttention, arXiv:2309.06180.
    """
    arguments.floating("key", key)
    arguments.floating("value", value)
    _check_caches(key.dtype, key_cache, value_cache)
    arguments.tensor("slot_mapping", slot_mapping)
    if value.dtype != key.dtype:
        raise TypeError(f"value: has dtype {value.dtype}, key has {key.dtype}")
    if slot_mapping.dtype != torch.int64:
        raise TypeError(f"slot_mapping: must be int64, is {slot_mapping.dtype}")
    for name, t, cache in (("key", key, key_cache), ("value", value, value_cache)):
        if t.ndim != 3 or t.shape[1:] != cache.shape[2:]:
            raise ValueError(
                f"{name}: has shape {tuple(t.shape)}, its cache heads of {tuple(cache.shape[2:])}"
            )
        if t.shape[:1] != slot_mapping.shape:
            raise ValueError(f"{name}: has {t.shape[0]} tokens, slots {tuple(slot_mapping.shape)}")
    kind = next((n for n, dtype in spec.CACHES.items() if dtype == key_cache.dtype), "")
    caches = (spec.bits(key_cache), spec.bits(value_cache))
    _update(key, value, *caches, slot_mapping, kind, float(k_scale), float(v_scale))


def _check_caches(dtype: torch.dtype, key_cache: torch.Tensor, value_cache: torch.Tensor) -> None:
    for name, t in (("key_cache", key_cache), ("value_cache", value_cache)):
        arguments.tensor(name, t)
        if t.dtype != dtype and t.dtype not in heuristics.BYTES:
            raise TypeError(f"{name}: must be {dtype}, float8 or int8, is {t.dtype}")
        if t.ndim != 4 or t.shape[1] == 0:
            raise ValueError(f"{name}: must be (pages, page size, heads, head size)")
    if value_cache.dtype != key_cache.dtype:
        raise TypeError(f"value_cache: {value_cache.dtype} is not key_cache's {key_cache.dtype}")
    if value_cache.shape[:3] != key_cache.shape[:3]:
        raise ValueError(
            f"value_cache: has shape {tuple(value_cache.shape)}, key_cache {tuple(key_cache.shape)}"
        )
