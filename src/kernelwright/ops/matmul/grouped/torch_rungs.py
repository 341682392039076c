"""grouped_mm and grouped_swiglu in PyTorch: a loop over groups, and its grouped product."""

import itertools

import torch
import torch.nn.functional as F


def manual(a, b, offsets):
    """One product per group. The host needs the ends of the groups, so it waits for the GPU."""
    wide = torch.promote_types(a.dtype, torch.float32)
    return _loop(a.to(wide), b.to(wide), offsets).to(a.dtype)


def native(a, b, offsets):
    """PyTorch's grouped product if it supports the operands: bfloat16, with lines of multiples of
    16 bytes, on a GPU. Otherwise a loop over groups."""
    if _taken(a, b):
        return torch._grouped_mm(a, b, offs=offsets.contiguous())
    return _loop(a, b, offsets)


def manual_swiglu(a, b, offsets):
    wide = torch.promote_types(a.dtype, torch.float32)
    gate, up = _loop(a.to(wide), b.to(wide), offsets).chunk(2, -1)
    return (gate * torch.sigmoid(gate) * up).to(a.dtype)


def native_swiglu(a, b, offsets):
    """The grouped product, rounded, then PyTorch's operators."""
    gate, up = native(a, b, offsets).chunk(2, -1)
    return F.silu(gate) * up


def _loop(a, b, offsets):
    bounds = [0, *offsets.tolist()]
    pairs = itertools.pairwise(bounds)
    return torch.cat([a[i:j] @ b[g] for g, (i, j) in enumerate(pairs)])


def _taken(a, b) -> bool:
    if not a.is_cuda or 0 in (*a.shape, *b.shape) or {a.dtype, b.dtype} != {torch.bfloat16}:
        return False
    if torch.cuda.get_device_capability(a.device) < (9, 0):
        return False
    return even(a) and even(b)


def even(t) -> bool:
    """Whether one of the last two dimensions is contiguous and the other strides are multiples of
    16 bytes."""
    *outer, down, across = t.stride()
    rows, cols = t.shape[-2:]
    lines = (down, cols) if across == 1 else (across, rows)
    others = all(s * t.itemsize % 16 == 0 for s in (*outer, lines[0]))
    return 1 in (down, across) and others and lines[0] >= lines[1] and t.data_ptr() % 16 == 0
