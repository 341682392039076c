"""cumsum and cumprod: running totals, from one thread per row to the traffic of a copy."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments, rungs
from kernelwright.dispatch import bind
from kernelwright.ops._out import written

from . import heuristics, spec

FEW_COLUMNS = 2048  # below: a transposed copy costs less than idle multiprocessors


def _lesson(name: str, idea: str, configs, **more) -> Rung:
    return rungs.cuda(name, "", idea, heuristics.fits_plain, configs, dispatchable=False, **more)


def _pytorch(side: str, manual: str, compiled: bool = True) -> tuple[Rung, ...]:
    idea = "PyTorch's operator under torch.compile"
    bottom = rungs.pytorch(side, manual=manual, compiled=None)
    return (*bottom, Rung("compiled", "inductor", f"torch_rungs:native{side}", idea))[
        : 2 + compiled
    ]


#: Teaching steps of a scan; in the backward they are the same in the opposite direction.
LESSONS = (
    _lesson("serial", "one thread per row", heuristics.THREADS),
    _lesson("hillis_steele", "log2 n steps in shared memory", heuristics.BLOCKS),
    _lesson("blelloch", "up a tree and down again: 2 n additions", heuristics.BLOCKS),
)


def _rungs(side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; that of the backward has no teaching steps."""
    return (
        *_pytorch(side, "log2 n steps of doubling distance, one kernel each", compiled=not side),
        *(() if side else LESSONS),
        rungs.cuda(
            "warp", side, "one warp per row, by shuffles", heuristics.fits_plain, heuristics.WARPS
        ),
        rungs.triton(
            "row",
            side,
            "one program per row, tile by tile",
            heuristics.fits_plain,
            heuristics.TRITON,
        ),
        _block(side),
        *(() if side else STEPS),
        _tree(side),
        _columns(side),
    )


#: From one block per row to the whole GPU per row.
STEPS = (
    _lesson(
        "three_pass", "totals of tiles, their scan, the tiles: a second read", heuristics.TILES
    ),
    _lesson(
        "lookback",
        "one launch: a tile adds its predecessors' totals as they become available",
        heuristics.TILES,
        heuristic=heuristics.choose_tile,
        deterministic=False,
    ),
)


def _block(side: str, configs=heuristics.TILES, choose=heuristics.choose_block) -> Rung:
    return rungs.cuda(
        "block",
        side,
        "one block per row, vectors in registers",
        heuristics.fits_rows,
        configs,
        heuristic=choose,
    )


def _tree(side: str, configs=heuristics.TILES, choose=heuristics.choose_tile) -> Rung:
    return rungs.cuda(
        "tree",
        side,
        "one launch: totals of 1, 32 and 1,024 tiles, always in the same order",
        heuristics.fits_rows,
        configs,
        heuristic=choose,
    )


def _columns(side: str) -> Rung:
    return rungs.cuda(
        "columns",
        side,
        "any other dim: neighboring threads process neighboring columns, tiles of rows",
        heuristics.fits_columns,
        heuristics.COLUMNS,
    )


def _product_rungs(side: str) -> tuple[Rung, ...]:
    back = side.endswith("backward")
    tiles = (heuristics.FACTOR_TILES, None) if back else ()
    return (
        *_pytorch(side, "log2 n steps of doubling distance, one kernel each", compiled=False),
        _block(side, *tiles),
        _tree(side, *tiles),
        *(() if back else (_columns(side),)),
    )


def _ladder(operator, ladder_rungs, order=heuristics.order) -> Ladder:
    return Ladder(operator, ladder_rungs, __name__, order, heuristics.bucket)


LADDER = _ladder(spec.FORWARD, _rungs())
LADDER_BACKWARD = _ladder(spec.BACKWARD, _rungs("_backward"))
LADDER_PRODUCT = _ladder(spec.PRODUCT, _product_rungs("_product"), heuristics.order_product)
LADDER_PRODUCT_BACKWARD = _ladder(
    spec.PRODUCT_BACKWARD, _product_rungs("_product_backward"), heuristics.order_product_backward
)
_cumsum = bind(LADDER, LADDER_BACKWARD)
_cumprod = bind(LADDER_PRODUCT, LADDER_PRODUCT_BACKWARD)


