"""Decoding in PyTorch: the formula, and scaled_dot_product_attention with a mask."""

import math

import torch
import torch.nn.functional as F

from . import spec


def manual(q, k, v, k_cache, v_cache, lengths, scale):
    wide = torch.promote_types(q.dtype, torch.float32)
    for new, cache in ((k, k_cache), (v, v_cache)):
        spec.store(new, cache, lengths)
    groups, seen = q.to(wide).unflatten(1, (k.shape[1], -1)), spec.visible(k_cache, lengths)
    scores = torch.einsum("bgrd,bgsd->bgrs", groups, k_cache.to(wide)) * scale
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    values = v_cache.to(wide).masked_fill(~seen.mT, 0.0)
    return torch.einsum("bgrs,bgsd->bgrd", weights, values).flatten(1, 2).to(q.dtype)


def native(q, k, v, k_cache, v_cache, lengths, scale):
    """On a CPU, over the positions of the longest sequence; on a GPU, where the host would have to
    wait for this number, over the whole cache."""
    if q.numel() == 0:
        return torch.empty_like(q, memory_format=torch.contiguous_format)
    for new, cache in ((k, k_cache), (v, v_cache)):
        spec.store(new, cache, lengths)
    if not q.is_cuda:
        longest = int(lengths.max()) + 1
        k_cache, v_cache = k_cache[:, :, :longest], v_cache[:, :, :longest]
    seen = spec.visible(k_cache, lengths)
    mask = torch.where(seen, 0.0, -math.inf).to(q.dtype)
    # positions after the end of a sequence may contain anything, including NaN
    k_cache, v_cache = (t.masked_fill(~seen.mT, 0.0) for t in (k_cache, v_cache))
    # a kernel of PyTorch 2.11 stops with "misaligned address" on a query off a boundary of 16 bytes
    q = q.clone(memory_format=torch.contiguous_format)
    y = F.scaled_dot_product_attention(
        q.unsqueeze(2), k_cache, v_cache, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y.squeeze(2).contiguous()
