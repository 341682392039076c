"""Decoding in PyTorch: pages gathered into a tensor, then the formula; index_put for new tokens."""

import torch

from . import spec


def manual(q, k, v, table, lengths, scale, k_scale, v_scale):
    wide = torch.promote_types(q.dtype, torch.float32)
    y, lse = spec.reference(q.to(wide), k, v, table, lengths, scale, k_scale, v_scale)
    return y.to(q.dtype), lse


def native(q, k, v, table, lengths, scale, k_scale, v_scale):
    """PyTorch has no attention over pages."""
    return manual(q, k, v, table, lengths, scale, k_scale, v_scale)


def native_update(keys, values, k, v, slots, kind, k_scale, v_scale):
    """Waits for the GPU to know how many slots there are."""
    spec.update_reference(keys, values, k, v, slots, kind, k_scale, v_scale)
