"""Launch parameters of the rungs that find runs without a sort. Imports no kernel language."""

from __future__ import annotations

from . import choose

# piece: positions of a run that are one thread's work
SCATTER_CONFIGS = ({"block": 256, "piece": 64}, {"block": 128, "piece": 64})
SLOTS_CONFIGS = ({"block": 256, "piece": 256}, {"block": 128, "piece": 128})


def fits_scatter(gpu, weight, indices, num_weights, padding_idx=-1):
    if max(num_weights, indices.numel()) >= 2**31 - 1:
        return "2^31 rows or look-ups"
    return choose.fits(gpu, weight, indices=indices, num_weights=num_weights)
