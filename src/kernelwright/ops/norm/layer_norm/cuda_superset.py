"""Launch plans of `cuda_superset`. Its kernels are explained in their .cu files."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .cuda import _backward
from .heuristics_superset import team_of, walk
from .tiling import BackwardCall, Call


def superset(gpu, config, **args):
    c = Call(args)
    team = team_of(c, config)
    kernel = _kernel("cuda_superset.cu", "norm_fwd_superset", c, *team)
    passed = (*c.pointers, *c.numbers, f32("eps"), c.offset, c.given)
    return Plan((Launch(kernel, (cdiv(c.rows, team.rows), 1, 1), passed, (team.block, 1, 1)),))


def superset_backward(gpu, config, **args):
    c = BackwardCall(args)
    w = walk(gpu, c, config)
    constants = (w.shape.vectors, w.threads, w.rows, w.blocks)
    kernel = _kernel("cuda_superset_backward.cu", "norm_bwd_superset", c, *constants)
    return _backward(c, kernel, w, min(c.rows, gpu.sms * w.blocks), 1)


def _kernel(file, name, c, *constants) -> CudaKernel:
    norm = [CTYPE[c.dtype], CTYPE[c.parameter_dtype], boolean(c.center), boolean(c.add)]
    values = ", ".join(map(str, constants))
    name = f"{name}<kw::Norm<{', '.join(norm)}>, {values}>"
    return CudaKernel(Path(__file__).with_name(file), name)
