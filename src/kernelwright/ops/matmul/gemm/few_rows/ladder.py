"""The rungs for few rows, from the slowest to the fastest."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.contract import Rung

from ..stream import tiling as stream
from . import cluster_choice as cluster
from . import tiling as shape


def _rung(trick: str, entry: str, idea: str, supports, **more) -> Rung:
    return Rung(
        f"cuda_{trick}",
        "cuda",
        f"few_rows.cuda:{entry}",
        idea,
        supports=supports,
        sources=(f"few_rows/cuda_{trick}.cu",),
        **more,
    )


def _lesson(trick: str, entry: str, idea: str, supports) -> Rung:
    """A teaching step, whose source is in teaching/."""
    rung = _rung(trick, entry, idea, supports, dispatchable=False)
    return replace(rung, sources=(f"teaching/cuda_{trick}.cu",))


def _cluster(entry: str, supports, heuristic) -> Rung:
    return Rung(
        "cuda_few_rows_cluster",
        "cuda",
        f"few_rows.cuda_cluster:{entry}",
        "up to 64 rows: k shared by a cluster, each lane copies what it multiplies",
        supports=supports,
        configs=cluster.CONFIGS,
        sources=("few_rows/cuda_few_rows_cluster.cu",),
        heuristic=heuristic,
    )


def _wgmma(entry: str, supports, heuristic) -> Rung:
    return Rung(
        "cuda_few_rows_wgmma",
        "cuda",
        f"few_rows.cuda_cluster:{entry}",
        "up to 64 rows: Hopper's tensor cores, the weight in registers, x in shared memory",
        supports=supports,
        configs=cluster.WGMMA_CONFIGS,
        sources=("few_rows/cuda_few_rows_wgmma.cu",),
        heuristic=heuristic,
    )


def _stream(entry: str, supports, heuristic) -> Rung:
    return Rung(
        "cuda_few_rows_stream",
        "cuda",
        f"stream.cuda:{entry}",
        "up to 64 rows: one warp streams the weight by the copy engine",
        supports=supports,
        configs=stream.CONFIGS,
        sources=("stream/cuda_few_rows_stream.cu",),
        heuristic=heuristic,
    )


RUNGS = (
    _lesson("gemv_thread", "thread", "few rows: one thread per result", shape.fits_thread),
    _lesson("gemv_warp", "warp", "few rows: one warp per row of the weight", shape.fits_vectors),
    _rung("gemv_split", "split", "few rows: warps divide k; eight rows of loads per thread",
          shape.fits_vectors),
    _rung("few_rows", "tensor_cores", "up to 64 rows: tensor cores; blocks divide k",
          shape.fits_tensor_cores, configs=shape.CONFIGS),
    _cluster("plan", cluster.fits, cluster.choose),
    _wgmma("wgmma", cluster.fits_wgmma, cluster.choose_wgmma),
    _stream("plan", stream.fits, stream.choose),
)  # fmt: skip
LINEAR_RUNGS = (
    _rung("gemv_split", "split_linear", "few rows: warps divide k; eight rows of loads per thread",
          shape.fits_linear),
    _rung("few_rows", "tensor_cores_linear", "up to 64 rows: tensor cores; blocks divide k",
          shape.fits_linear_tensor_cores, configs=shape.CONFIGS),
    _cluster("plan_linear", cluster.fits_linear, cluster.choose_linear),
    _wgmma("wgmma_linear", cluster.fits_wgmma_linear, cluster.choose_wgmma_linear),
    _stream("plan_linear", stream.fits_linear, stream.choose_linear),
)  # fmt: skip
