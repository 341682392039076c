"""attention_with_kv_cache: a decoding step over a contiguous cache of keys and values."""

from __future__ import annotations

import math

import torch

from kernelwright.contract import Ladder, arguments, rungs
from kernelwright.dispatch import bind

from .. import _split_keys, _stream_keys
from . import heuristics, spec

__all__ = ["LADDER", "attention_with_kv_cache"]

LADDER = Ladder(
    spec.OPERATOR,
    (
        *rungs.pytorch(
            manual="scatter, then the formula over all positions",
            native="scatter, then scaled_dot_product_attention with a mask",
            compiled=None,
        ),
        rungs.cuda(
            "block", "", "one block per head of the cache", heuristics.fits, heuristics.BLOCK,
            sources=("decode.cuh",),
        ),
        rungs.cuda(
            "cluster", "", "a head's keys shared by a cluster", heuristics.fits_cluster,
            heuristics.CLUSTER, heuristic=heuristics.choose_cluster, sources=("decode.cuh",),
        ),
        rungs.cuda(
            "split_mma", "", "keys split among blocks, a group's queries on tensor cores",
            heuristics.fits_split, _split_keys.CONFIGS, heuristic=heuristics.choose_split,
            sources=("../paged/split/attend.cuh",),
        ),
        rungs.cuda(
            "split_bulk", "", "equal shares of all keys, copied in bulk by the copy engine",
            heuristics.fits_bulk, _stream_keys.CONFIGS, heuristic=heuristics.choose_bulk,
            sources=("../paged/split/stream.cuh",),
        ),
    ),
    __name__,
    heuristics.order,
    heuristics.bucket,
)  # fmt: skip
_attention = bind(LADDER, vmap="loop")


def attention_with_kv_cache(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    cache_seqlens: torch.Tensor,
    scale: float | None = None,
) -> torch.Tensor:
    """Store the new token of each sequence in a contiguous cache, in place, and return its
    attention over all tokens of the sequence, itself included.

    Args:
        query: (B, H, E). float32, float16 and bfloat16 have GPU rungs. It has no gradient.
        key, value: (B, Hk, E), of the new tokens; Hk a divisor of H.
        key_cache, value_cache: (B, Hk, S, E), of the query's dtype, any strides. Position
            cache_seqlens[b] of sequence b is written; positions after it are not read.
        cache_seqlens: (B,) int64: tokens of each sequence before the new one, less than S. On a
            CPU a larger one is an IndexError; a GPU stops with a device-side assertion.
        scale: of the scores; by default 1 / sqrt(E).

    Returns:
        (B, H, E) in the query's dtype.

    Raises:
        TypeError: dtypes differ, or cache_seqlens is not int64.
        ValueError: shapes do not agree, or an argument requires a gradient.
        IndexError: on a CPU, a sequence has no position left.

    Source: Dao et al., Flash-Decoding, 2023; the arguments are those of FlashAttention's
    flash_attn_with_kvcache.
    """
    tensors = {"query": query, "key": key, "value": value, "key_cache": key_cache,
               "value_cache": value_cache}  # fmt: skip
    for name, t in tensors.items():
        arguments.floating(name, t)
        if t.dtype != query.dtype:
            raise TypeError(f"{name}: is {t.dtype}, query is {query.dtype}")
        if t.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name}: is not differentiable; call within torch.no_grad()")
    if query.ndim != 3:
        raise ValueError(f"query: must have 3 dimensions, has {query.ndim}")
    b, h, d = query.shape
    if key_cache.ndim != 4 or (key_cache.shape[0], key_cache.shape[3]) != (b, d):
        raise ValueError(
            f"key_cache: has shape {tuple(key_cache.shape)}, should be ({b}, heads, positions, {d})"
        )
    g = key_cache.shape[1]
    if g == 0 or h % g:
        raise ValueError(f"key_cache: {g} heads do not divide query's {h}")
    if value_cache.shape != key_cache.shape:
        raise ValueError(
            f"value_cache: has shape {tuple(value_cache.shape)}, key_cache {tuple(key_cache.shape)}"
        )
    for name, t in (("key", key), ("value", value)):
        if t.shape != (b, g, d):
            raise ValueError(f"{name}: has shape {tuple(t.shape)}, should be {(b, g, d)}")
    arguments.tensor("cache_seqlens", cache_seqlens)
    if cache_seqlens.dtype != torch.int64:
        raise TypeError(f"cache_seqlens: must be int64, is {cache_seqlens.dtype}")
    if cache_seqlens.shape != (b,):
        raise ValueError(
            f"cache_seqlens: has shape {tuple(cache_seqlens.shape)}, query has {b} sequences"
        )
    if cache_seqlens.device.type == "cpu" and b:
        longest, least = int(cache_seqlens.max()), int(cache_seqlens.min())
        if least < 0 or longest >= key_cache.shape[2]:
            raise IndexError(
                f"cache_seqlens: {longest if least >= 0 else least} is not between 0 and"
                f" {key_cache.shape[2] - 1}, the cache's last position"
            )
    if scale is None:
        scale = 1.0 / math.sqrt(d) if d else 1.0
    return _attention(query, key, value, key_cache, value_cache, cache_seqlens, float(scale))
