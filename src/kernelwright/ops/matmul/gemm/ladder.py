"""The two ladders of matrix products, from the slowest rung to the fastest."""

from __future__ import annotations

from kernelwright.contract import Ladder, Rung, rungs

from . import heuristics, spec
from .few_rows import choice
from .few_rows import ladder as few_rows
from .hopper import ladder as hopper


def _lesson(trick: str, idea: str, configs=({},), supports=heuristics.fits_rows) -> Rung:
    """A rung of teaching/, for contiguous rows."""
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"teaching.cuda:{trick}",
        idea,
        supports=supports,
        configs=configs,
        dispatchable=False,
        sources=(f"teaching/cuda_{trick}.cu",),
    )


RUNGS = (
    Rung(
        "manual",
        "torch",
        "torch_rungs:manual",
        "every product in memory, then their sums",
        supports=heuristics.fits_manual,
        dispatchable=False,
    ),
    Rung(
        "fixed_rows",
        "torch",
        "fixed_rows:product",
        "products of one size, so that a row's bits do not depend on the others",
        dispatchable=False,
    ),
    Rung("native", "torch", "torch_rungs:native", "cuBLAS", aten=heuristics.aten),
    Rung(
        "compiled",
        "inductor",
        "torch_rungs:compiled",
        "torch.matmul under torch.compile",
        supports=heuristics.fits_compiled,
    ),
    Rung(
        "numba_tile",
        "numba",
        "teaching.numba_tile:plan",
        "square tiles in shared memory, in Python",
        supports=heuristics.fits_rows,
        dispatchable=False,
    ),
    _lesson("naive", "one thread per element"),
    _lesson("coalesced", "neighboring threads process neighboring columns"),
    _lesson("shared", "square tiles in shared memory"),
    _lesson("dynamic", "the tile's width chosen at launch", heuristics.DYNAMIC_CONFIGS),
    _lesson("column", "eight elements of a column per thread"),
    _lesson("square", "8 x 8 elements per thread"),
    _lesson("vec16", "16 bytes in each load and store", supports=heuristics.fits_vectors),
    _lesson("banks", "no bank conflicts", supports=heuristics.fits_vectors),
    _lesson(
        "double",
        "the next tile is copied while the current one is multiplied",
        supports=heuristics.fits_copied,
    ),
    _lesson("warp", "each warp has its own tile", supports=heuristics.fits_copied),
    _lesson("staged", "c is stored through shared memory", supports=heuristics.fits_copied),
    rungs.cuda(
        "tuned",
        "",
        "tile sizes as parameters, any layout of the operands",
        heuristics.fits_tuned,
        heuristics.TUNED_CONFIGS,
        heuristic=heuristics.choose_tuned,
    ),
    _lesson("wmma", "tensor cores, through C++", supports=heuristics.fits_wmma),
    rungs.cuda(
        "mma",
        "",
        "tensor cores by their instructions, any order of 16-bit operands",
        heuristics.fits_mma,
        heuristics.MMA_CONFIGS,
        heuristic=heuristics.choose_mma,
    ),
    rungs.triton(
        "block",
        "",
        "one tile of c per program",
        heuristics.fits_block,
        heuristics.TRITON_CONFIGS,
        heuristic=heuristics.choose_triton,
    ),
    rungs.triton(
        "persistent",
        "",
        "one program per multiprocessor, each with many tiles",
        heuristics.fits_persistent,
        heuristics.TRITON_CONFIGS,
        heuristic=heuristics.choose_triton,
    ),
    *hopper.RUNGS,
    *few_rows.RUNGS,
)
LINEAR_RUNGS = (
    Rung(
        "manual",
        "torch",
        "torch_rungs:manual_linear",
        "every product in memory, then their sums",
        supports=heuristics.fits_manual_linear,
        dispatchable=False,
    ),
    Rung(
        "fixed_rows",
        "torch",
        "fixed_rows:linear",
        "products of one size, so that a row's bits do not depend on the others",
        dispatchable=False,
    ),
    Rung(
        "native",
        "torch",
        "torch_rungs:native_linear",
        "cuBLAS, then PyTorch's operators",
        aten=heuristics.aten_linear,
    ),
    Rung(
        "compiled",
        "inductor",
        "torch_rungs:compiled_linear",
        "F.linear and the epilogue, under torch.compile",
        supports=heuristics.fits_compiled,
    ),
    rungs.cuda(
        "tuned",
        "_linear",
        "the epilogue on sums in registers",
        heuristics.fits_tuned_linear,
        heuristics.TUNED_CONFIGS,
        heuristic=heuristics.choose_tuned_linear,
    ),
    rungs.triton(
        "block",
        "_linear",
        "one tile of y per program, the epilogue in registers",
        heuristics.fits_block_linear,
        heuristics.TRITON_CONFIGS,
        heuristic=heuristics.choose_triton_linear,
    ),
    rungs.triton(
        "persistent",
        "_linear",
        "one program per multiprocessor, each with many tiles",
        heuristics.fits_persistent_linear,
        heuristics.TRITON_CONFIGS,
        heuristic=heuristics.choose_triton_linear,
    ),
    *hopper.LINEAR_RUNGS,
    *few_rows.LINEAR_RUNGS,
)
LADDER = Ladder(spec.OPERATOR, RUNGS, __package__, choice.order, heuristics.bucket)
LADDER_LINEAR = Ladder(
    spec.LINEAR,
    LINEAR_RUNGS,
    __package__,
    choice.order_linear,
    heuristics.bucket_linear,
    "peers:PEERS",
)
