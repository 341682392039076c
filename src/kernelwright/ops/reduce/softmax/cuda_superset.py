"""Launch plans of `cuda_superset`. Its kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, i32, i64
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE

from .heuristics_superset import team_of
from .tiling import rows_of


def superset(gpu, config, x, dim):
    return _plan("fwd", config, "y", x=x)


def superset_backward(gpu, config, gy, y, dim):
    return _plan("bwd", config, "gx", gy=gy, y=y)


def _plan(side, config, out, **ins):
    r, team = rows_of(*ins.values()), team_of(config, ins)
    dtype = next(iter(ins.values())).dtype
    name = f"softmax_{side}_superset<{CTYPE[dtype]}, {team.vectors}, {team.threads}, {team.block}>"
    args = (*ins, out, i64(r.rows), i32(r.cols), *map(i64, r.strides))
    kernel = CudaKernel(Path(__file__).with_name("cuda_superset.cu"), name)
    return Plan((Launch(kernel, (cdiv(r.rows, team.rows), 1, 1), args, (team.block, 1, 1)),))
