"""The tensors that a backward takes from its forward, as functions of the forward's arguments: the
double backward differentiates them."""

from . import torch_rungs


def saved(gy, q, k, v, y, lse, mask, seed, causal, mask_grad, scale, p):
    y, lse = torch_rungs.manual(q, k, v, mask, seed, causal, mask_grad, scale, p)
    return {"y": y, "lse": lse}
