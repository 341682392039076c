"""scaled_dot_product_attention: from the formula to products and exponentials that overlap."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import bind, recorded
from kernelwright.ops.arguments import draw_seed, probability

from . import dynamic_tiling, heuristics, hopper_tiling, spec, statistics

__all__ = ["LADDER", "LADDER_BACKWARD", "scaled_dot_product_attention"]

_NATIVE = "PyTorch's cuDNN or FlashAttention-2 kernels, otherwise the formula"


def _pytorch() -> tuple[Rung, ...]:
    manual, native = rungs.pytorch(native=_NATIVE, compiled=None)
    return manual, replace(native, aten=heuristics.aten)


def _pytorch_backward() -> tuple[Rung, ...]:
    """The rung `native` with FlashAttention-2, which adds up the gradients of queries with
    atomics."""
    manual, native = rungs.pytorch("_backward", native=_NATIVE, compiled=None)
    return manual, replace(native, deterministic=False, aten=heuristics.aten_backward)


RUNGS = (
    *_pytorch(),
    rungs.cuda(
        "staged",
        "",
        "three kernels: scores, softmax, values",
        heuristics.fits_plain,
        ({},),
        dispatchable=False,
    ),
    rungs.cuda(
        "tiled",
        "",
        "one kernel: tiles of keys, online softmax; scores stay on the chip",
        heuristics.fits_tiled,
        ({},),
        dispatchable=False,
    ),
    rungs.cuda(
        "mma",
        "",
        "FlashAttention-2 by mma.sync: a warp has 16 queries, weights stay in registers",
        heuristics.fits_mma,
        heuristics.MMA_CONFIGS,
    ),
    rungs.triton(
        "flash",
        "",
        "FlashAttention-2: a block of queries per program, every option",
        heuristics.fits_triton,
        heuristics.FORWARD_CONFIGS,
        heuristic=heuristics.choose_forward,
    ),
    Rung(
        "cuda_wgmma",
        "cuda",
        "cuda_hopper:wgmma",
        "two warp groups in ping-pong: exponentials of one overlap with products of the other",
        supports=hopper_tiling.fits,
        configs=hopper_tiling.WGMMA_CONFIGS,
        sources=("cuda_wgmma.cu",),
    ),
    Rung(
        "cuda_wgmma_persistent",
        "cuda",
        "cuda_hopper:persistent",
        "a block iterates over many tiles; loads of the next overlap with the last product",
        supports=hopper_tiling.fits,
        configs=hopper_tiling.PERSISTENT_CONFIGS,
        heuristic=hopper_tiling.choose_persistent,
        sources=("cuda_wgmma_persistent.cu",),
    ),
    Rung(
        "cuda_wgmma_dynamic",
        "cuda",
        "cuda_dynamic:dynamic",
        "blocks take tiles from a counter, in an order that keeps keys and values in L2",
        supports=hopper_tiling.fits,
        configs=dynamic_tiling.DYNAMIC_CONFIGS,
        heuristic=dynamic_tiling.choose_dynamic,
        sources=("cuda_wgmma_dynamic.cu",),
    ),
    Rung(
        "cuda_wgmma_wide",
        "cuda",
        "cuda_dynamic:wgmma_wide",
        "heads of up to 256 elements: the kernel of cuda_wgmma with tiles of 80 keys",
        supports=dynamic_tiling.fits_wide,
        configs=({},),
        sources=("cuda_wgmma_wide.cu",),
    ),
)
RUNGS_BACKWARD = (
    *_pytorch_backward(),
    Rung(
        "triton_flash",
        "triton",
        "triton_flash_backward:plan",
        "weights recomputed; separate kernels for gk, gv and for gq, no atomics",
        supports=heuristics.fits_triton,
        configs=heuristics.BACKWARD_CONFIGS,
    ),
    Rung(
        "cuda_wgmma",
        "cuda",
        "cuda_hopper:wgmma_backward",
        "one kernel for gk and gv, another for gq; weights and dS stay in registers",
        supports=hopper_tiling.fits,
        configs=hopper_tiling.BACKWARD_CONFIGS,
        sources=("cuda_bwd_dot.cu", "cuda_wgmma_keys.cu", "cuda_wgmma_queries.cu"),
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket, "peers:PEERS")
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    RUNGS_BACKWARD,
    __name__,
    heuristics.order_backward,
    heuristics.bucket,
    "peers:PEERS",
)
_attention = bind(LADDER, LADDER_BACKWARD, vmap="loop", statistics=statistics.saved)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(scale query key^T + attn_mask) value, as
    torch.nn.functional.scaled_dot_product_attention.

    A key that is masked by `is_causal`, by False or by -inf has no effect, whatever its score is,
    even NaN. A query whose keys are all masked gives zeros, and no gradient passes through it.

    Args:
        query: (*, H, L, E) or (L, E). float32, float16 and bfloat16 have GPU rungs. Any strides: a
            transposed (B, L, H, E) or a slice of a packed qkv is not copied, and the result has the
            same order in memory.
        key: (*, H, S, E), of the query's dtype; dimensions before the heads broadcast.
        value: (*, H, S, Ev).
        attn_mask: broadcasts to (*, H, L, S): boolean, True where a query sees a key; or floating
            point, added to the scores. A floating-point mask may require a gradient.
        dropout_p: probability of dropping a weight; applies whether or not a module is training.
            The seed comes from PyTorch's generator of the query's device.
        is_causal: query i sees keys 0 to i, even if L and S differ; not together with attn_mask.
        scale: of the scores; by default 1 / sqrt(E).
        enable_gqa: key and value may have fewer heads, a divisor of the number of query heads; each
            is used by a group of consecutive query heads.

    Returns:
        (*, H, L, Ev) in the query's dtype, or autocast's dtype under autocast.

    Raises:
        TypeError: an argument is not floating point, or dtypes do not agree.
        ValueError: shapes do not agree, dropout_p is not a probability, or attn_mask is given with
            is_causal.

    Source: Dao, FlashAttention-2, arXiv:2307.08691.
    """
    if attn_mask is None and isinstance(dropout_p, (int, float)) and dropout_p == 0:
        y = _repeated(query, key, value, is_causal, scale, enable_gqa)
        if y is not None:
            return y
    for name, t in (("query", query), ("key", key), ("value", value)):
        arguments.floating(name, t)
        if t.ndim < 2:
            raise ValueError(f"{name}: must have at least 2 dimensions, has {t.ndim}")
    query, key, value = autocast.cast(query, query, key, value)
    if key.dtype != query.dtype:
        raise TypeError(f"key: has dtype {key.dtype}, query has {query.dtype}")
    if value.dtype != query.dtype:
        raise TypeError(f"value: has dtype {value.dtype}, query has {query.dtype}")
    try:
        probability(dropout_p)
    except (TypeError, ValueError) as e:
        raise type(e)(f"dropout_{e}") from None
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(f"key: has heads of {key.shape[-1]} elements, query of {query.shape[-1]}")
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(f"value: has {value.shape[-2]} rows, key has {key.shape[-2]}")
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    arguments.real("scale", scale)
    if scale < 0:
        query, scale = -query, -scale

    batch, heads, q, k, v = _with_four_dimensions(query, key, value, enable_gqa)
    mask = None
    if attn_mask is not None:
        if is_causal:
            raise ValueError("attn_mask: must not be given with is_causal; mask later keys in it")
        mask = _mask(attn_mask, query.dtype, (*batch, heads, q.shape[2], k.shape[2]))
    wants = mask is not None and mask.is_floating_point() and recorded(mask)
    seed = draw_seed(query.device) if dropout_p > 0.0 else None
    y, _ = _attention(q, k, v, mask, seed, is_causal, wants, float(scale), float(dropout_p))
    dims = max(query.ndim, key.ndim, value.ndim)
    if len(batch) > 1:
        return y.unflatten(0, batch)
    return y if dims == 4 else y.squeeze(0) if dims == 3 else y.squeeze(0).squeeze(0)


