"""swiglu and geglu: the gate's activation times up, without writing the activation to memory."""

from __future__ import annotations

import torch

from kernelwright.contract import Ladder, Operator, Rung, arguments, rungs
from kernelwright.dispatch import bind

from . import heuristics, spec, torch_rungs


def _rungs(name: str, side: str = "") -> tuple[Rung, ...]:
    """The rungs from the slowest to the fastest; `side` is "_backward" in a backward's entries."""
    return (
        *rungs.pytorch(
            f"_{name}{side}",
            manual="the formula, one kernel per operator",
            native="PyTorch's activation, then its product",
        ),
        *(() if side else _exp_tanh(name)),
        rungs.triton(
            "rows",
            side,
            "one tile of a row per program, rows of any stride",
            heuristics.fits_rows,
            heuristics.ROWS_CONFIGS,
        ),
        rungs.cuda(
            "vec16",
            side,
            "16-byte vectors, several in flight, tensors without gaps",
            heuristics.fits_vec16,
            heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_vec16,
        ),
        rungs.cuda(
            "rows16",
            side,
            "the same for rows with a stride: halves of one tensor",
            heuristics.fits_rows16,
            heuristics.VEC16_CONFIGS,
            heuristic=heuristics.choose_vec16,
        ),
    )


def _exp_tanh(name: str) -> tuple[Rung, ...]:
    idea = "the formula by exp, tanh and erf: equal elements have equal results, wherever they are"
    return (Rung("exp_tanh", "torch", f"exp_tanh:{name}", idea, dispatchable=False),)


def _ladder(operator: Operator, name: str, side: str = "") -> Ladder:
    rest = __name__, heuristics.order, heuristics.bucket, "peers:PEERS"
    return Ladder(operator, _rungs(name, side), *rest)


_swiglu = bind(
    _ladder(spec.SWIGLU, "swiglu"),
    _ladder(spec.SWIGLU_BACKWARD, "swiglu", "_backward"),
    formula=torch_rungs.native_swiglu,
)
_geglu = bind(
    _ladder(spec.GEGLU, "geglu"),
    _ladder(spec.GEGLU_BACKWARD, "geglu", "_backward"),
    formula=torch_rungs.native_geglu,
)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up.

    Args:
        gate: any shape. float32, float16 and bfloat16 have GPU rungs; other floating types use
            PyTorch's kernels. Rows may have any stride: the halves of a fused projection, `gate, up
            = gate_up.chunk(2, -1)`, are not copied.
        up: of the gate's shape.

    Returns:
        A contiguous tensor of the gate's shape and the promoted dtype; rounded once.

    Raises:
        TypeError: gate or up is not floating point.
        ValueError: the shapes differ.

    Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202.
    """
    _check(gate, up)
    return _swiglu(gate, up)


def geglu(gate: torch.Tensor, up: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    """gelu(gate) * up.

    Args:
        gate, up: as in `swiglu`.
        approximate: "none" for the error function, "tanh" for its approximation by tanh.

    Returns:
        A contiguous tensor of the gate's shape and the promoted dtype; rounded once.

    Raises:
        TypeError: gate or up is not floating point.
        ValueError: the shapes differ, or approximate is neither "none" nor "tanh".

    Source: Shazeer, GLU Variants Improve Transformer, arXiv:2002.05202.
    """
    _check(gate, up)
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate: must be "none" or "tanh", is {approximate!r}')
    return _geglu(gate, up, approximate)


def _check(gate, up) -> None:
    arguments.floating("gate", gate)
    arguments.floating("up", up)
    if gate.shape != up.shape:
        raise ValueError(f"up: shape {tuple(up.shape)} is not gate's {tuple(gate.shape)}")
