"""What a backward takes of its forward, in terms of the forward's arguments: double backward
differentiates it."""

from . import torch_rungs


def saved(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    y, lse = torch_rungs.manual(q, k, v, mask, seed, causal, mask_grad, scale, p)
    return {"y": y, "lse": lse}
