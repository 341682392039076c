"""The rungs for few rows, from the bottom up, and when they are chosen."""

from __future__ import annotations

from kernelwright.contract import Config, Rung

from . import few_rows_tiling as shape
from . import hopper_choice


def _rung(trick: str, entry: str, idea: str, supports, **more) -> Rung:
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"cuda_few_rows:{entry}",
        idea,
        supports=supports,
        sources=(f"few_rows/cuda_{trick}.cu",),
        **more,
    )


def _config(gpu, **specs) -> Config:
    return shape.CONFIGS[0]


RUNGS = (
    _rung("gemv_thread", "thread", "few rows: a thread for each result", shape.fits_thread,
          serves=False),
    _rung("gemv_warp", "warp", "few rows: a warp for each row of the weight", shape.fits_vectors,
          serves=False),
    _rung("gemv_split", "split", "few rows: warps share k, a thread loads eight rows ahead",
          shape.fits_vectors),
    _rung("few_rows", "tensor_cores", "up to 64 rows: tensor cores, k shared by all blocks",
          shape.fits_tensor_cores, configs=shape.CONFIGS),
)  # fmt: skip
LINEAR_RUNGS = (
    _rung("gemv_split", "split_linear", "few rows: warps share k, a thread loads eight rows ahead",
          shape.fits_linear),
    _rung("few_rows", "tensor_cores_linear", "up to 64 rows: tensor cores, k shared by all blocks",
          shape.fits_linear_tensor_cores, configs=shape.CONFIGS),
)  # fmt: skip


def order(gpu, a, b, tf32=False):
    """A ladder's order: few rows first, then what suits more of them."""
    if shape.fits_tensor_cores(gpu, a, b) is None:
        return ("cuda_few_rows", *hopper_choice.order(gpu, a, b, tf32))
    if shape.fits_vectors(gpu, a, b) is None:
        return ("cuda_gemv_split", *hopper_choice.order(gpu, a, b, tf32))
    return hopper_choice.order(gpu, a, b, tf32)


def order_linear(gpu, **args):
    if shape.fits_linear_tensor_cores(gpu, **args) is None:
        return ("cuda_few_rows", *hopper_choice.order_linear(gpu, **args))
    if shape.fits_linear(gpu, **args) is None:
        return ("cuda_gemv_split", *hopper_choice.order_linear(gpu, **args))
    return hopper_choice.order_linear(gpu, **args)
