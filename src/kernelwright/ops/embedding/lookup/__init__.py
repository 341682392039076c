"""embedding: rows of a table, selected by index; the gradient adds the rows with equal indices."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Rung, arguments
from kernelwright.dispatch import bind

from . import heuristics, heuristics_runs, spec

RUNGS = (
    Rung("manual", "torch", "torch_rungs:manual", "rows selected by index", dispatchable=False),
    Rung("native", "torch", "torch_rungs:native", "PyTorch's own operator"),
    Rung("compiled", "inductor", "torch_rungs:manual", "the selection, by torch.compile"),
    Rung(
        "triton_rows",
        "triton",
        "triton_rows:plan",
        "a tile of rows per program; slice by slice of the table, which stays in L2",
        supports=heuristics.fits,
        configs=heuristics.TRITON_CONFIGS,
        heuristic=heuristics.choose_triton,
    ),
    Rung(
        "cuda_vec16",
        "cuda",
        "cuda:vec16",
        "16-byte vectors, several in flight",
        supports=heuristics.fits,
        configs=heuristics.VEC16_CONFIGS,
        heuristic=heuristics.choose_vec16,
        sources=("cuda_vec16.cu",),
    ),
    Rung(
        "cuda_sliced",
        "cuda",
        "cuda:sliced",
        "slice by slice of the table, so that rows looked up again are still in L2",
        supports=heuristics.fits_sliced,
        configs=heuristics.SLICED_CONFIGS,
        heuristic=heuristics.choose_sliced,
        sources=("cuda_sliced.cu",),
    ),
    Rung(
        "cuda_scatter",
        "cuda",
        "cuda_runs:scatter",
        "by row: each row is read once and written to every position that looks it up",
        supports=heuristics_runs.fits_scatter,
        configs=heuristics_runs.SCATTER_CONFIGS,
        sources=("cuda_runs.cu", "cuda_scatter.cu"),
    ),
)
# PyTorch's gradient is deterministic, so no nondeterministic rung is dispatched.
RUNGS_BACKWARD = (
    Rung(
        "manual",
        "torch",
        "torch_rungs:manual_backward",
        "rows added by index, in float32",
        dispatchable=False,
        deterministic=False,
    ),
    Rung("native", "torch", "torch_rungs:native_backward", "PyTorch's own operator"),
    Rung(
        "compiled",
        "inductor",
        "torch_rungs:manual_backward",
        "the addition, by torch.compile: atomics",
        dispatchable=False,
        deterministic=False,
    ),
    Rung(
        "triton_rows",
        "triton",
        "triton_rows:plan_backward",
        "partial sums of a tile of positions, added by atomics in float32",
        supports=heuristics.fits,
        configs=heuristics.TRITON_ATOMICS_CONFIGS,
        dispatchable=False,
        deterministic=False,
    ),
    Rung(
        "cuda_atomics",
        "cuda",
        "cuda:atomics",
        "the same, by atomics of four floats",
        supports=heuristics.fits,
        configs=heuristics.ATOMICS_CONFIGS,
        sources=("cuda_atomics.cu",),
        dispatchable=False,
        deterministic=False,
    ),
    Rung(
        "cuda_sorted",
        "cuda",
        "cuda:sorted_",
        "positions sorted by row, runs added in order: deterministic",
        supports=heuristics.fits_sorted,
        configs=heuristics.SORTED_CONFIGS,
        sources=("cuda_order.cu", "cuda_sorted.cu"),
    ),
    Rung(
        "cuda_slots",
        "cuda",
        "cuda_runs:slots",
        "runs of positions found by counting, ordered where they are added: no sort",
        supports=heuristics.fits_sorted,
        configs=heuristics_runs.SLOTS_CONFIGS,
        sources=("cuda_runs.cu", "cuda_slots.cu"),
    ),
)


LADDER = Ladder(
    spec.FORWARD, RUNGS, __name__, heuristics.order, heuristics.bucket, "peers:PEERS", spec.public
)
LADDER_BACKWARD = Ladder(
    spec.BACKWARD,
    RUNGS_BACKWARD,
    __name__,
    heuristics.order_backward,
    heuristics.bucket_backward,
    "peers:PEERS",
)
# each sample of a vmap may have its own table
_embedding = bind(LADDER, LADDER_BACKWARD, vmap="loop")


def embedding(
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """Rows of weight, selected by index, as torch.nn.functional.embedding.

    Args:
        input: int32 or int64 row indices, any shape.
        weight: (rows, D); float32, float16 and bfloat16 have GPU rungs. The rungs written here sum
            its gradient in float32, and all rungs that are dispatched give the same bits every
            time.
        padding_idx: a row without a gradient; a negative index counts from the end.
        max_norm, norm_type: rescaling of rows in place; max_norm must be None.
        scale_grad_by_freq: must be False.
        sparse: must be False.

    Returns:
        A tensor of shape (*input.shape, D) and the dtype of weight.

    Raises:
        TypeError: input is not int32 or int64, or weight not floating point.
        ValueError: weight is not a matrix, or has no row padding_idx.
        NotImplementedError: max_norm, scale_grad_by_freq or sparse is set.
        IndexError: weight has no rows, but there are indices; on a CPU, an index is out of range.
            On a GPU that triggers a device-side assertion, as in PyTorch.
    """
    arguments.tensor("input", input)
    if input.dtype not in heuristics.INTEGERS:
        raise TypeError(f"input: must be int32 or int64, is {input.dtype}")
    arguments.floating("weight", weight)
    if weight.ndim != 2:
        raise ValueError(f"weight: must have 2 dimensions, has {weight.ndim}")
    if max_norm is not None:
        raise NotImplementedError("max_norm: rows are not rescaled; use torch.nn.functional")
    if scale_grad_by_freq:
        raise NotImplementedError("scale_grad_by_freq: is not implemented; use torch.nn.functional")
    if sparse:
        raise NotImplementedError("sparse: gradients are dense; use torch.nn.functional")
    rows = weight.shape[0]
    if not rows and input.numel():
        raise IndexError("weight: has no rows")
    if padding_idx is None:
        padding_idx = -1
    elif not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx: is {padding_idx}, but weight has {rows} rows")
    elif padding_idx < 0:
        padding_idx += rows
    arguments.in_range("input", input, rows)
    return _embedding(weight, input.contiguous(), rows, padding_idx)