def _repeated(query, key, value, is_causal, scale, grouped) -> torch.Tensor | None:
    """The result without a mask and dropout if a call like this one has run before."""
    if not isinstance(query, torch.Tensor) or not isinstance(key, torch.Tensor):
        return None
    if query.ndim != 4 or key.ndim != 4 or not (width := query.size(3)):
        return None
    if not grouped and key.size(1) not in (1, query.size(1)):
        return None
    if scale is None:
        scale = 1.0 / math.sqrt(width)
    elif not isinstance(scale, (int, float)) or scale < 0:
        return None
    results = _attention.repeated(
        query, key, value, None, None, is_causal, False, float(scale), 0.0
    )
    return results and results[0]


def _with_four_dimensions(query, key, value, grouped: bool):
    """(the common batch dimensions, the result's heads, query, key, value as (B, H, rows,
    columns))."""
    if query.ndim == key.ndim == value.ndim == 4:
        b, heads = query.shape[:2]  # the frequent case needs no views
        of_key, own = key.shape[:2]
        fits = own == heads or (grouped and own and heads % own == 0)
        if of_key == b and fits and key.shape[:2] == value.shape[:2]:
            return (b,), heads, query, key, value
    batch, heads = _leading(query, key, value, grouped)
    own = _heads(key) if _heads(key) == _heads(value) else heads
    return (
        batch,
        heads,
        _four(query, batch, heads),
        _four(key, batch, own),
        _four(value, batch, own),
    )


