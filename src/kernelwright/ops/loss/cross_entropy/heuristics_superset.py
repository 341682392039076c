"""Launch parameters of `cuda_superset`. Imports no kernel language."""

from __future__ import annotations

from kernelwright.contract.arithmetic import cdiv
from kernelwright.ops._superset import WORDS, Team, out_of_step, team, touched

from . import heuristics

CONFIGS = ({"threads": 512, "vectors": 4}, {"threads": 256, "vectors": 4})
CONFIGS_BACKWARD = ({"threads": 256, "vectors": 4}, {"threads": 256, "vectors": 2})
CONFIGS_WITH_GRAD = ({"vectors": 8}, {"vectors": 4})  # per thread


def fits(gpu, x, **others):
    if reason := heuristics.fits(gpu, x, **others):
        return reason
    if others["smooth"] or others["cap"]:
        return "label smoothing and soft caps are not supported"
    if x.shape[-1] >= 2**30:
        return f"a row of {x.shape[-1]} elements exceeds 32-bit indices"
    return out_of_step({"x": x})


def fits_with_grad(gpu, x, **others):
    if reason := fits(gpu, x, **others):
        return reason
    if team_of(x, CONFIGS_WITH_GRAD[0]) is None:
        return f"a row of {x.shape[-1]} does not fit a block's registers"
    return None


def team_of(x, config) -> Team | None:
    """One block per row, of at least one warp."""
    n = touched(x)
    widest = team(n, config["vectors"], WORDS)
    return Team(cdiv(n, 32), 32, 32) if widest and widest.threads <= 32 else widest


def choose_with_grad(gpu, x, **others):
    """Four vectors per thread; for long rows as many as 1,024 threads need: the most loads in
    flight."""
    return CONFIGS_WITH_GRAD[1]
