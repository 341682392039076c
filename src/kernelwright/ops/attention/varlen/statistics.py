"""The tensors that a backward takes from its forward, as functions of the forward's arguments: the
double backward differentiates them."""

from . import torch_rungs


def saved(gy, q, k, v, y, lse, **others):
    y, lse = torch_rungs.native(q, k, v, *others.values())
    return {"y": y, "lse": lse}