def _heads(t: torch.Tensor) -> int:
    return t.shape[-3] if t.ndim > 2 else 1


def _leading(query, key, value, grouped: bool) -> tuple[tuple[int, ...], int]:
    """(the common batch dimensions, the result's heads)."""
    try:
        batch = torch.broadcast_shapes(*(t.shape[:-3] for t in (query, key, value)))
    except RuntimeError:
        shapes = ", ".join(str(tuple(t.shape)) for t in (query, key, value))
        raise ValueError(f"key: batches of {shapes} do not broadcast") from None
    heads = _heads(query)
    for name, t in (("key", key), ("value", value)):
        own = _heads(t)
        if grouped and (own == 0 or heads % own) and heads:
            raise ValueError(f"{name}: {own} heads do not divide the query's {heads}")
        if not grouped and own != heads and own != 1:
            if heads != 1:
                raise ValueError(
                    f"{name}: has {own} heads, query has {heads}; enable_gqa is not set"
                )
            heads = own
    return tuple(batch), heads


def _four(t: torch.Tensor, batch: tuple[int, ...], heads: int) -> torch.Tensor:
    """(B, heads, rows, columns): batch dimensions merged, heads repeated if there are fewer."""
    own = _heads(t)
    if t.ndim == 2:
        t = t.unsqueeze(0)
    if own != heads:
        t = (
            t.expand(*t.shape[:-3], heads, -1, -1)
            if own == 1
            else t.repeat_interleave(heads // own, -3)
        )
    t = t.expand(*batch, *t.shape[-3:])
    return t if len(batch) == 1 else t.unsqueeze(0) if not batch else t.flatten(0, len(batch) - 1)


def _mask(mask, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """(B or 1, heads or 1, L, S), expanded along dimensions that it lacks."""
    arguments.tensor("attn_mask", mask)
    if mask.dtype not in (torch.bool, torch.float32, dtype):
        raise TypeError(f"attn_mask: must be boolean, float32 or {dtype}, is {mask.dtype}")
    if mask.ndim > len(shape):
        raise ValueError(f"attn_mask: has {mask.ndim} dimensions, the scores have {len(shape)}")
    kept = (1,) * (len(shape) - mask.ndim) + tuple(mask.shape)
    for own, n in zip(kept, shape, strict=True):
        if own not in (1, n):
            raise ValueError(f"attn_mask: {tuple(mask.shape)} does not broadcast to {tuple(shape)}")
    mask = mask[(None,) * (len(shape) - mask.ndim)]
    batch = kept[:-3]
    if any(n != 1 for n in batch):
        batch = shape[:-3]
    mask = mask.expand(*batch, kept[-3], *shape[-2:])
    if len(batch) != 1:
        mask = mask.flatten(0, len(batch) - 1) if batch else mask.unsqueeze(0)
    return mask
