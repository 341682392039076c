"""What a backward takes of its forward, in terms of the forward's arguments: double backward
differentiates it."""

from . import torch_rungs


def saved(gy, q, k, v, y, lse, **others):
    y, lse = torch_rungs.native(q, k, v, *others.values())
    return {"y": y, "lse": lse}
