"""sample in PyTorch: a sort, cumulative sums and a race of exponential clocks. The clocks use
Philox in integer operators; with PyTorch's own random numbers it is timed as a peer."""

import torch

from .definition import sample


def manual(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    wide = torch.promote_types(logits.dtype, torch.float32)
    return sample(logits, state, each, temperature, top_k, top_p, min_p, wide)


def native(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    return sample(logits, state, each, temperature, top_k, top_p, min_p, torch.float64)
