"""Launch parameters of `cuda_superset`. Imports no kernel language."""

from __future__ import annotations

from kernelwright.ops._superset import WORDS, Team, out_of_step, team, touched

from .heuristics import _fits_cuda
from .tiling import Call

CONFIGS = ({"vectors": 4}, {"vectors": 2}, {"vectors": 8}, {"vectors": 1})  # of a thread


def team_of(c: Call, config) -> Team | None:
    return team(max(map(touched, c.inputs)), config["vectors"], WORDS * (2 if c.add else 1))


_fits = _fits_cuda(lambda gpu, c: team_of(c, CONFIGS[0]), "a block's registers")


def fits(gpu, **args):
    c = Call(args)
    if reason := _fits(gpu, **args):
        return reason
    for name in ("weight", "bias"):
        if args.get(name) is not None and args[name].align < 16:
            return f"{name}: its memory starts off a 16-byte boundary"
    return out_of_step({n: args[n] for n in c.read if args.get(n) is not None})


def choose(gpu, **args):
    """Four vectors a thread; of short rows two, so that a warp's lanes all have some."""
    c = Call(args)
    return CONFIGS[1 if max(map(touched, c.inputs)) <= 64 else 0]
