"""The ladders of grouped products, from the slowest rung to the fastest."""

from __future__ import annotations

from kernelwright.contract import Ladder, Rung, rungs

from . import heuristics, spec


def _wgmma(suffix: str, idea: str, supports) -> Rung:
    return Rung(
        "cuda_wgmma",
        "cuda",
        f"cuda:wgmma{suffix}",
        idea,
        supports=supports,
        configs=heuristics.CONFIGS,
        heuristic=heuristics.choose,
        sources=("cuda_wgmma.cu",),
    )


RUNGS = (
    *rungs.pytorch(
        manual="one product per group, in float32",
        native="PyTorch's grouped product, or a loop",
        compiled=None, syncs_host=True,
    ),
    rungs.cuda("mma", "", "blocks search for their groups; tiles of 64 x 64",
               heuristics.fits_mma, ({},)),
    _wgmma("", "Hopper's tensor cores; each block iterates over tiles of all groups",
           heuristics.fits_wgmma),
)  # fmt: skip
SWIGLU_RUNGS = (
    *rungs.pytorch(
        "_swiglu",
        manual="one product per group in float32, then the formula",
        native="PyTorch's grouped product, then its activation and product",
        compiled=None, syncs_host=True,
    ),
    _wgmma("_swiglu", "tiles with equally many columns of the gate and of the values",
           heuristics.fits_swiglu_wgmma),
)  # fmt: skip
LADDER = Ladder(spec.OPERATOR, RUNGS, __package__, heuristics.order, heuristics.bucket)
LADDER_SWIGLU = Ladder(
    spec.SWIGLU, SWIGLU_RUNGS, __package__, heuristics.order_swiglu, heuristics.bucket
)
