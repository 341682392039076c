"""gather and scatter_add: elements selected by index along a dimension."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, autocast, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written
from kernelwright.ops.embedding.lookup import embedding
from kernelwright.ops.index import index_add

from . import heuristics, spec


def _gathering(suffix: str, *more: Rung) -> tuple[Rung, ...]:
    return (
        *rungs.pytorch(suffix, manual="elements by their coordinates", compiled=None),
        *more,
        rungs.cuda(
            "vec16", suffix, "16-byte vectors, several in flight", heuristics.fits, heuristics.VEC16
        ),
    )


def _adding(suffix: str) -> tuple[Rung, ...]:
    return (
        Rung(
            "manual", "torch", f"torch_rungs:manual{suffix}", "a sum in float32",
            dispatchable=False, deterministic=False,
        ),
        # PyTorch adds by atomics on a GPU
        Rung(
            "native", "torch", f"torch_rungs:native{suffix}", "PyTorch's own operator",
            deterministic=False,
        ),
        rungs.cuda(
            "atomics", suffix, "atomic additions in L2, in float32", heuristics.fits_add,
            heuristics.ATOMICS, dispatchable=False, deterministic=False,
        ),
        rungs.cuda(
            "sorted", suffix, "positions sorted by element, runs added in order",
            heuristics.fits_sorted, heuristics.SORTED, sources=("cuda_order.cu",),
        ),
        rungs.cuda(
            "small", suffix, "short fibers: each position is compared with the others",
            heuristics.fits_small, heuristics.SMALL,
        ),
    )  # fmt: skip


RUNGS = _gathering(
    "",
    rungs.cuda("thread", "", "one element per thread", heuristics.fits, heuristics.THREAD),
    rungs.triton(
        "block", "", "a block of the result per program", heuristics.fits_triton, heuristics.TRITON
    ),
)
RUNGS_BACKWARD = _adding("_backward")
RUNGS_ADD = _adding("_add")
RUNGS_ADD_BACKWARD = _gathering("_add_backward")


def _ladder(operator, its_rungs, order) -> Ladder:
    return Ladder(operator, its_rungs, __name__, order, heuristics.bucket)


LADDER = _ladder(spec.GATHER, RUNGS, heuristics.order)
LADDER_BACKWARD = _ladder(spec.GATHER_BACKWARD, RUNGS_BACKWARD, heuristics.order_of_sums)
LADDER_ADD = _ladder(spec.SCATTER_ADD, RUNGS_ADD, heuristics.order_of_sums)
LADDER_ADD_BACKWARD = _ladder(
    spec.SCATTER_ADD_BACKWARD, RUNGS_ADD_BACKWARD, heuristics.order_of_gathered
)
_gather = bind(LADDER, LADDER_BACKWARD)
_scatter_add = bind(LADDER_ADD, LADDER_ADD_BACKWARD, same_gradient={"x": "y"})


def gather(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    *,
    sparse_grad: bool = False,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Elements of input, selected by index along a dimension, as torch.gather.

    Args:
        input: any shape and dtype; elements of 1, 2, 4 and 8 bytes have GPU rungs. The gradient of
            float32, float16 and bfloat16 is summed in float32.
        dim: the dimension that the index refers to.
        index: int32 or int64, with as many dimensions as input and, except in `dim`, at most its
            sizes; entries may repeat. If it is expanded along all dimensions after `dim`
            (`index[..., None].expand(...)`), it selects whole rows, which `embedding` looks up.
        sparse_grad: must be False.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the index's shape and the input's dtype; `out` if it is given.

    Raises:
        TypeError: input or index is not a tensor, or index is not int32 or int64.
        ValueError: the shapes do not agree.
        IndexError: dim is out of range; on a CPU, also if an entry of index is (negative entries do
            not count from the end). On a GPU such an entry triggers a device-side assertion, as in
            PyTorch.
        NotImplementedError: sparse_grad is set.
    """
    arguments.tensor("input", input)
    dim = _numbered(input, dim, index)
    if sparse_grad:
        raise NotImplementedError("sparse_grad: gradients are dense; use torch.gather")
    if index.numel() == 0:
        y = torch.gather(input, dim, index)
    else:
        x, of = _narrowed("input", *map(_at_least_1d, (input, index)), dim)
        arguments.in_range("index", of, x.shape[dim])
        if x.is_floating_point() and _names_rows(of, dim):
            y = embedding(_rows(x, of, dim), _as_rows(x, dim))
        else:
            y = _gather(_as_fibers(x, dim), _as_fibers(of, dim), x.shape[dim])
        y = y.reshape(index.shape)
    return y if out is None else written(out, y)


