"""Launch plans of `cuda_superset`. What its kernel does stands in its file."""

from __future__ import annotations

from pathlib import Path

from kernelwright.contract import CudaKernel, Launch, Plan, f32
from kernelwright.contract.arithmetic import cdiv
from kernelwright.contract.template_args import CTYPE, boolean

from .heuristics_superset import team_of
from .tiling import Call


def superset(gpu, config, **args):
    c = Call(args)
    team = team_of(c, config)
    norm = [CTYPE[c.dtype], CTYPE[c.parameter_dtype], boolean(c.center), boolean(c.add)]
    shape = f"{team.vectors}, {team.threads}, {team.block}"
    name = f"norm_fwd_superset<kw::Norm<{', '.join(norm)}>, {shape}>"
    kernel = CudaKernel(Path(__file__).with_name("cuda_superset.cu"), name)
    passed = (*c.pointers, *c.numbers, f32("eps"), c.offset, c.given)
    return Plan((Launch(kernel, (cdiv(c.rows, team.rows), 1, 1), passed, (team.block, 1, 1)),))
