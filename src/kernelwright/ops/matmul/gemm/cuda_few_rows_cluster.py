"""Launches of cuda_few_rows_cluster.cu. The kernel is explained there; few_rows_cluster_tiling.py
defines how it cuts a product."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import NULL, CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.template_args import CTYPE

from .few_rows_cluster_tiling import Split, split_of
from .few_rows_tiling import MOST, line_of, sides

SOURCE = Path(__file__).parent / "few_rows" / "cuda_few_rows_cluster.cu"
ACTIVATION = {"none": "kNone", "relu": "kRelu", "gelu": "kGelu", "gelu_tanh": "kGeluTanh",
              "silu": "kSilu"}  # fmt: skip


def plan(gpu, config, a, b, tf32=False):
    of = sides(a, b, MOST)
    assert not isinstance(of, str), of
    (n, k), m = of.weight.shape, of.x.shape[0]
    split = split_of(gpu, config, m, n, k, 16)
    strides = (line_of(of.weight), line_of(of.x), *of.strides)
    args = (*of.names, "c", *places(split), i32(m), i32(n), i32(k), *map(i64, strides))
    return planned(SOURCE, "matmul_clustered", (CTYPE[a.dtype],), (), split, args)


def plan_linear(gpu, config, x, weight, bias, gate, residual, activation, keep, tf32=False):
    (m, k), n = x.shape, weight.shape[0]
    split = split_of(gpu, config, m, n, k, 16)
    given = {"bias": bias, "gate": gate, "residual": residual}
    optional = (NULL if t is None else name for name, t in given.items())
    args = ("x", "weight", *optional, "y", "z" if keep else NULL, *places(split))
    args = (*args, i32(m), i32(n), i32(k), i64(line_of(x)), i64(line_of(weight)))
    more = (f"matmul::{ACTIVATION[activation]}",)
    return planned(SOURCE, "linear_clustered", (CTYPE[x.dtype],), more, split, args)


def places(split: Split) -> tuple:
    return i32(split.rings), i32(split.boxed)


def planned(
    source: Path, entry: str, first, more, split: Split, args, emulated: bool = True
) -> Plan:
    template = (*first, split.name, split.config["resident"], *more)
    name = f"{entry}<{', '.join(map(str, template))}>"
    kernel = CudaKernel(source, name, split.config["cluster"], emulated)
    launch = Launch(kernel, (split.grid, 1, 1), args, (split.threads, 1, 1), split.shared,
                    split.config.get("overlaps", False))  # fmt: skip
    return Plan((launch,))
