"""sum of a whole tensor or along dimensions: the classic reduction ladder, one file per step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind, on_rows
from kernelwright.ops._out import written

from . import heuristics, spec

HALF = (torch.float16, torch.bfloat16)
BLOCKS = ({"block": 256}, {"block": 512})
ITEMS = ({"block": 256, "items": 16}, {"block": 512, "items": 16})
VECTORS = ({"block": 256, "vecs": 4}, {"block": 512, "vecs": 4})


def _step(name: str, idea: str, configs, supports=heuristics.fits_whole, **more) -> Rung:
    return rungs.cuda(name, "", idea, supports, configs, **more)


def _lesson(name: str, idea: str, configs) -> Rung:
    return _step(name, idea, configs, dispatchable=False)


RUNGS = (
    Rung(
        "manual",
        "torch",
        "torch_rungs:manual",
        "repeated halving, one addition per kernel",
        dispatchable=False,
    ),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    Rung("compiled", "inductor", "torch_rungs:native", "PyTorch's operator under torch.compile"),
    rungs.numba(
        "block",
        "",
        "grid-stride loop and shared-memory tree, in Python",
        heuristics.fits_numba,
        ({"block": 256},),
    ),
    _lesson("interleaved", "a tree in shared memory, neighbors first", BLOCKS),
    _lesson("strided", "the same tree by consecutive threads: no divergence", BLOCKS),
    _lesson(
        "sequential", "pairs half a block apart instead of neighbors: no bank conflicts", BLOCKS
    ),
    _lesson("first_add", "every thread adds two elements before the tree", BLOCKS),
    _lesson("last_warp", "the last six steps without barriers", BLOCKS),
    _lesson("unrolled", "block size as template parameter, no loop left", BLOCKS),
    _lesson("grid_stride", "many additions per thread before one tree", ITEMS),
    _lesson("shuffle", "lanes read each other's registers", ITEMS),
    _lesson("vec16", "16-byte vectors, several loads in flight", VECTORS),
    _step(
        "two_pass",
        "a grid that fills the GPU, then one block",
        heuristics.STREAM[:4],
        heuristic=heuristics.choose_stream,
    ),
    _step(
        "atomics",
        "one launch; blocks add to one number by atomics",
        heuristics.STREAM[:4],
        heuristic=heuristics.choose_stream,
        deterministic=False,
    ),
    _step(
        "last_block",
        "one launch, the last block adds the partial sums in order",
        heuristics.STREAM,
        heuristics.fits_split_rows,
        heuristic=heuristics.choose_stream,
    ),
    _step(
        "flagged",
        "one launch; partial sums carry their own flag: no counter, no fence",
        heuristics.FLAGGED,
        heuristics.fits_split_rows,
        heuristic=heuristics.choose_stream,
    ),
    rungs.triton(
        "block",
        "",
        "a running sum for each position of a tile",
        heuristics.fits_rows,
        heuristics.TRITON,
    ),
    _step(
        "rows",
        "one warp or one block per row",
        heuristics.ROWS,
        heuristics.fits_rows,
        heuristic=heuristics.choose_rows,
    ),
    _step(
        "columns",
        "blocks stacked along the summed dimension",
        heuristics.COLUMNS,
        heuristics.fits_columns,
        heuristic=heuristics.choose_columns,
    ),
)
LADDER = Ladder(spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket)


def _gradient(specs, gy):
    """`spec.gradient`; for a single dimension with fewer views, each of which costs host time."""
    x, dim = specs["x"], specs["dim"]
    if len(dim) != 1 or x.ndim < 2 or gy.dtype != x.dtype:
        return spec.gradient(specs, gy)
    return {"x": gy.unsqueeze(dim[0]).expand(x.shape)}


_sum = bind(LADDER, gradient=_gradient, differentiable="native")


def sum(
    input: torch.Tensor,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    axis: int | Sequence[int] | None = None,
    keepdims: bool | None = None,
) -> torch.Tensor:
    """The sum over `dim`, or over all elements, as torch.sum.

    Args:
        input: any shape, any dtype. float32, float16, bfloat16 (accumulated in float32) and float64
            have GPU rungs; other dtypes, and sums of jagged tensors over samples, use PyTorch's
            kernels.
        dim: the dimensions to sum over; None or an empty tuple means all.
        keepdim: keep the summed dimensions with size 1.
        dtype: of the result; the input is cast to it first. Without it, integers and bool give
            int64. Under CUDA autocast, 16-bit input gives float32.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; no
            gradient is possible with it.
        axis, keepdims: other names of dim and keepdim.

    Returns:
        A tensor without the dimensions `dim`; `out` if it is given.

    Raises:
        IndexError: dim is out of range.
        TypeError: dim or keepdim is given by both of its names.
        ValueError: dim names a dimension twice.
    """
    arguments.tensor("input", input)
    if axis is not None:
        dim = _alias("axis", axis, "dim", dim, None)
    if keepdims is not None:
        keepdim = _alias("keepdims", keepdims, "keepdim", keepdim, False)
    ndim = input.ndim
    dims = spec.every_dim(ndim) if dim is None or dim == () or dim == [] else _negative(dim, ndim)
    if input.is_nested:
        y = _of_jagged(input, dims, keepdim, dtype)
        return y if out is None else written(out, y)
    if dtype is None and torch.is_autocast_enabled() and input.is_cuda and input.dtype in HALF:
        dtype = torch.float32
    if dtype is not None and dtype == spec.result_dtype(input):
        dtype = None
    y = _sum(input, dims, dtype)
    if keepdim:
        y = y.reshape([1 if i - ndim in dims else s for i, s in enumerate(input.shape)])
    return y if out is None else written(out, y)


def _of_jagged(input, dims, keepdim, dtype):
    """Sums over rows use this operator; PyTorch sums samples of different lengths."""
    y = on_rows(lambda values: sum(values, dims, keepdim, dtype=dtype), input, dims)
    return torch.sum(input, dims, keepdim, dtype=dtype) if y is None else y


def _alias(alias: str, value, name: str, given, default):
    """The value of an argument that is given by its other name."""
    if given is not default:
        raise TypeError(f"{alias}: is another name of {name}, which is also given")
    return value


def _negative(dim: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Dimensions counted from the end, so that a batch dimension in front does not matter."""
    named = tuple(dim) if isinstance(dim, Sequence) else (dim,)
    span = max(ndim, 1)  # a 0-d tensor takes dim 0 and -1
    for d in named:
        arguments.dimension("dim", d, ndim)
    dims = sorted(d - span if d >= 0 else d for d in named)
    for d, following in pairwise(dims):
        if d == following:
            raise ValueError(f"dim: {d} appears twice in {named}")
    return tuple(dims) if ndim else ()
