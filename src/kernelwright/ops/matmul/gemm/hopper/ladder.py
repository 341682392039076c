"""The rungs for Hopper's tensor cores of both operators, from the slowest to the fastest."""

from __future__ import annotations

from functools import partial

from kernelwright.contract import Config, Rung

from . import choice
from . import tiling as shape


def _rung(
    trick: str, entry: str, idea: str, supports, configs: tuple[Config, ...], source: str, **more
) -> Rung:
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"hopper.cuda:{entry}",
        idea,
        supports=supports,
        configs=configs,
        sources=(source,),
        **more,
    )


def _product(trick: str, entry: str, idea: str, supports=shape.fits) -> Rung:
    """A rung that can be dispatched, planned by `entry`."""
    name = f"cuda_{trick}"
    heuristic = partial(choice.choose, name)
    configs = shape.CONFIGS[name]
    source = f"hopper/cuda_wgmma_{entry}.cu"
    return _rung(trick, entry, idea, supports, configs, source, heuristic=heuristic)


def _linear(trick: str, entry: str, idea: str, supports=shape.fits_linear) -> Rung:
    name = f"cuda_{trick}"
    heuristic = partial(choice.choose_linear, name)
    return _rung(
        trick,
        f"{entry}_linear",
        idea,
        supports,
        shape.LINEAR_CONFIGS[name],
        f"hopper/cuda_wgmma_{entry}.cu",
        heuristic=heuristic,
    )


RUNGS = (
    _rung(
        "wgmma",
        "plain",
        "Hopper's tensor cores read both operands from shared memory",
        shape.fits_grid,
        ({},),
        "teaching/cuda_wgmma.cu",
        dispatchable=False,
    ),
    _rung(
        "wgmma_tma",
        "tma",
        "TMA loads, several slices ahead",
        shape.fits_grid,
        shape.TMA_CONFIGS,
        "teaching/cuda_wgmma_tma.cu",
        dispatchable=False,
    ),
    _product(
        "wgmma_persistent",
        "persistent",
        "one warp loads, others multiply; a block iterates over many tiles",
    ),
    _product(
        "wgmma_multicast", "persistent", "multicast: the blocks of a cluster share their loads"
    ),
    _product(
        "wgmma_pingpong",
        "pingpong",
        "two warp groups alternate, one tile each: one stores while the other multiplies",
    ),
    _product(
        "wgmma_pingpong_multicast",
        "pingpong",
        "the same, and the blocks of a cluster share their loads",
    ),
    _product(
        "wgmma_split",
        "split",
        "few tiles: the blocks of a cluster divide a tile's k",
        shape.fits_split,
    ),
)
LINEAR_RUNGS = (
    _linear(
        "wgmma_persistent",
        "persistent",
        "the epilogue on sums in registers, before they are rounded",
    ),
    _linear(
        "wgmma_multicast",
        "persistent",
        "multicast: the blocks of a cluster share their loads",
        shape.fits_linear_lean,
    ),
    _linear(
        "wgmma_pingpong",
        "pingpong",
        "the epilogue of a tile overlaps with the products of the next",
        shape.fits_linear_lean,
    ),
    _linear(
        "wgmma_pingpong_multicast",
        "pingpong",
        "the same, and the blocks of a cluster share their loads",
        shape.fits_linear_lean,
    ),
    _linear(
        "wgmma_split",
        "split",
        "few tiles: the blocks of a cluster divide a tile's k",
        shape.fits_linear_split,
    ),
)
