"""Decoding in PyTorch: gathers pages to a tensor, then applies the formula; index_put for new
tokens."""

import torch

from . import spec


def manual(q, k, v, table, lengths, scale, k_scale, v_scale):
    wide = torch.promote_types(q.dtype, torch.float32)
    y, lse = spec.reference(q.to(wide), k, v, table, lengths, scale, k_scale, v_scale)
    return y.to(q.dtype), lse


def native(q, k, v, table, lengths, scale, k_scale, v_scale):
    """PyTorch has no attention with a paged cache."""
    return manual(q, k, v, table, lengths, scale, k_scale, v_scale)


def native_update(keys, values, k, v, slots, kind, k_scale, v_scale):
    """A token with a negative slot writes the values of the first other token or, if there is none,
    the cache's current values, because the number of such tokens is known only on the GPU."""
    kept = slots >= 0
    chosen = torch.arange(slots.shape[0], device=slots.device)
    if slots.shape[0]:
        chosen = torch.where(kept, chosen, kept.int().argmax())
    at = slots[chosen]
    page, slot = at.clamp(0) // k.shape[1], at.clamp(0) % k.shape[1]
    written = (at >= 0).view(-1, 1, 1)
    for new, cache, scale in ((keys, k, k_scale), (values, v, v_scale)):
        stored = spec.stored(new, cache, kind, scale)[chosen]
        cache[page, slot] = torch.where(written, stored, cache[page, slot])
