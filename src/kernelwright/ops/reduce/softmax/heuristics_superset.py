"""Launch parameters of `cuda_superset`. Imports no kernel language."""

from __future__ import annotations

from kernelwright.ops._superset import WORDS, Team, out_of_step, team, touched

from .heuristics import fits_rows, inputs_of

CONFIGS = ({"vectors": 4}, {"vectors": 2}, {"vectors": 8})  # vectors per thread


def team_of(config, tensors) -> Team | None:
    inputs = inputs_of(tensors)
    return team(max(map(touched, inputs)), config["vectors"], WORDS * len(inputs))


def fits(gpu, dim, **tensors):
    if reason := fits_rows(gpu, dim, **tensors):
        return reason
    named = {k: tensors[k] for k in ("x", "gy", "y") if k in tensors}
    if reason := out_of_step(named):
        return reason
    cols = inputs_of(tensors)[0].shape[-1] if inputs_of(tensors)[0].shape else 1
    if cols >= 2**30:
        return f"a row of {cols} elements exceeds 32-bit indices"
    if team_of(CONFIGS[0], tensors) is None:
        return f"a row of {cols} does not fit a block's registers"
    return None


def choose(gpu, dim, **tensors):
    """Four vectors per thread up to 256 threads, then eight: with few warps the barrier is cheap.
    For rows of a single warp fewer vectors, if lanes would otherwise be idle."""
    n = max(map(touched, inputs_of(tensors)))
    if n <= 64:
        return CONFIGS[1]
    return CONFIGS[0 if n <= 1024 or len(inputs_of(tensors)) == 2 else 2]
