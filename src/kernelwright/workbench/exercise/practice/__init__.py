"""Operators that exist only for exercises: the classics, with simple signatures.

The library's rungs of these operators (`add`, `permute_copy`, `cumsum`, `layer_norm`) support every
dtype, stride and option, which makes their kernels long. Here an operator is one formula on
contiguous float32 tensors. The ladders are not bound to PyTorch and never dispatched; their rungs
are the exercises' solutions, and are verified like all rungs.
"""

from __future__ import annotations

from kernelwright.contract import Ladder, Operator, Rung, TensorSpec

from . import spec


def _fits(gpu, **args) -> str | None:
    """Why the kernels do not support a call, or None."""
    tensors = {name: t for name, t in args.items() if isinstance(t, TensorSpec)}
    return next(
        (f"{k} is not contiguous" for k, t in tensors.items() if not t.is_contiguous()), None
    )


def _native(name: str) -> Rung:
    return Rung("native", "torch", f"torch_rungs:{name}", "PyTorch's own operator")


def _cuda(name: str, trick: str, idea: str) -> Rung:
    source = f"cuda_{name}.cu"
    return Rung(
        f"cuda_{trick}", "cuda", f"cuda:{name}", idea, _fits, dispatchable=False, sources=(source,)
    )


def _python(language: str, name: str, trick: str, idea: str) -> Rung:
    entry = f"{language}_{name}:plan"
    return Rung(f"{language}_{trick}", language, entry, idea, _fits, dispatchable=False)


def _ladder(operator: Operator, *rungs: Rung) -> Ladder:
    return Ladder(
        operator,
        (_native(operator.name), *rungs),
        __name__,
        order=lambda gpu, **specs: (),
        bucket=lambda **specs: "any",
    )


LADDERS = (
    _ladder(
        spec.VECTOR_ADD,
        _python("numba", "vector_add", "thread", "one element per thread"),
        _cuda("vector_add", "thread", "one element per thread"),
        _python("triton", "vector_add", "block", "a block of elements per program"),
    ),
    _ladder(
        spec.TRANSPOSE,
        _python("numba", "transpose", "tile", "a tile through shared memory"),
        _cuda("transpose", "tile", "a tile through shared memory, without bank conflicts"),
        _python("triton", "transpose", "tile", "a tile per program"),
    ),
    _ladder(
        spec.ROW_SUM,
        _python("numba", "row_sum", "block", "a block per row, in shared memory"),
        _cuda("row_sum", "block", "a block per row, in shared memory"),
    ),
    _ladder(
        spec.PREFIX_SUM,
        _python("numba", "prefix_sum", "block", "a block per row"),
        _cuda("prefix_sum", "block", "a block per row, two buffers in shared memory"),
    ),
    _ladder(spec.HISTOGRAM, _cuda("histogram", "shared", "counts of a block in shared memory")),
    _ladder(
        spec.LAYERNORM,
        _python("numba", "layernorm", "block", "a block per row, two sums"),
        _cuda("layernorm", "block", "a block per row, two sums"),
        _python("triton", "layernorm", "row", "a row per program"),
    ),
)
