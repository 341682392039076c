"""Tensors of the same values with other strides, between elements that corrupt what reads them."""

import torch

from kernelwright.workbench.verify.candidate import copy_of


def sliced(t):
    """Every second element of each dimension of a larger tensor."""
    step = 1
    strides = []
    for n in reversed(t.shape):
        strides.append(2 * step)
        step *= 2 * n + 1
    return copy_of(
        torch.empty_strided(t.shape, strides[::-1], dtype=t.dtype, device=t.device).copy_(t)
    )


def rows(t):
    """The first columns of a wider tensor."""
    wide = t.new_empty(*t.shape[:-1], t.shape[-1] + 3)
    return copy_of(wide[..., : t.shape[-1]].copy_(t))


def transposed(t):
    """Dense, with the first dimension the innermost."""
    return copy_of(t.permute(*reversed(range(t.ndim))).contiguous().permute(*range(t.ndim)[::-1]))


def expanded(t):
    """The first of each dimension for all: stride 0. Other values than those of t."""
    return copy_of(t[(slice(0, 1),) * t.ndim].expand(t.shape))


def expanded_rows(t):
    """The first row for all rows."""
    return copy_of(t[:1].expand(t.shape))


#: Expanded tensors cannot be written to.
STRIDES = {f.__name__: f for f in (sliced, rows, transposed, expanded, expanded_rows)}
WRITABLE = ("sliced", "rows", "transposed")


def contiguous(t):
    return t.clone(memory_format=torch.contiguous_format)
