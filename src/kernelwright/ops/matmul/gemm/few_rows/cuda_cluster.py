"""Launches of cuda_few_rows_cluster.cu and cuda_few_rows_wgmma.cu. The kernels are explained there;
cluster_tiling.py defines how they divide a product."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.symbolic_int import fixed
from kernelwright.contract.template_args import CTYPE

from .cluster_tiling import Split, split_of, wgmma_split_of
from .tiling import MOST, line_of, sides

FOLDER = Path(__file__).parent
ACTIVATION = {"none": "kNone", "relu": "kRelu", "gelu": "kGelu", "gelu_tanh": "kGeluTanh",
              "silu": "kSilu"}  # fmt: skip
SOURCES = {
    "clustered": FOLDER / "cuda_few_rows_cluster.cu",
    "wgmma_rows": FOLDER / "cuda_few_rows_wgmma.cu",
}


def plan(gpu, config, a, b, tf32=False):
    return _product(split_of, "clustered", gpu, config, a, b)


def plan_linear(gpu, config, **args):
    return _linear(split_of, "clustered", gpu, config, **args)


def wgmma(gpu, config, a, b, tf32=False):
    return _product(wgmma_split_of, "wgmma_rows", gpu, config, a, b)


def wgmma_linear(gpu, config, **args):
    return _linear(wgmma_split_of, "wgmma_rows", gpu, config, **args)


def _product(cut, entry, gpu, config, a, b) -> Plan:
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    (n, k), m = of.weight.shape, fixed(of.x.shape[0])
    split = cut(gpu, config, m, n, k, 16)
    strides = (line_of(of.weight), line_of(of.x), *of.strides)
    args = (*of.names, "c", *places(split), i32(m), i32(n), i32(k), *map(i64, strides))
    return planned(SOURCES[entry], f"matmul_{entry}", (CTYPE[a.dtype],), (), split, args)


def _linear(
    cut, entry, gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False
) -> Plan:
    (m, k), n = (fixed(x.shape[0]), x.shape[1]), weight.shape[0]
    split = cut(gpu, config, m, n, k, 16)
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    args = ("x", "weight", *optional, "y", "z" if keep else NULL, *places(split))
    args = (*args, i32(m), i32(n), i32(k), i64(line_of(x)), i64(line_of(weight)))
    more = (f"matmul::{ACTIVATION[activation]}",)
    return planned(SOURCES[entry], f"linear_{entry}", (CTYPE[x.dtype],), more, split, args)


def places(split: Split) -> tuple:
    return i32(split.rings), i32(split.boxed)


def planned(source: Path, entry: str, first, more, split: Split, args) -> Plan:
    template = (*first, split.name, split.config["resident"], *more)
    name = f"{entry}<{', '.join(map(str, template))}>"
    kernel = CudaKernel(source, name, split.config["cluster"], emulated="wgmma" not in source.name)
    grid, block = (split.grid, 1, 1), (split.threads, 1, 1)
    return Plan((Launch(kernel, grid, args, block, split.shared),))
