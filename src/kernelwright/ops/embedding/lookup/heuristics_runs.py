"""Launch parameters of the rungs that find runs without a sort. Imports no kernel language."""

from __future__ import annotations

from . import heuristics

# piece: positions of a long run that one thread processes; each: vectors of a row that a thread
# adds, one after another; resident: threads of a multiprocessor for which registers must suffice
SCATTER_CONFIGS = ({"block": 256, "piece": 64}, {"block": 128, "piece": 64})
SLOTS_CONFIGS = (
    {"block": 128, "piece": 128, "each": 1, "resident": 1280},
    {"block": 128, "piece": 64, "each": 1, "resident": 1280},
    {"block": 128, "piece": 64, "each": 1, "resident": 1536},
    {"block": 128, "piece": 64, "each": 2, "resident": 1024},
    {"block": 128, "piece": 128, "each": 2, "resident": 1024},
)


def fits_scatter(gpu, weight, indices, num_weights, padding_idx=-1):
    if max(num_weights, indices.numel()) >= 2**31 - 1:
        return "2^31 or more rows or lookups"
    return heuristics.fits(gpu, weight, indices=indices, num_weights=num_weights)
