"""log_softmax: PyTorch's kernels with the argument names and errors of this library.

It has no ladder, because PyTorch's kernels already read and write each element once in both
directions, which is the minimum (a row that does not fit on chip is read twice). A loss should not
call it: `kw.cross_entropy` reads the logits once and writes nothing of their size.
"""

from __future__ import annotations

import torch
from torch.nn.functional import _get_softmax_dim

from kernelwright.contract import arguments
from kernelwright.dispatch import on_rows


def log_softmax(
    input: torch.Tensor,
    dim: int | None = None,
    _stacklevel: int = 3,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x - log(sum(exp x)) along `dim`, as torch.nn.functional.log_softmax, by PyTorch's kernels.

    Args:
        input: any shape.
        dim: the dimension along which the exponentials of the result sum to 1. With None, a
            dimension is chosen and a warning printed, as in PyTorch.
        dtype: cast the input to it first; on a GPU this happens in the same kernel.

    Returns:
        A tensor of the input's shape.

    Raises:
        TypeError: input is not floating point, and no dtype is given.
        IndexError: dim is out of range.
    """
    arguments.tensor("input", input)
    if dtype is None:
        arguments.floating("input", input)
    if dim is None:
        dim = _get_softmax_dim("log_softmax", input.ndim, _stacklevel)
    arguments.dimension("dim", dim, input.ndim)
    if input.is_nested:
        dim = dim if dim < 0 else dim - input.ndim
        y = on_rows(lambda values: torch.log_softmax(values, dim, dtype=dtype), input, (dim,))
        if y is None:
            raise NotImplementedError("input: is jagged in dim; call it on each of unbind()")
        return y
    return torch.log_softmax(input, dim, dtype=dtype)
