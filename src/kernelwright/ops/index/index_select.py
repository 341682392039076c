"""index_select: slices selected by index, as rows of a table, by the operator `embedding`."""

from __future__ import annotations

import torch

from kernelwright.contract import arguments
from kernelwright.ops._out import written
from kernelwright.ops.embedding.lookup import embedding

from .index_add import as_rows, numbered, rows_along


def index_select(
    input: torch.Tensor, dim: int, index: torch.Tensor, *, out: torch.Tensor | None = None
) -> torch.Tensor:
    """The slices of input that index selects, as torch.index_select.

    Args:
        input: any shape. Floating-point input uses the kernels of `embedding`, whose gradient is
            deterministic; other dtypes use PyTorch's kernels.
        dim: the dimension of input along which slices are selected.
        index: int32 or int64 indices of slices, with one dimension or none; entries may repeat.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; no
            gradient is possible with it.

    Returns:
        A tensor of the input's shape with len(index) in `dim`; `out` if it is given.

    Raises:
        TypeError: input is not a tensor, or index is not int32 or int64.
        ValueError: index has more than one dimension.
        IndexError: dim is out of range; on a CPU, also if an entry of index is. On a GPU such an
            entry triggers a device-side assertion, as in PyTorch.
    """
    arguments.tensor("input", input)
    dim = numbered(input, dim, index)
    arguments.in_range("index", index, input.shape[dim] if input.ndim else 1)
    if input.ndim == 0 or not input.is_floating_point():
        y = torch.index_select(input, dim, index)
    else:
        flat = rows_along(index.reshape(-1), input, dim)
        shape = (*input.shape[:dim], index.numel(), *input.shape[dim + 1 :])
        y = embedding(flat, as_rows(input, dim)).reshape(shape)
    return y if out is None else written(out, y)