def scatter_add(
    input: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """A copy of input to whose elements, selected by index along a dimension, those of src are
    added, as torch.scatter_add.

    Args:
        input: any shape. float32, float16 and bfloat16 have GPU rungs, which add in float32 and
            round once; other dtypes use PyTorch's kernels.
        dim: the dimension that the index refers to.
        index: int32 or int64, with as many dimensions as input and, except in `dim`, at most its
            sizes; entries may repeat. If it is expanded along all dimensions after `dim`, it
            selects whole rows, which `index_add` adds.
        src: the values to add, of the input's dtype and in no dimension smaller than index;
            elements beyond the index's shape are not added.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the input's shape; `out` if it is given.

    Raises:
        TypeError: an argument is not a tensor, index is not int32 or int64, or src and input have
            different dtypes; under CUDA autocast, float32 and the autocast dtype give float32.
        ValueError: the shapes do not agree.
        IndexError: dim is out of range; on a CPU, also if an entry of index is (negative entries do
            not count from the end). On a GPU such an entry triggers a device-side assertion, as in
            PyTorch.
    """
    arguments.tensor("input", input)
    arguments.tensor("src", src)
    dim = _numbered(input, dim, index)
    input, src = autocast.widest(input, src)
    if src.dtype != input.dtype:
        raise TypeError(f"src: must be {input.dtype} like input, is {src.dtype}")
    if index.numel() == 0:
        y = input.clone()
    else:
        x, of, added = map(_at_least_1d, (input, index, src))
        if added.ndim != x.ndim:
            raise ValueError(f"src: has {src.ndim} dimensions, input has {input.ndim}")
        added, of = _narrowed("src", added, of, None)
        part, of = _narrowed("input", x, of, dim)
        arguments.in_range("index", of, part.shape[dim])
        if part.is_floating_point() and _names_rows(of, dim):
            flat = [_as_rows(t, dim) for t in (part, added)]
            y = index_add.index_add(flat[0], 0, _rows(part, of, dim), flat[1])
        else:
            y = _scatter_add(*(_as_fibers(t, dim) for t in (part, of, added)))
        y = _replaced(x, y.reshape(part.shape)).reshape(input.shape)
    return y if out is None else written(out, y)


def _numbered(input: torch.Tensor, dim: int, index: torch.Tensor) -> int:
    """The dimension, counted from the front.

    Raises:
        TypeError, ValueError, IndexError: index is not a tensor of integers or has another number
            of dimensions, or dim is out of range.
    """
    arguments.tensor("index", index)
    arguments.dimension("dim", dim, input.ndim)
    span = max(input.ndim, 1)
    if index.numel() == 0:  # then PyTorch accepts any index
        return dim % span
    if index.dtype not in heuristics.INTEGERS:
        raise TypeError(f"index: must be int32 or int64, is {index.dtype}")
    if max(index.ndim, 1) != span:
        raise ValueError(f"index: has {index.ndim} dimensions, input has {input.ndim}")
    return dim % span


def _at_least_1d(t: torch.Tensor) -> torch.Tensor:
    return t.reshape(1) if t.ndim == 0 else t


def _narrowed(
    name: str, x: torch.Tensor, index: torch.Tensor, dim: int | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x without the elements beyond the index's shape in dimensions other than `dim`, index)."""
    for d, (size, most) in enumerate(zip(index.shape, x.shape, strict=True)):
        if d == dim or size == most:
            continue
        if size > most:
            raise ValueError(
                f"index: has shape {tuple(index.shape)}, more than {name} {tuple(x.shape)} in "
                f"dimension {d}"
            )
        x = x.narrow(d, 0, size)
    return x, index


def _replaced(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
    """x with the region at the start of every dimension replaced by `part`."""
    if part.shape == x.shape:
        return part
    wholes = [x]  # x, narrowed in one more dimension each time
    for d, size in enumerate(part.shape):
        wholes.append(wholes[-1].narrow(d, 0, size))
    for d in reversed(range(x.ndim)):
        part = torch.slice_scatter(wholes[d], part, d, 0, part.shape[d])
    return part


def _names_rows(index: torch.Tensor, dim: int) -> bool:
    """Whether the index is expanded along all dimensions after `dim`."""
    behind = list(zip(index.shape, index.stride(), strict=True))[dim + 1 :]
    return index.shape[dim + 1 :].numel() > 1 and all(n == 1 or s == 0 for n, s in behind)


def _as_fibers(x: torch.Tensor, dim: int) -> torch.Tensor:
    """(dimensions before `dim`, `dim`, the dimensions after it merged)."""
    return x.reshape(*x.shape[: dim + 1], x.shape[dim + 1 :].numel())


def _as_rows(x: torch.Tensor, dim: int) -> torch.Tensor:
    """(the dimensions up to `dim`, those after it) as a matrix."""
    return x.reshape(x.shape[: dim + 1].numel(), x.shape[dim + 1 :].numel())


def _rows(x: torch.Tensor, index: torch.Tensor, dim: int) -> torch.Tensor:
    """The entries of an expanded index as indices of rows of `_as_rows(x)`. An entry that is out of
    range stays out of range."""
    of = index[(..., *(0,) * (index.ndim - 1 - dim))]
    lead, n = of.shape[:-1].numel(), x.shape[dim]
    of = of.reshape(lead, of.shape[-1])
    if lead > 1:
        first = torch.arange(lead, device=of.device, dtype=of.dtype)[:, None] * n
        of = torch.where((of >= 0) & (of < n), first + of, -1)
    return of.reshape(-1)