def cumsum(
    input: torch.Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
    exclusive: bool = False,
    reverse: bool = False,
    starts: torch.Tensor | None = None,
) -> torch.Tensor:
    """Running sums along a dimension, as torch.cumsum.

    Args:
        input: any shape, any dtype. float32, float16, bfloat16 (totals in float32 within a tile, in
            float64 beyond), float64 and int64 have GPU rungs; other dtypes use PyTorch's kernels.
        dim: the dimension along which totals are computed.
        dtype: of the result; the input is cast to it first. Without it, integers and bool give
            int64. Under CUDA autocast, 16-bit input gives float32.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.
        exclusive: an element is not included in its own sum; the first sum is 0.
        reverse: from the end of the dimension to its beginning.
        starts: bool, of the input's shape: marks the first element of each segment, with which sums
            begin again.

    Returns:
        A tensor of the input's shape; `out` if it is given.

    Raises:
        TypeError: input is not a tensor, or starts is not bool.
        IndexError: dim is out of range.
        ValueError: the shape of starts is not that of input.
    """
    input, dim = _scanned(input, dim, dtype)
    if starts is not None:
        arguments.tensor("starts", starts)
        if starts.dtype != torch.bool:
            raise TypeError(f"starts: must be bool, is {starts.dtype}")
        if starts.shape != input.shape:
            raise ValueError(
                f"starts: has shape {tuple(starts.shape)}, should be {tuple(input.shape)}"
            )
    if _copied_first(input, dim):
        moved = None if starts is None else starts.movedim(dim, -1)
        y = _cumsum(input.movedim(dim, -1), moved, -1, exclusive, reverse)
        y = y.movedim(-1, dim).contiguous()
    else:
        y = _cumsum(input, starts, dim, exclusive, reverse)
    return y if out is None else written(out, y)


def cumprod(
    input: torch.Tensor,
    dim: int,
    *,
    dtype: torch.dtype | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Running products along a dimension, as torch.cumprod.

    Args:
        input: any shape, any dtype. float32, float16, bfloat16 (products in float64), float64 and
            int64 have GPU rungs; other dtypes use PyTorch's kernels. The gradient is computed
            without a division, so zeros in the input cause no loss of accuracy and no second pass.
        dim: the dimension along which totals are computed.
        dtype: of the result; the input is cast to it first. Without it, integers and bool give
            int64. Under CUDA autocast, 16-bit input gives float32.
        out: a tensor of the result's shape, or an empty one, to which the result is copied; it has
            no gradient.

    Returns:
        A tensor of the input's shape; `out` if it is given.

    Raises:
        TypeError: input is not a tensor.
        IndexError: dim is out of range.
    """
    input, dim = _scanned(input, dim, dtype)
    if _copied_first(input, dim):
        y = _cumprod(input.movedim(dim, -1), -1).movedim(-1, dim).contiguous()
    else:
        y = _cumprod(input, dim)
    return y if out is None else written(out, y)


def _scanned(input, dim, dtype) -> tuple[torch.Tensor, int]:
    """The input in the dtype of the result, and the dimension counted from the end, so that a
    leading batch dimension does not change it."""
    arguments.tensor("input", input)
    arguments.dimension("dim", dim, input.ndim)
    span = max(input.ndim, 1)
    if dtype is None:
        if not (input.is_floating_point() or input.is_complex()):
            dtype = torch.int64
        elif torch.is_autocast_enabled() and input.is_cuda and input.itemsize == 2:
            dtype = torch.float32
    if dtype is not None and dtype != input.dtype:
        input = input.to(dtype)
    return input, dim - span if dim >= 0 else dim


def _copied_first(input, dim) -> bool:
    """Whether the dimension is first moved to the end by a copy, because there are too few other
    elements beside it."""
    return dim != -1 and input.numel() > 0 and input.numel() // input.shape[dim] < FEW_COLUMNS
