"""index_select: slices by their numbers, as rows of a table: the operator `embedding`."""

from __future__ import annotations

import torch

from kernelwright.contract import arguments
from kernelwright.ops._out import written
from kernelwright.ops.embedding.lookup import embedding

from .index_add import as_rows, numbered, rows_along


def index_select(
    input: torch.Tensor, dim: int, index: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The slices of input that index names, as torch.index_select.

    Args:
        input: any shape. Floating-point input is served by the kernels of `embedding`, whose
            gradient has the same bits every time; other dtypes by PyTorch.
        dim: the dimension of input whose slices are numbered.
        index: int32 or int64 numbers of slices, one dimension or none; one may come again.
        out: a tensor of the result's shape, or an empty one, that the result is copied to; a
            gradient is not possible then.

    Returns:
        A tensor of the input's shape with len(index) in `dim`; `out` where it is given.

    Raises:
        TypeError: input is no tensor, or index is not int32 or int64.
        ValueError: index has more than one dimension.
        IndexError: dim is out of range; on a CPU, so is a number in index. A GPU stops with a
            device-side assertion, as in PyTorch.
    """
    arguments.tensor("input", input)
    dim = numbered(input, dim, index)
    if input.ndim == 0 or not input.is_floating_point():
        y = torch.index_select(input, dim, index)
    else:
        flat = rows_along(index.reshape(-1), input, dim)
        shape = (*input.shape[:dim], index.numel(), *input.shape[dim + 1 :])
        y = embedding(flat, as_rows(input, dim)).reshape(shape)
    return y if out is None else written(out, y)
