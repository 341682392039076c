"""sample in PyTorch: a sort, cumulative sums and a race of exponential clocks. The clocks are
Philox's in integer operators; with PyTorch's own clocks it is timed as a peer."""

import torch

from .definition import sample


def manual(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return sample(wide, state, each, temperature, top_k, top_p, min_p)


def native(logits, state, each, temperature, top_k, top_p, min_p, filtered):
    return sample(logits.double(), state, each, temperature, top_k, top_p, min_p)
