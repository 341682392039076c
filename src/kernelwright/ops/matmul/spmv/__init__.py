"""spmv: a sparse matrix in compressed rows times a vector."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, arguments, rungs
from kernelwright.dispatch import Rule, bind

from . import heuristics, spec

__all__ = ["LADDER", "spmv"]

RUNGS = (
    *rungs.pytorch(
        manual="every product in memory, then sums of segments",
        native="cuSPARSE",
        compiled=None,
    ),
    rungs.cuda("thread", "", "one thread per row", heuristics.fits, ({},), dispatchable=False),
    rungs.cuda(
        "warp",
        "",
        "2 to 32 lanes per row, by the mean length",
        heuristics.fits,
        heuristics.WARP_CONFIGS,
        heuristic=heuristics.choose_warp,
    ),
    rungs.cuda(
        "merge", "", "equal parts of the merged nonzeros and row ends", heuristics.fits, ({},)
    ),
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket)


def _save(ctx, inputs, output):
    rows, columns, values, x = inputs
    ctx.save_for_backward(rows, columns, values)
    ctx.width = x.numel()


def _backward(ctx, gy):
    rows, columns, values = ctx.saved_tensors
    if ctx.needs_input_grad[2]:
        raise NotImplementedError("spmv: has no gradient with respect to the matrix")
    products = values * gy[spec.row_of_each(rows, columns)]
    gx = products.new_zeros(ctx.width).index_add(0, columns, products)
    return None, None, None, gx


def _formula(rows, columns, values, x):
    y = values.new_zeros(rows.numel() - 1)
    return y.index_add(0, spec.row_of_each(rows, columns), values * x[columns])


_product = bind(LADDER, rule=Rule(_save, _backward), vmap="loop", differentiable=_formula)


def spmv(matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    """A sparse matrix times a vector, as torch.mv.

    Args:
        matrix: shape (M, N), of layout torch.sparse_csr; float32, float16 and bfloat16 have GPU
            rungs. It is a constant: it may not require a gradient.
        vector: shape (N,), of the matrix's dtype.

    Returns:
        Shape (M,). Differentiable with respect to the vector; on a GPU, that gradient is added in
        an order that varies.

    Raises:
        TypeError: an argument has another layout or dtype.
        ValueError: shapes do not fit, or the matrix requires a gradient.
    """
    arguments.floating("matrix", matrix)
    arguments.floating("vector", vector)
    if matrix.layout != torch.sparse_csr:
        raise TypeError(f"matrix: has layout {matrix.layout}, should be torch.sparse_csr")
    if matrix.ndim != 2:
        raise ValueError(f"matrix: has {matrix.ndim} dimensions, should have 2")
    if matrix.requires_grad:
        raise ValueError("matrix: requires a gradient, which spmv does not compute")
    if tuple(vector.shape) != (matrix.shape[1],):
        raise ValueError(f"vector: has shape {tuple(vector.shape)}, should be ({matrix.shape[1]},)")
    if vector.dtype != matrix.dtype:
        raise TypeError(f"vector: is {vector.dtype}, should be {matrix.dtype} as the matrix")
    return _product(*_parts(matrix), vector)


def _parts(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The tensors of a constant matrix. torch.func's derivatives do not support the CSR layout."""
    if torch.compiler.is_compiling():
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
    with torch._C._DisableFuncTorch():
        return matrix.crow_indices(), matrix.col_indices(), matrix.values()
