"""index_add: rows added to rows selected by index, in a fixed order."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec

RUNGS = (
    Rung(
        "manual", "torch", "torch_rungs:manual", "a product and a sum, in float32",
        dispatchable=False, deterministic=False,
    ),
    # PyTorch adds by atomics on a GPU
    Rung(
        "native", "torch", "torch_rungs:native", "PyTorch's own operator", deterministic=False
    ),
    rungs.cuda(
        "atomics", "", "a copy, then atomic additions in L2, in float32", heuristics.fits,
        heuristics.ATOMICS, dispatchable=False, deterministic=False,
    ),
    rungs.cuda(
        "small", "", "few rows: each position is compared with all others", heuristics.fits_small,
        heuristics.SMALL,
    ),
    rungs.cuda(
        "ordered", "", "runs of positions, added in order; each row read and written once",
        heuristics.fits, heuristics.SLOTS, sources=("cuda_find_runs.cu",),
    ),
)  # fmt: skip
RUNGS_BACKWARD = (
    *rungs.pytorch("_backward", manual="rows selected by index, times alpha", compiled=None),
    rungs.cuda(
        "vec16",
        "_backward",
        "16-byte vectors, several in flight",
        heuristics.fits_backward,
        heuristics.VEC16,
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    RUNGS_BACKWARD,
    __name__,
    heuristics.order_backward,
    heuristics.bucket_backward,
)
# each sample of a vmap may have its own rows
_index_add = bind(LADDER, LADDER_BACKWARD, vmap="loop", same_gradient={"x": "y"})


def index_add(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: float = 1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """A copy of input to whose slices, selected by index, those of source are added, as
    torch.index_add.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs, which add in float32 and
            give the same bits every time; other dtypes use PyTorch's kernels.
        dim: the dimension that the index refers to.
        index: int32 or int64 indices of slices, with one dimension or none; entries may repeat.
        source: the slices, of the shape of input with len(index) in `dim`, and its dtype.
        alpha: factor of source; read at each call.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the input's shape; `out` if it is given.

    Raises:
        TypeError: index is not int32 or int64, or source and input have different dtypes.
        ValueError: the shapes do not agree.
        IndexError: dim is out of range; on a CPU, also if an entry of index is. On a GPU such an
            entry triggers a device-side assertion, as in PyTorch.
    """
    arguments.tensor("input", input)
    arguments.tensor("source", source)
    dim = numbered(input, dim, index)
    if source.dtype != input.dtype:
        raise TypeError(f"source: must be {input.dtype} like input, is {source.dtype}")
    x, s = (t.reshape(1) if t.ndim == 0 else t for t in (input, source))
    index = index.reshape(-1)
    if s.shape != (*x.shape[:dim], index.numel(), *x.shape[dim + 1 :]):
        raise ValueError(
            f"source: has shape {tuple(source.shape)}, which does not fit input's "
            f"{tuple(input.shape)} with {index.numel()} indices in dimension {dim}"
        )
    arguments.real("alpha", alpha)
    arguments.in_range("index", index, x.shape[dim])
    flat = rows_along(index, x, dim)
    y = _index_add(
        as_rows(x, dim), flat, as_rows(s, dim), float(alpha)
    ).reshape(input.shape)  # fmt: skip
    return y if out is None else written(out, y)


def numbered(input: torch.Tensor, dim: int, index: torch.Tensor) -> int:
    """The dimension, counted from the front, that the index refers to.

    Raises:
        TypeError, ValueError, IndexError: index is not a list of integers, or dim is out of range.
    """
    arguments.tensor("index", index)
    if index.dtype not in heuristics.INTEGERS:
        raise TypeError(f"index: must be int32 or int64, is {index.dtype}")
    if index.ndim > 1:
        raise ValueError(f"index: must have one dimension, has {index.ndim}")
    arguments.dimension("dim", dim, input.ndim)
    span = max(input.ndim, 1)
    return dim % span


def as_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """(the dimensions up to `dim`, those after it) as a matrix."""
    return x.reshape(x.shape[: dim + 1].numel(), x.shape[dim + 1 :].numel())


def rows_along(index: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The row indices in `as_rows` of the slices. An index that is out of range stays out of
    range."""
    before, n = x.shape[:dim].numel(), x.shape[dim]
    if before == 1:
        return index.contiguous()
    first = torch.arange(before, device=index.device)[:, None] * n
    return torch.where((index >= 0) & (index < n), first + index, -1).reshape(-1)
