"""Which rung takes a call, and with which launch parameters. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.eligibility import kind, log2, other_dtype

CONFIGS = ({"block": 1024, "num_warps": 4}, {"block": 4096, "num_warps": 8})


def fits(gpu, **args):
    """Why a call does not fit the kernels, or None."""
    return other_dtype(args, of="x")


def order(gpu, **args):
    """Proven rungs to try, best first, where no tuned table decides; native serves the rest."""
    return ()


def bucket(x, **rest):
    """Key of a call in the tuned table: dtype, log2 of the number of elements."""
    return f"{kind(x.dtype)}/{log2(x.numel())}"
